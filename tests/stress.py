"""Writers and reapers at work on one repository at once, and a look afterwards whether all came out right."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from ebbtide.core.errors import EbbtideError, NotFound, Refused
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import ENTRIES, read_metarange, read_range
from ebbtide.targets.lake.reaper import Reaped, Reaper, ReapOptions, StoreRemover
from ebbtide.targets.repository.model import COMMITTED, STAGED

REPO = "lake"
KEYS = 12
"""Few keys, so that writers meet."""
LEAST = 100
"""So many operations there are at least, however little of them the machine does in the time."""
AT_ONCE = ReapOptions(grace=timedelta(0), lease=timedelta(0), batch=20)


class _Killed(BaseException):
    """A reaper dies, after its fence and before the end of its deletes."""


class _Mortal:
    """A remover that dies now and then, half-way."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._real = StoreRemover()

    def remove(self, target, store, addresses):
        """Remove, or die after some."""
        if self._chance.random() < 0.1:
            self._real.remove(target, store, addresses[: len(addresses) // 2])
            raise _Killed
        return self._real.remove(target, store, addresses)


@dataclass
class Stressed:
    """What happened, and what was wrong in the end."""

    seconds: float = 0.0
    operations: Counter[str] = field(default_factory=Counter)
    reaped: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    referenced: int = 0
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    waiting: int = 0

    def __str__(self) -> str:
        """Say it in a few lines."""
        done = sum(self.operations.values())
        each = ", ".join(f"{name} {count}" for name, count in sorted(self.operations.items()))
        gone = ", ".join(f"{count} {name}" for name, count in sorted(self.reaped.items()))
        return (
            f"{self.seconds:.1f} s, {done} operations, {done / self.seconds:.0f} a second ({each})\n"
            f"reaped: {gone}; reapers killed: {self.kills}\n"
            f"{self.referenced} objects are referenced; lost {len(self.lost)}, left {len(self.left)},"
            f" still in the queue {self.waiting}"
        )


class Stress:
    """Runs writers and reapers, each with a catalog of its own, for a while."""

    def __init__(self, open_catalog: Callable[[], Catalog], namespace: str, seed: int) -> None:
        self._open = open_catalog
        self._seed = seed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.found = Stressed()
        self._first = open_catalog()
        self._first.create_repository(REPO, namespace)

    def run(self, seconds: float, writers: int, reapers: int) -> Stressed:
        """Let them work, then finish the reaping and compare the store with the catalog."""
        began = time.monotonic()
        with ThreadPoolExecutor(writers + reapers) as pool:
            works = [pool.submit(self._write, number) for number in range(writers)]
            works += [pool.submit(self._reap, number) for number in range(reapers)]
            self._stop.wait(seconds)
            while sum(self.found.operations.values()) < LEAST and not any(work.done() for work in works):
                self._stop.wait(0.05)
            self._stop.set()
            for work in works:
                work.result()
        self.found.seconds = time.monotonic() - began
        self._check()
        return self.found

    def _write(self, number: int) -> None:
        """Do one thing after the other, on main and on a branch of one's own."""
        writer = _Writer(self._open(), f"b{number}", random.Random(f"{self._seed}/{number}"))
        while not self._stop.is_set():
            name = writer.act()
            with self._lock:
                self.found.operations[name] += 1

    def _reap(self, number: int) -> None:
        """Reap batch after batch; one that is killed is followed by another."""
        chance = random.Random(f"{self._seed}/reaper/{number}")
        catalog = self._open()
        target = catalog.reclaim_target(REPO)
        while not self._stop.is_set():
            done = Reaped(REPO)
            try:
                while Reaper(catalog, AT_ONCE, _Mortal(chance)).reap_batch(target, done):
                    pass
            except _Killed:
                with self._lock:
                    self.found.kills += 1
            with self._lock:
                self.found.reaped.update(done.outcomes)

    def _check(self) -> None:
        """Nothing that is referenced is missing, and nothing else is there."""
        catalog = self._first
        target = catalog.reclaim_target(REPO)
        last = Reaper(catalog, AT_ONCE).reap(target)
        self.found.reaped.update(last.outcomes)
        needed = referenced(catalog)
        there = stored(catalog)
        self.found.referenced = len(needed)
        self.found.lost = sorted(needed - there)
        self.found.left = sorted(there - needed)
        self.found.waiting = sum(1 for _ in catalog.reclaim_queue(target))


class _Writer:
    """Somebody who does something at random, and takes a refusal for an answer."""

    def __init__(self, catalog: Catalog, branch: str, chance: random.Random) -> None:
        self._catalog, self._own, self._chance = catalog, branch, chance
        catalog.create_branch(REPO, branch, "main")
        self._acts: tuple[tuple[str, int], ...] = (
            ("upload", 30),
            ("copy", 12),
            ("move", 12),
            ("delete", 12),
            ("commit", 6),
            ("reset", 6),
            ("link", 8),
            ("copy_data", 4),
            ("remake", 2),
            ("import_one", 2),
        )

    def act(self) -> str:
        """Do something; give its name, and how it ended if not well."""
        names, weights = zip(*self._acts, strict=True)
        name = self._chance.choices(names, weights)[0]
        branch = self._chance.choice(["main", self._own])
        try:
            getattr(self, f"_{name}")(branch)
        except (NotFound, Refused):
            return f"{name} refused"
        except EbbtideError as broken:
            raise AssertionError(f"{name} on {branch}: {broken}") from broken
        return name

    def _key(self) -> str:
        return f"k{self._chance.randrange(KEYS):02}"

    def _upload(self, branch: str) -> None:
        self._catalog.upload(REPO, branch, self._key(), b"x")

    def _copy(self, branch: str) -> None:
        self._catalog.copy(REPO, branch, self._key(), self._key())

    def _copy_data(self, branch: str) -> None:
        self._catalog.copy(REPO, self._own, self._key(), self._key(), source_ref="main")

    def _move(self, branch: str) -> None:
        self._catalog.move(REPO, branch, self._key(), self._key())

    def _delete(self, branch: str) -> None:
        self._catalog.delete(REPO, branch, self._key())

    def _commit(self, branch: str) -> None:
        self._catalog.commit(REPO, branch, "m")

    def _reset(self, branch: str) -> None:
        self._catalog.reset(REPO, branch, self._chance.choice(["k0", None]))

    def _link(self, branch: str) -> None:
        key = self._key()
        given = self._catalog.get_physical_address(REPO, branch, key)
        self._catalog.store(REPO).write(given.address, b"x")
        self._catalog.link_physical_address(REPO, branch, key, given.token, size=1)

    def _remake(self, branch: str) -> None:
        self._catalog.delete_branch(REPO, self._own)
        self._catalog.create_branch(REPO, self._own, "main")

    def _import_one(self, branch: str) -> None:
        entry = self._catalog.stat(REPO, branch, self._key())
        row = {"key": "z", "address": entry.address, "created": entry.created, "size": 1, "checksum": ""}
        table = pa.Table.from_pylist([row], schema=ENTRIES)
        self._catalog.import_entries(REPO, self._own, [table], "import")


def referenced(catalog: Catalog) -> set[str]:
    """Give all that commits and staging refer to."""
    snapshot, store = catalog.snapshot(REPO), catalog.store(REPO)
    pairs = {(COMMITTED, commit.metarange_id) for commit in snapshot.commits.values()}
    pairs |= {(STAGED, staged.metarange_id) for staged in snapshot.staged}
    ranges = {(folder, info) for folder, one in pairs for info in read_metarange(store, folder, one)}
    return {
        address
        for folder, info in ranges
        for address in read_range(store, folder, info, ["address"]).column("address").to_pylist()
    }


def stored(catalog: Catalog) -> set[str]:
    """List the data objects in the store."""
    return {key for batch in catalog.store(REPO).list("repos/") for key in batch.column("key").to_pylist()}
