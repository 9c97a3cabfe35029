"""
Lost history: commits that the catalog does not know any more, found before anything is deleted.

A catalog that was restored from an older copy does not know the commits made since. Three traces of them
survive in the namespace, which a backup of the catalog does not touch: their metaranges, and a record with
the youngest commits that the last plan has read and with a random mark. Every plan, every new tag and every
repeated import put a mark into the catalog, and the record has the last of them. Whatever is written to a
restored catalog, it does not get that mark. What was lost is imported on a new branch, or declared garbage by
a person.

Every metarange in a namespace belongs to a commit, or the catalog has a note about it. A metarange is noted
before it is written, and the note is removed when its commit lands. A metarange with neither was written by a
catalog that knew more than this one: this one was restored from an older copy, or another catalog uses the
namespace. The objects of such a metarange would look like garbage.

A note about a commit, merge or revert that never landed (another writer was first, or a crash) is harmless:
what the metarange refers to is staged or committed in the catalog that has the note. An import brings in
addresses that nothing else may refer to, so its note counts only while the import may be under way, or if the
import was refused; imports.py says why an older copy of the catalog cannot hide a later import behind that.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.errors import HistoryLost, MetadataError, NotFound
from ebbtide.core.instant import format_instant, to_micros
from ebbtide.storage.store import DeleteRequest, Store
from ebbtide.targets.lake.catalog import history, reclaim_queue, refs, schema
from ebbtide.targets.lake.catalog.fence import FencedCatalog
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.names import check_ref_name
from ebbtide.targets.lake.catalog.ranges import METARANGES, CommittedContent, is_metarange, metadata_key
from ebbtide.targets.lake.catalog.reclaim_queue import Imported
from ebbtide.targets.lake.catalog.refs import add_branch, check_name_free
from ebbtide.targets.repository.model import COMMITTED, METADATA, Commit, RepositoryInfo, Snapshot

_notes = schema.metaranges
IMPORT_LIFE = timedelta(days=1)
"""How long an import counts as under way; the grace period protects its objects as long."""

RECORD = f"{METADATA}ebbtide-history.json"
"""What the last plan has read of the history, and the mark of the last plan, tag or repeated import."""
FORMAT = 1
MOST_NAMED = 20
_MOST_MARKS = 1_000
"""How many marks a catalog keeps; the namespace has the last one, or one shortly before it."""
_AT_ONCE = 16
_FILE = re.compile(r"([0-9a-f]{64})\.parquet", re.ASCII)


class Provenance(StrEnum):
    """Why a metarange may have no commit."""

    OWN = "own"
    """A commit, merge or revert is writing it, or did not land."""
    IMPORT = "import"
    REFUSED = "refused"
    """An import that did not land; its user was told."""
    FORGOTTEN = "forgotten"
    """A person has declared it garbage."""


def note_metarange(
    connection: Connection, repo_uid: str, metarange_id: str, kind: Provenance, now: datetime, by: str = ""
) -> None:
    """Note a metarange; an existing note stays, unless it is about an import, whose time starts again."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    said = {"kind": str(kind), "noted": to_micros(now), "noted_by": by}
    row = dialect.insert(_notes).values(repo_uid=repo_uid, metarange_id=metarange_id, **said)
    if kind is Provenance.OWN:
        connection.execute(row.on_conflict_do_nothing())
    else:
        connection.execute(row.on_conflict_do_update(index_elements=["repo_uid", "metarange_id"], set_=said))


def settle_metarange(connection: Connection, repo_uid: str, metarange_id: str) -> None:
    """Remove the note of a metarange, in the transaction that lands its commit."""
    connection.execute(delete(_notes).where(*_note_of(repo_uid, metarange_id)))


def note_refusal(connection: Connection, repo_uid: str, metarange_id: str, now: datetime) -> None:
    """Change the note of an import that did not land, unless a commit names its metarange all the same."""
    pending = (_notes.c.kind == str(Provenance.IMPORT), ~_commits_of(repo_uid, metarange_id).exists())
    said = {"kind": str(Provenance.REFUSED), "noted": to_micros(now)}
    connection.execute(update(_notes).where(*_note_of(repo_uid, metarange_id), *pending).values(**said))


def is_given_up(connection: Connection, repo_uid: str, metarange_id: str) -> bool:
    """Return True if an import was refused, or its metarange declared garbage, since it was noted."""
    found = select(_notes.c.kind).where(*_note_of(repo_uid, metarange_id))
    return connection.execute(found).scalar() in {Provenance.REFUSED, Provenance.FORGOTTEN}


def is_explained(connection: Connection, repo_uid: str, metarange_id: str) -> bool:
    """Return True if a commit names a metarange, or a note without an end explains it."""
    lasting = (*_note_of(repo_uid, metarange_id), _notes.c.kind != str(Provenance.IMPORT))
    queries = (_commits_of(repo_uid, metarange_id), select(_notes.c.kind).where(*lasting))
    return any(connection.execute(query.limit(1)).first() is not None for query in queries)


def _note_of(repo_uid: str, metarange_id: str) -> tuple[ColumnElement[bool], ...]:
    return _notes.c.repo_uid == repo_uid, _notes.c.metarange_id == metarange_id


def _commits_of(repo_uid: str, metarange_id: str) -> Select[tuple[str]]:
    table = schema.commits.c
    return select(table.id).where(table.repo_uid == repo_uid, table.metarange_id == metarange_id)


def known_metaranges(connection: Connection, repo_uid: str, now: datetime) -> set[str]:
    """Return the metaranges that a commit names or a note explains."""
    commits = select(schema.commits.c.metarange_id).where(schema.commits.c.repo_uid == repo_uid)
    lasting = (_notes.c.kind != str(Provenance.IMPORT)) | (_notes.c.noted > to_micros(now - IMPORT_LIFE))
    noted = select(_notes.c.metarange_id).where(_notes.c.repo_uid == repo_uid, lasting)
    return {*connection.execute(commits.distinct()).scalars(), *connection.execute(noted).scalars()}


def is_separated(connection: Connection, repo_uid: str) -> bool:
    """Return True if no unknown metarange can be among the ranges any more."""
    table = schema.separated
    return connection.execute(select(table).where(table.c.repo_uid == repo_uid)).first() is not None


def mark_separated(connection: Connection, repo_uid: str) -> None:
    """Record that no unknown metarange is among the ranges; new metaranges have their own folder."""
    if not is_separated(connection, repo_uid):
        connection.execute(insert(schema.separated).values(repo_uid=repo_uid))


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery: a branch with a commit for each lost metarange, if there were any."""

    branch: str | None
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True)
class _Record:
    """How far the last plan has read: commits without children, and the last mark."""

    repository_uid: str
    tips: tuple[str, ...]
    noted: str
    mark: str

    def to_json(self) -> bytes:
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__} | {"format": FORMAT}
        return json.dumps(plain, sort_keys=True).encode()


class LostHistory(FencedCatalog):
    """Compares the namespace with the catalog, and recovers commits that the catalog has lost."""

    def unknown_metaranges(self, repo: str) -> tuple[str, ...]:
        """Return the metaranges in the namespace that no commit names and no note explains."""
        found = self.repository(repo)
        store = self._content(found.namespace).store
        # The store is listed before the catalog is read: a note is made before its metarange is written.
        apart = _listed(store, METARANGES)
        with self._database.reading() as connection:
            separated = is_separated(connection, found.uid)
        among = set() if separated else _listed(store, COMMITTED)
        with self._database.reading() as connection:
            known = known_metaranges(connection, found.uid, self._clock())
        unknown = apart - known
        if not separated:
            unknown |= _metaranges_among(self._content(found.namespace), among, known & (apart | among))
            if not unknown:
                with self._database.writing() as connection:
                    mark_separated(connection, found.uid)
        return tuple(sorted(unknown))

    def check_history(self, repo: str) -> None:
        """Stop if the namespace or an earlier plan has commits that the catalog does not have."""
        unknown = self.unknown_metaranges(repo)
        if unknown:
            raise _unknown(self.repository(repo), unknown)
        found = self.repository(repo)
        record = _read_record(self._content(found.namespace).store, found)
        if record is None:
            return
        with self._reading(repo) as (connection, found):
            lost = _missing(connection, found, record.tips)
            known = _has_mark(connection, found, record.mark)
        if lost:
            raise _went_back(found, f"{len(lost)} of the commits that a plan read are gone", lost)
        if not known:
            raise _went_back(found, "it has no record of the last plan, tag or repeated import", ())

    def remember_history(self, snapshot: Snapshot) -> None:
        """Record in the namespace which commits a plan has read, so that a later plan cannot miss them."""
        parents = {parent for commit in snapshot.commits.values() for parent in commit.parents}
        tips = tuple(sorted(set(snapshot.commits) - parents))
        with self._database.writing() as connection:
            refs.hold_repository(connection, snapshot.repository.name)
            add_mark(connection, snapshot.repository, self._clock())
        self._publish(snapshot.repository, tips=tips)

    def recover_history(self, repo: str, committer: str = "", branch: str | None = None) -> Recovered:
        """
        Commit each unknown metarange, oldest first, on a new branch from the default branch.

        Messages, committers and branches are lost with the catalog. The objects are referenced again.
        """
        if branch is not None:
            check_ref_name(branch, "branch")
        unknown = self.unknown_metaranges(repo)
        found = self.repository(repo)
        content = self._content(found.namespace)
        dated = [(_written(content.store, one), one) for one in unknown]
        _check_ranges(content, unknown)
        made: list[Commit] = []
        if not unknown:
            branch = None
        else:
            with self._referring(repo) as writing:
                connection, now = writing.connection, self._clock()
                branch = branch or _free_name(refs.heads(connection, found), now)
                check_name_free(writing, branch)
                before = refs.commit(
                    connection, found, refs.branch(connection, found, found.default_branch).head
                )
                for written, metarange_id in sorted(dated):
                    said = f"Recovered a metarange that was written at {format_instant(written)}"
                    commit = history.identified(Commit("", metarange_id, (before.id,), now, said, committer))
                    history.add(connection, found, commit)
                    settle_metarange(connection, found.uid, metarange_id)
                    reclaim_queue.note_import(writing, Imported(metarange_id, before.metarange_id))
                    made.append(commit)
                    before = commit
                add_branch(connection, found, branch, before.id)
        self._accept(repo)
        return Recovered(branch, tuple(made))

    def forget_history(self, repo: str, metaranges: Collection[str] | None, by: str) -> tuple[str, ...]:
        """Declare unknown metaranges garbage, some or all, and record the user and the time."""
        unknown = self.unknown_metaranges(repo)
        chosen = unknown if metaranges is None else _chosen(unknown, metaranges)
        with self._writing(repo) as writing:
            for one in chosen:
                note_metarange(
                    writing.connection, writing.repository.uid, one, Provenance.FORGOTTEN, self._clock(), by
                )
        if set(chosen) == set(unknown):
            self._accept(repo)
        return tuple(chosen)

    def _accept(self, repo: str) -> None:
        """Accept the catalog as it is: later plans are compared with it."""
        with self._reading(repo) as (connection, found):
            commits = history.all_commits(connection, found)
        parents = {parent for commit in commits.values() for parent in commit.parents}
        tips = tuple(sorted(set(commits) - parents))
        with self._database.writing() as connection:
            refs.hold_repository(connection, repo)
            add_mark(connection, found, self._clock())
        self._publish(found, tips=tips, accept=True)

    def _publish(
        self, repository: RepositoryInfo, *, tips: Sequence[str] | None = None, accept: bool = False
    ) -> None:
        """
        Write the catalog's last mark into the namespace, with the commits that a plan has read.

        The catalog has the mark already: killed in between, the namespace has an earlier one that the catalog
        knows. The repository is held meanwhile, so the record never goes back behind a change that was
        traced. A record that shows a loss stays until a person accepts the loss.
        """
        store = self._content(repository.namespace).store
        with self._database.writing() as connection, suppress(NotFound):
            if refs.hold_repository(connection, repository.name)[0].uid != repository.uid:
                return  # it was deleted meanwhile
            if not accept:
                try:
                    record = _read_record(store, repository)
                except MetadataError:
                    return  # every run stops there
                if record is not None and not _has_mark(connection, repository, record.mark):
                    return
                if tips is None:
                    tips = record.tips if record else ()
            mark = _last_mark(connection, repository)
            noted = format_instant(self._clock())
            store.write(RECORD, _Record(repository.uid, tuple(tips or ()), noted, mark).to_json())


def forget_record(store: Store) -> None:
    """Remove the record of a namespace that gets another owner."""
    store.delete([DeleteRequest(RECORD)])


def _listed(store: Store, folder: str) -> set[str]:
    """Return the names of metadata files in a folder; ignore files with other names."""
    names = (_FILE.fullmatch(name) for name in store.children(f"{folder}/"))
    return {name[1] for name in names if name}


def _metaranges_among(content: CommittedContent, files: set[str], known: Iterable[str]) -> set[str]:
    """Find metaranges among the ranges, where earlier versions of Ebbtide wrote them."""
    known = set(known)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ranges = {info.id for found in pool.map(content.ranges, known) for info in found}
        strange = sorted(files - known - ranges)
        kinds = pool.map(lambda one: is_metarange(content.store, COMMITTED, one), strange)
        return {one for one, is_one in zip(strange, kinds, strict=True) if is_one}


def _missing(connection: Connection, repository: Repository, commits: Sequence[str]) -> list[str]:
    """Return the commits that the catalog does not have."""
    table, found = schema.commits, set[str]()
    for part in reclaim_queue.chunks(commits):
        mine = (table.c.repo_uid == repository.uid, table.c.id.in_(part))
        found.update(connection.execute(select(table.c.id).where(*mine)).scalars())
    return [commit for commit in commits if commit not in found]


def _has_mark(connection: Connection, repository: RepositoryInfo, mark: str) -> bool:
    table = schema.readings
    mine = (table.c.repo_uid == repository.uid, table.c.mark == mark)
    return connection.execute(select(table.c.mark).where(*mine)).first() is not None


def add_mark(connection: Connection, repository: RepositoryInfo, now: datetime) -> None:
    """Add a new mark to the catalog and remove the oldest; the caller holds the repository's lock."""
    table = schema.readings
    mine = table.c.repo_uid == repository.uid
    newest = select(table.c.mark).where(mine).order_by(table.c.made.desc()).limit(_MOST_MARKS)
    connection.execute(delete(table).where(mine, table.c.mark.not_in(newest)))
    last = connection.execute(select(func.max(table.c.made)).where(mine)).scalar() or 0
    # Clocks can stand still or go back; the order of marks must not.
    row = {"repo_uid": repository.uid, "mark": uuid.uuid4().hex, "made": max(to_micros(now), last + 1)}
    connection.execute(insert(table).values(row))


def _last_mark(connection: Connection, repository: RepositoryInfo) -> str:
    table = schema.readings
    mine = select(table.c.mark).where(table.c.repo_uid == repository.uid)
    return str(connection.execute(mine.order_by(table.c.made.desc()).limit(1)).scalar_one())


def _read_record(store: Store, repository: RepositoryInfo) -> _Record | None:
    """Read the record of the last plan; None if there is none, or it is about another repository."""
    try:
        data = store.read(RECORD)
    except NotFound:
        return None
    try:
        plain: dict[str, Any] = json.loads(data)
        readable = plain.pop("format") == FORMAT
        record = _Record(**plain | {"tips": tuple(plain["tips"])})
    except (ValueError, TypeError, KeyError, AttributeError):
        readable = False
    if not readable:
        raise MetadataError(
            f"{RECORD} in {repository.namespace} cannot be read",
            why="it says which commits earlier plans have read, and the catalog may have lost some",
            fix=f"look at the history with 'ebb lake log {repository.name}'; if nothing is missing, run"
            f" 'ebb lake recover {repository.name}', which writes it anew",
        )
    return record if record.repository_uid == repository.uid else None


def _written(store: Store, metarange_id: str) -> datetime:
    """Return when a metarange was written."""
    for folder in (METARANGES, COMMITTED):
        try:
            return store.stat(metadata_key(folder, metarange_id)).last_modified
        except NotFound:
            continue
    raise MetadataError(f"metarange {metarange_id} vanished", fix="run the command again")


def _check_ranges(content: CommittedContent, metaranges: Sequence[str]) -> None:
    """Stop unless every range of these metaranges is in the store."""
    ranges = {info.id for one in metaranges for info in content.ranges(one)}

    def missing(range_id: str) -> bool:
        try:
            content.store.stat(metadata_key(COMMITTED, range_id))
        except NotFound:
            return True
        return False

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        lost = [one for one, is_lost in zip(ranges, pool.map(missing, ranges), strict=True) if is_lost]
    if lost:
        raise MetadataError(
            f"{len(lost)} ranges of the lost commits are missing, the first is {min(lost)}",
            why="a commit that cannot be read whole would stop every later plan",
            fix="restore them from a backup of the namespace; or declare the metaranges garbage with"
            " 'ebb lake forget'",
        )


def _chosen(unknown: Sequence[str], wanted: Collection[str]) -> list[str]:
    """Find unknown metaranges by their ids or prefixes of them."""
    found = []
    for text in wanted:
        meant = [one for one in unknown if text and one.startswith(text)]
        if len(meant) != 1:
            raise NotFound(
                f"{text!r} names {len(meant)} unknown metaranges",
                why="only a metarange that the catalog does not know can be declared garbage",
                fix="give more characters of one that 'ebb lake forget REPO --list' shows",
            )
        found += meant
    return list(dict.fromkeys(found))


def _free_name(branches: Collection[str], now: datetime) -> str:
    """Return a free name for the branch of a recovery, made from the time."""
    stem = f"recovered-{now:%Y%m%dT%H%M%S}"
    names = (stem if not number else f"{stem}-{number}" for number in range(len(branches) + 1))
    return next(name for name in names if name not in branches)


def _unknown(repository: Repository, unknown: Sequence[str]) -> HistoryLost:
    name, rest = repository.name, len(unknown) - MOST_NAMED
    count = "1 metarange" if len(unknown) == 1 else f"{len(unknown)} metaranges"
    return HistoryLost(
        f"{repository.namespace} holds {count} that the catalog has no commit for",
        why="the catalog was probably restored from an older copy, or another catalog uses the namespace;"
        " the objects of those commits would look like garbage",
        fix=f"import the lost history with 'ebb lake recover {name}', or, if it is not wanted, declare it"
        f" garbage with 'ebb lake forget {name} --all-unknown'",
        details=[*unknown[:MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])],
    )


def _went_back(repository: Repository, said: str, lost: Sequence[str]) -> HistoryLost:
    name = repository.name
    return HistoryLost(
        f"the catalog of {name} is older than its namespace: {said}",
        why="a catalog that was restored from an older copy does not know what was written since, and all of"
        " that would look like garbage",
        fix="restore a newer copy of the catalog; or bring back the commits that the namespace still has, and"
        f" accept the rest as lost, with 'ebb lake recover {name}', then create lost tags again and plan",
        details=list(lost[:MOST_NAMED]),
    )
