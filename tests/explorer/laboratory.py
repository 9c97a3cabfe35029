"""A real catalog on SQLite and a real folder, with a boundary before every transaction and every request."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from tests.explorer.stepping import boundary, current, seen

from ebbtide.core.errors import NotFound
from ebbtide.storage.store import DeleteRequest, DeleteResult, Store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.partitions import branch_path
from ebbtide.targets.lake.catalog.ranges import METARANGES, read_metarange, read_range
from ebbtide.targets.repository.model import COMMITTED

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_COUNTERS = {"sequence", "seq"}
"""Columns that count changes; nothing that an actor does depends on them."""
_METADATA = "_lakefs/"
_STATE = {
    "staged": "SELECT b.name, s.key, s.layer, s.tombstone, s.address FROM catalog_staging s"
    " JOIN catalog_branch_heads b ON b.id = s.branch_id",
    "branch": "SELECT name, head, layer, epoch FROM catalog_branch_heads",
    "commit": "SELECT id, metarange_id FROM catalog_commits",
    "token": "SELECT address, used, expires FROM catalog_tokens",
    "queue": "SELECT address, state, fence, again, tries FROM catalog_reclaim",
    "shared": "SELECT address, committed FROM catalog_shared",
    "import": "SELECT metarange_id FROM catalog_imports",
    "note": "SELECT metarange_id, kind FROM catalog_metaranges",
}


class _Numbered:
    """Gives out addresses that are the same in every replay: by actor, and by how many it had before."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def address(self, repo_uid: str, branch_id: str) -> str:
        """Give the next address of this actor."""
        actor = current()
        name = actor.name if actor else "before"
        self.given[name] = self.given.get(name, 0) + 1
        uid = hashlib.md5(f"{name}#{self.given[name]}".encode(), usedforsecurity=False).hexdigest()
        return f"{branch_path(repo_uid, branch_id)}{1:018d}_{0:012x}/{uid}"


class _Cursor(sqlite3.Cursor):
    """Tells the actor what it reads."""

    def fetchall(self) -> list[Any]:
        """Give the rest."""
        return self._told(super().fetchall())

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """Give some."""
        return self._told(super().fetchmany(size or self.arraysize))

    def fetchone(self) -> Any:
        """Give one."""
        row = super().fetchone()
        self._told([row] if row is not None else [])
        return row

    def _told(self, rows: list[Any]) -> list[Any]:
        kept = [place for place, column in enumerate(self.description or ()) if column[0] not in _COUNTERS]
        seen([tuple(row[place] for place in kept) for row in rows])
        return rows


class _Connection(sqlite3.Connection):
    """Opens cursors that tell."""

    def cursor(self, factory: Any = _Cursor) -> Any:
        """Open one."""
        return super().cursor(factory)


class _SteppingDatabase:
    """The catalog's database with a boundary at the begin of every transaction."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.writer: object = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction."""
        boundary("read", "a read transaction")
        with self.real.reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction; the explorer lets nobody begin one while another is open."""
        boundary("write", "a write transaction")
        try:
            with self.real.writing() as connection:
                self.writer = current()
                yield connection
        finally:
            self.writer = None

    def close(self) -> None:
        """Close it."""
        self.real.close()


class _SteppingStore:
    """
    A store with a boundary before every request about a data object.

    Two kinds need none. Metadata is immutable, named by its content and never deleted: when it is read or
    written makes no difference to anybody. And an object under an address that nobody knows yet is seen by
    nobody: a crash before its write is one before the operation, one after it is one at the next boundary.
    """

    def __init__(self, real: Store, name: Callable[[str], str]) -> None:
        self._real, self._name = real, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def stat(self, key: str) -> Any:
        """Describe an object."""
        return self._asked("look at", key, lambda: self._real.stat(key))

    def read(self, key: str) -> bytes:
        """Read an object."""
        return bytes(self._asked("read", key, lambda: self._real.read(key)))

    def copy(self, source: str, target: str) -> None:
        """Copy an object."""
        self._asked("copy", source, lambda: self._real.copy(source, target))

    def delete(self, requests: Sequence[DeleteRequest]) -> Sequence[DeleteResult]:
        """Delete objects, one after the other."""
        return [
            result
            for request in requests
            for result in self._asked("delete", request.key, lambda one=request: self._real.delete([one]))
        ]

    def _asked(self, verb: str, key: str, ask: Callable[[], Any]) -> Any:
        if key.startswith(_METADATA):
            return ask()
        boundary("store", f"{verb} {self._name(key)}")
        try:
            answer = ask()
        except NotFound:
            seen("not there")
            raise
        seen("there")
        return answer


@dataclass(frozen=True)
class Moment:
    """Everything that is stored between two steps."""

    rows: frozenset[tuple[object, ...]]
    stored: frozenset[str]
    referenced: frozenset[str]
    """What entries point at: staged in any layer, or in any commit."""

    @property
    def dangling(self) -> frozenset[str]:
        """Entries' objects that are not there."""
        return self.referenced - self.stored


class Laboratory:
    """One repository whose every state can be looked at, and which can be put back to how it was."""

    def __init__(self, folder: Path, kind: type[Catalog] = Catalog) -> None:
        self._file = folder / "catalog.db"
        self.ahead: dict[str, timedelta] = {}
        """By how much the clocks of some actors are ahead; the explorer's own is as the fastest."""
        url = f"sqlite:///{self._file}"
        self.catalog = kind(url, clock=self._clock, range_keys=4, sleep=lambda _: None)
        engine = self.catalog._database._engine
        engine.dispose()
        event.listen(engine, "do_connect", _with_telling_cursors)
        event.listen(engine, "connect", _without_sync)
        self._numbers = _Numbered()
        self.catalog._partitions = self._numbers  # type: ignore[assignment]
        self.catalog.create_repository("lake", str(folder / "lake"))
        self.target = self.catalog.reclaim_target("lake")
        self._names: dict[str, str] = {}
        self._committed: dict[str, frozenset[str]] = {}
        self._before: sqlite3.Connection | None = None
        self._objects: dict[str, bytes] = {}
        self._metaranges: set[str] = set()
        self._given: dict[str, int] = {}
        self.token = ""
        self.imported: Any = None

    def freeze(self) -> None:
        """Take what is there now for the state that all runs begin from, and put the boundaries in."""
        self.real_store = self.catalog.reclaim_store(self.target)
        self._before = sqlite3.connect(":memory:", check_same_thread=False)
        with sqlite3.connect(self._file) as found:
            found.backup(self._before)
        self._objects = {key: self.real_store.read(key) for key in self._stored()}
        self._metaranges = self._listed(METARANGES)
        self._given = dict(self._numbers.given)
        self.catalog._content(self.target.namespace).store = _SteppingStore(  # type: ignore[assignment]
            self.real_store, self.name
        )
        self.database = _SteppingDatabase(self.catalog._database)
        self.catalog._database = self.database  # type: ignore[assignment]
        self._reader = sqlite3.connect(self._file, check_same_thread=False)
        self.frozen = self.look()

    def restore(self) -> None:
        """Put everything back to how it was frozen."""
        assert self._before is not None
        with sqlite3.connect(self._file) as found:
            self._before.backup(found)
        found.close()
        # A metarange that the catalog has no note of is a commit that it lost.
        for key in (self._stored() - set(self._objects)) | (self._listed(METARANGES) - self._metaranges):
            self.real_store.delete([DeleteRequest(key)])
        for key in set(self._objects) - self._stored():
            self.real_store.write(key, self._objects[key])
        self._numbers.given = dict(self._given)

    def look(self) -> Moment:
        """Look at everything that is stored."""
        rows = {
            (kind, *(self.name(value) for value in row))
            for kind, question in _STATE.items()
            for row in self._reader.execute(question)
        }
        staged = self._reader.execute("SELECT address FROM catalog_staging WHERE NOT tombstone").fetchall()
        metaranges = self._reader.execute("SELECT metarange_id FROM catalog_commits").fetchall()
        referenced = {row[0] for row in staged}.union(*(self._held(row[0]) for row in metaranges))
        return Moment(
            frozenset(rows),
            frozenset(map(self.name, self._stored())),
            frozenset(map(self.name, referenced)),
        )

    def name(self, value: Any) -> Any:
        """Give an address a short name: who wrote it, and which of theirs it is."""
        if not isinstance(value, str) or not value.startswith("repos/"):
            return value[:10] if isinstance(value, str) else value
        if value not in self._names:
            names = {
                hashlib.md5(f"{who}#{n}".encode(), usedforsecurity=False).hexdigest(): f"{who}#{n}"
                for who, most in self._numbers.given.items()
                for n in range(1, most + 1)
            }
            self._names[value] = names.get(value.rpartition("/")[2], value)
        return self._names[value]

    def close(self) -> None:
        """Close what is open."""
        self._reader.close()
        self.catalog.close()

    def _clock(self) -> datetime:
        actor = current()
        if actor is None:
            return max((NOW + ahead for ahead in self.ahead.values()), default=NOW)
        return NOW + self.ahead.get(actor.name, timedelta(0))

    def _stored(self) -> set[str]:
        return self._listed("repos/")

    def _listed(self, prefix: str) -> set[str]:
        found: set[str] = set()
        for batch in self.real_store.list(prefix):
            found.update(batch.column("key").to_pylist())
        return found

    def _held(self, metarange_id: str) -> frozenset[str]:
        if metarange_id not in self._committed:
            store = self.real_store
            self._committed[metarange_id] = frozenset(
                address
                for info in read_metarange(store, COMMITTED, metarange_id)
                for address in read_range(store, COMMITTED, info, ["address"]).column("address").to_pylist()
            )
        return self._committed[metarange_id]


def _with_telling_cursors(
    _dialect: object, _record: object, _args: object, parameters: dict[str, Any]
) -> None:
    parameters["factory"] = _Connection


def _without_sync(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")
