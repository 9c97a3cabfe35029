"""
A rehearsed sweep: both flows of seed 001 in plain Python, with the real survey, states and scope.

It lists what the survey names and subtracts by sets, so it needs no Spark; what the pipeline makes of the
same repository is asked by the engine machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from tests.machine.checking import reached
from tests.machine.repository import Repository

from ebbtide.targets.lake.catalog.partitions import object_pattern
from ebbtide.targets.lake.catalog.ranges import read_metarange, read_range
from ebbtide.targets.lake.repository import CatalogLayout, CatalogRepository
from ebbtide.targets.repository.live_objects import Scope
from ebbtide.targets.repository.model import STAGED
from ebbtide.targets.repository.rules import SweepRules
from ebbtide.targets.repository.sweeps import BranchState, Survey, Sweep, survey
from ebbtide.targets.repository.uncommitted import states_after
from ebbtide.targets.repository.world_document import WrittenObject


@dataclass(frozen=True)
class Swept:
    """What a sweep found."""

    deadlines: Mapping[str, datetime]
    """Until when each unreferenced object is held."""
    states: Mapping[str, BranchState]
    """What the next run may build on, if this one succeeds."""
    is_clean: bool
    missing: frozenset[str]
    """What is referenced, ought to be listed and is not there: a real run would stop at it."""

    def due(self, now: datetime) -> set[str]:
        """Give what may go."""
        return {address for address, deadline in self.deadlines.items() if deadline <= now}


@dataclass(frozen=True)
class Looked:
    """What a sweep reads before the snapshot."""

    survey: Survey
    listed: Mapping[str, WrittenObject]
    uploads: Mapping[str, datetime]


def rehearsed_sweep(repo: Repository, rules: SweepRules, now: datetime, run_id: int) -> Swept:
    """Sweep while nobody writes."""
    return subtract(repo, look(repo, rules), rules, now, run_id)


def look(repo: Repository, rules: SweepRules) -> Looked:
    """List what is stored as far as the last run demands it, and note which uploads are open."""
    found = survey(CatalogRepository(repo.catalog, repo.name), rules)
    listed = {address: one for address, one in repo.objects().items() if _is_listed(address, found)}
    return Looked(found, listed, repo.open_uploads())


def subtract(repo: Repository, looked: Looked, rules: SweepRules, now: datetime, run_id: int) -> Swept:
    """Subtract what is referenced now, and say what the next run may build on."""
    found, stored = looked.survey, repo.objects()
    snapshot, referenced = repo.catalog.snapshot(repo.name), reached(repo.document())
    for sweep in found.sweeps:
        assert sweep.newest_commit is None or sweep.newest_commit in snapshot.commits
    formerly = {address for sweep in found.sweeps for address in _formerly_staged(repo, sweep)}
    old = {address: stored[address] for address in formerly & stored.keys()}
    garbage = {address: one for address, one in {**looked.listed, **old}.items() if address not in referenced}
    deadlines = {a: _deadline(one, looked.uploads.get(a), rules) for a, one in garbage.items()}
    waiting = _waiting(deadlines, now, repo.uid)
    longest = max(rules.grace, repo.catalog.token_life)
    states = states_after(CatalogLayout(repo.uid), found, repo.clock(), snapshot, waiting, run_id, longest)
    missing = frozenset(_within(found, repo.uid, sorted(referenced)) - stored.keys() - repo.buried)
    return Swept(deadlines, states, found.is_clean, missing)


def _is_listed(address: str, found: Survey) -> bool:
    return any(address.startswith(s.path + name + "/") for s in found.sweeps for name in s.partitions)


def _formerly_staged(repo: Repository, sweep: Sweep) -> Iterator[str]:
    """Give what the last run saw staged on the branch's own path."""
    if sweep.before is None or sweep.before.gc_commit is None:
        return
    for info in read_metarange(repo.store, STAGED, sweep.before.gc_commit):
        addresses = read_range(repo.store, STAGED, info).column("address").to_pylist()
        yield from (address for address in addresses if address.startswith(sweep.path))


def _deadline(found: WrittenObject, expires: datetime | None, rules: SweepRules) -> datetime:
    ripe = found.last_modified + rules.grace
    return max(ripe, expires) if expires else ripe


def _waiting(deadlines: Mapping[str, datetime], now: datetime, uid: str) -> dict[str, str]:
    """Find, for each branch, the oldest partition with garbage that may not go yet."""
    waiting: dict[str, str] = {}
    for address, deadline in deadlines.items():
        place = re.match(object_pattern(uid), address)
        if place and deadline > now:
            waiting[place[1]] = max(waiting.get(place[1], ""), place[2])
    return waiting


def _within(found: Survey, uid: str, addresses: list[str]) -> set[str]:
    scope = Scope.of(found, CatalogLayout(uid)).within(pa.array(addresses, pa.string()))
    return {address for address, within in zip(addresses, scope, strict=True) if within}
