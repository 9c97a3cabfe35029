"""A repository's policy and retention rules, as their author wrote them, and every text before."""

from __future__ import annotations

from sqlalchemy import Connection, Table, func, insert, select

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.model import PolicyVersion, Repository
from ebbtide.targets.lake.catalog.part import CatalogPart


class Policies(CatalogPart):
    """Keeps texts unread: whether they make sense is for the caller to say, before."""

    def set_policy(self, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Make this text the repository's policy and give its version; earlier ones are kept."""
        return self._set_text(schema.policies, repo, text, format)

    def policy(self, repo: str) -> tuple[str, str] | None:
        """Give the present policy's text and format; None if none was ever set."""
        return self._text(schema.policies, repo)

    def policy_history(self, repo: str) -> tuple[PolicyVersion, ...]:
        """Give all policies that the repository had, the oldest first."""
        with self._reading(repo) as (connection, found):
            return _versions(connection, schema.policies, found)

    def set_retention(self, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Make this text the repository's retention rules and give its version; earlier ones are kept."""
        return self._set_text(schema.retentions, repo, text, format)

    def retention(self, repo: str) -> tuple[str, str] | None:
        """Give the present retention rules' text and format; None if none were ever set."""
        return self._text(schema.retentions, repo)

    def _set_text(self, table: Table, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Add the next version of a text."""
        if not isinstance(text, str) or "\0" in text + format:
            raise BadInput("this is no text without NUL", fix="give the text of a JSON, TOML or YAML file")
        with self._writing(repo) as writing:
            uid = writing.repository.uid
            latest = select(func.max(table.c.version)).where(table.c.repo_uid == uid)
            version = (writing.connection.execute(latest).scalar() or 0) + 1
            row = {"repo_uid": uid, "version": version, "text": text, "format": format}
            now = to_micros(self._clock())
            writing.connection.execute(insert(table).values(row | {"created": now}))
        return int(version)

    def _text(self, table: Table, repo: str) -> tuple[str, str] | None:
        """Give the last version of a text, and its format."""
        with self._reading(repo) as (connection, found):
            mine = select(table.c.text, table.c.format).where(table.c.repo_uid == found.uid)
            row = connection.execute(mine.order_by(table.c.version.desc()).limit(1)).first()
        return None if row is None else (row.text, row.format)


def _versions(connection: Connection, table: Table, repo: Repository) -> tuple[PolicyVersion, ...]:
    """Give all versions of a text, the oldest first."""
    mine = select(table).where(table.c.repo_uid == repo.uid)
    rows = connection.execute(mine.order_by(table.c.version))
    return tuple(PolicyVersion(r.version, r.text, r.format, from_micros(r.created)) for r in rows)
