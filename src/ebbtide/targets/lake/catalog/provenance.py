"""
Where the metaranges in a namespace come from: each belongs to a commit, or the catalog has noted why not.

A metarange is noted before it is written, and the note goes when its commit lands. So a metarange in the
store that has neither a commit nor a note was written by a catalog that knew more than this one: the catalog
was restored from an older copy, or another catalog uses the namespace. Its objects would look like garbage.

A note of a commit, merge or revert that never landed (another writer was first, or a crash) is harmless: what
the metarange refers to is staged or committed in the very catalog that has the note. An import brings in
addresses that nothing else may refer to, so its note counts only while the import may be under way.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.instant import to_micros
from ebbtide.targets.lake.catalog import schema

_notes = schema.metaranges
IMPORT_LIFE = timedelta(days=1)
"""For how long an import counts as under way; as long as the grace period protects what it brings in."""


class Kind(StrEnum):
    """Why a metarange may have no commit."""

    OWN = "own"
    """A commit, merge or revert is writing it, or did not land."""
    IMPORT = "import"
    FORGOTTEN = "forgotten"
    """A person has declared it garbage."""


def note(
    connection: Connection, repo_uid: str, metarange_id: str, kind: Kind, now: datetime, by: str = ""
) -> None:
    """Note a metarange; a note that is there stays, but for one of an import, which counts anew."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    said = {"kind": str(kind), "noted": to_micros(now), "noted_by": by}
    row = dialect.insert(_notes).values(repo_uid=repo_uid, metarange_id=metarange_id, **said)
    if kind is Kind.OWN:
        connection.execute(row.on_conflict_do_nothing())
    else:
        connection.execute(row.on_conflict_do_update(index_elements=["repo_uid", "metarange_id"], set_=said))


def settle(connection: Connection, repo_uid: str, metarange_id: str) -> None:
    """Drop the note of a metarange whose commit lands, in the same transaction."""
    mine = (_notes.c.repo_uid == repo_uid, _notes.c.metarange_id == metarange_id)
    connection.execute(delete(_notes).where(*mine))


def known(connection: Connection, repo_uid: str, now: datetime) -> set[str]:
    """Give the metaranges that a commit names or a note explains."""
    commits = select(schema.commits.c.metarange_id).where(schema.commits.c.repo_uid == repo_uid)
    lasting = (_notes.c.kind != str(Kind.IMPORT)) | (_notes.c.noted > to_micros(now - IMPORT_LIFE))
    noted = select(_notes.c.metarange_id).where(_notes.c.repo_uid == repo_uid, lasting)
    return {*connection.execute(commits.distinct()).scalars(), *connection.execute(noted).scalars()}


def is_separated(connection: Connection, repo_uid: str) -> bool:
    """Tell whether metaranges need not be looked for among the ranges any more."""
    table = schema.separated
    return connection.execute(select(table).where(table.c.repo_uid == repo_uid)).first() is not None


def mark_separated(connection: Connection, repo_uid: str) -> None:
    """Record that no unknown metarange lies among the ranges; those written from now on lie apart."""
    if not is_separated(connection, repo_uid):
        connection.execute(insert(schema.separated).values(repo_uid=repo_uid))
