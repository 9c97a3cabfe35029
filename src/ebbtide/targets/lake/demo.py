"""A lake for the demo: sixty simulated days of uploads, overwrites, branches, merges and copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from ebbtide.core.errors import EbbtideError
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.repository.policy import LakePolicy, ReferrerKind, reference_lapse

DAYS = 60
REPOSITORY = "demo"
POLICY = """{
  "raw": {"prefix": "raw/", "days": 30, "enabled": true},
  "tmp": {"prefix": "tmp/", "days": 3, "enabled": true, "branch_days": {"main": 30}}
}
"""


class DemoClock:
    """A clock that the builder sets, so that sixty days pass in seconds."""

    def __init__(self, start: datetime) -> None:
        self.now = start

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


@dataclass(frozen=True)
class Checked:
    """What the independent check found."""

    needed: int
    readable: int
    missing: tuple[str, ...]


def build_lake(catalog: Catalog, clock: DemoClock, namespace: str, objects: int) -> Iterator[str]:
    """Fill a repository day by day, and yield messages about it."""
    start = clock.now
    a_day = -(-objects // DAYS)
    catalog.create_repository(REPOSITORY, namespace)
    for day in range(DAYS):
        clock.now = start + timedelta(days=day, hours=6)
        catalog.upload_many(REPOSITORY, "main", _main_objects(day, a_day))
        if day % 7 == 3:
            # A copy on the same branch shares the address: both paths must lapse before the object may go.
            for part in range(20):
                target = f"tables/kept/day-{day:02d}-{part:05d}"
                catalog.copy(REPOSITORY, "main", f"raw/day={day:02d}/{part:05d}.parquet", target)
        catalog.commit(REPOSITORY, "main", f"day {day}")
        if day == 2:
            catalog.create_tag(REPOSITORY, "first-release", "main")
            yield "day 2: tagged first-release (a tag keeps what it reaches)"
        if day % 6 == 5:
            yield _feature_branch(catalog, clock, start, day, a_day // 10)
    clock.now = start + timedelta(days=DAYS)


def _main_objects(day: int, count: int) -> Iterator[tuple[str, bytes]]:
    raw, tmp, tables = count * 6 // 10, count * 3 // 10, count - count * 6 // 10 - count * 3 // 10
    for part in range(raw):
        yield f"raw/day={day:02d}/{part:05d}.parquet", b"raw %d %d " % (day, part) * 20
    for part in range(tmp):
        yield f"tmp/day={day:02d}/{part:05d}.json", b"tmp %d %d " % (day, part) * 10
    for part in range(tables):
        # The same keys every day: each upload overwrites yesterday's object.
        yield f"tables/current/{part:05d}.parquet", b"table %d %d " % (day, part) * 15


def _feature_branch(catalog: Catalog, clock: DemoClock, start: datetime, day: int, count: int) -> str:
    name = f"feature-{day:02d}"
    clock.now = start + timedelta(days=day, hours=12)
    catalog.create_branch(REPOSITORY, name, "main")
    tries = ((f"tmp/{name}/{part:05d}.json", b"try %d " % part * 30) for part in range(count))
    catalog.upload_many(REPOSITORY, name, tries)
    catalog.upload(REPOSITORY, name, f"tables/from-{name}", b"result of " + name.encode())
    catalog.commit(REPOSITORY, name, f"experiment {name}")
    if day % 12 == 5:
        catalog.merge(REPOSITORY, name, "main", f"merge {name}")
        catalog.delete_branch(REPOSITORY, name)
        return f"day {day}: {name} was merged"
    if day % 18 == 17:
        catalog.delete_branch(REPOSITORY, name)
        return f"day {day}: {name} was deleted"
    return f"day {day}: {name} was left open"


def check_needed(catalog: Catalog, policy: LakePolicy, now: datetime) -> Checked:
    """
    Prove, without any of the pipeline's code, that what branch heads still need is there.

    Every entry of every head whose reference has not lapsed is read in full and its size compared.
    """
    store = catalog.store(REPOSITORY)
    checked: dict[str, bool] = {}
    missing = []
    for branch, head in catalog.branches(REPOSITORY).items():
        for entry in catalog.ls(REPOSITORY, head):
            if checked.get(entry.address):
                continue
            if reference_lapse(policy, ReferrerKind.BRANCH, branch, entry.key, entry.created) <= now:
                continue
            checked[entry.address] = _is_readable(store, entry.address, entry.size)
            if not checked[entry.address]:
                missing.append(f"{entry.key} on {branch}")
    return Checked(len(checked), sum(checked.values()), tuple(missing))


def _is_readable(store: Store, address: str, size: int) -> bool:
    try:
        return len(store.read(address)) == size
    except EbbtideError:
        return False
