"""What a run must find: the oracle's judgement, and what the oracle knows nothing of, open uploads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tests.machine.checking import reached
from tests.machine.repository import Repository

from ebbtide.core.decision import CollectorName
from ebbtide.storage.address import is_inside
from ebbtide.targets.repository.oracle import judge_world
from ebbtide.targets.repository.rules import RepositoryRules
from ebbtide.targets.repository.world_document import WorldDocument


@dataclass(frozen=True)
class Expected:
    """What the collectors of a run must say of a repository at one moment."""

    world: WorldDocument
    now: datetime
    deadlines: Mapping[str, datetime]
    found: Mapping[str, CollectorName]
    """What is due, and who found it."""

    def uncommitted(self) -> set[str]:
        """Give the garbage that is due: what a clean run finds."""
        return {address for address, finder in self.found.items() if finder is CollectorName.UNCOMMITTED}

    @property
    def held(self) -> set[str]:
        """Give what is touched and not due."""
        return self.deadlines.keys() - self.found.keys()


def expected(repo: Repository, rules: RepositoryRules, now: datetime) -> Expected:
    """Ask the oracle; an object that nothing names is held until its upload token has expired, too."""
    world = repo.world(rules)
    judged = judge_world(world, now)
    deadlines = dict(judged.deadlines)
    for address in (uploads := repo.open_uploads()).keys() & deadlines.keys() - reached(world):
        deadlines[address] = max(deadlines[address], uploads[address])
    found = {
        address: finder
        for address, finder in judged.collectors.items()
        if deadlines[address] <= now and is_inside(address) and address not in repo.buried
    }
    return Expected(world, now, deadlines, found)
