"""
A rehearsed run: apply, step by step, with the real gate and the real store, and the oracle for a verifier.

Every call of `advance` is one durable step, so that writers, or a crash, can come between any two of them.
It does what `ebbtide.engine.apply` does, without Spark; that engine itself runs in the engine machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tests.machine.checking import kept
from tests.machine.repository import Repository

from ebbtide.core.decision import CollectorName
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.repository.rules import RepositoryRules
from ebbtide.targets.repository.sweeps import BranchState, save_state

BATCH = 2
"""How many objects a batch has; with few, there is something between the batches."""
_OPEN_TRIES = 2


class Stage(StrEnum):
    """How far a batch has come."""

    OPEN = "open"
    LOOKED = "looked"
    CLOSED = "closed"
    DELETED = "deleted"


@dataclass
class Plan:
    """What is durable of a run: what it may delete, and which batches were begun and finished."""

    number: int
    rules: RepositoryRules
    now: datetime
    found: Mapping[str, CollectorName]
    """What may be deleted, and who found it."""
    batches: list[tuple[str, ...]]
    states: Mapping[str, BranchState]
    """What the next sweep may build on, if this run leaves nothing alone."""
    left_alone: bool = False
    begun: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)

    @property
    def holder(self) -> str:
        """The name by which the run closes the gate."""
        return f"{self.number}@rehearsal"

    @property
    def interrupted(self) -> set[int]:
        """The batches of which nobody knows how far they came."""
        return self.begun - self.finished

    @property
    def next_wave(self) -> int | None:
        """The first batch that is not finished."""
        return next((batch for batch in range(len(self.batches)) if batch not in self.finished), None)


def planned(
    number: int,
    rules: RepositoryRules,
    now: datetime,
    found: Mapping[str, CollectorName],
    states: Mapping[str, BranchState],
) -> Plan:
    """Deal what is due into batches."""
    due = sorted(found)
    batches = [tuple(due[start : start + BATCH]) for start in range(0, len(due), BATCH)]
    return Plan(number, rules, now, found, batches, states)


@dataclass
class Rehearsal:
    """A process that applies a plan; all that is in here is lost in a crash."""

    repo: Repository
    plan: Plan
    kept: Mapping[CollectorName, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    commits: frozenset[str] = frozenset()
    """The commits that there were when it looked."""
    stage: Stage = Stage.OPEN
    tries: int = 0
    looked_at: int = -1

    @property
    def is_stale(self) -> bool:
        """Tell whether the rules are no longer the plan's."""
        rules = self.plan.rules
        other_policy = rules.lifecycle is not None and rules.lifecycle != self.repo.policy
        other_retention = rules.retention is not None and rules.retention != self.repo.retention
        return other_policy or other_retention

    def advance(self) -> str:
        """Take the next step and say what it was."""
        batch = self.plan.next_wave
        if self.is_stale and self.stage is not Stage.DELETED:
            self._open()
            return "stale"
        if batch is None:
            self._open()
            self._save_states()
            return "succeeded"
        steps = {
            Stage.OPEN: self._look,
            Stage.LOOKED: self._close,
            Stage.CLOSED: self._delete,
            Stage.DELETED: self._finish,
        }
        return steps[self.stage](batch)

    def _look(self, _: int) -> str:
        """Verify with the gate open, unless an interrupted batch or busy writers want it closed."""
        if self.plan.interrupted or self.tries == _OPEN_TRIES:
            self.repo.catalog.close_fence(self.repo.name, self.plan.holder)
        self._verify()
        self.stage = Stage.LOOKED
        return "looked"

    def _close(self, _: int) -> str:
        sequence = self.repo.catalog.close_fence(self.repo.name, self.plan.holder)
        if sequence != self.looked_at and not self.plan.interrupted and self.tries < _OPEN_TRIES:
            self._open()
            self.stage, self.tries = Stage.OPEN, self.tries + 1
            return "looks again"
        self.stage = Stage.CLOSED
        return "closed"

    def _delete(self, batch: int) -> str:
        self.plan.begun.add(batch)
        items = [address for address in self.plan.batches[batch] if not self._is_kept(address)]
        self._check_ripe(items)
        self._check_nobody_came(items)
        results = self.repo.store.delete([DeleteRequest(address) for address in items])
        assert len(items) == sum(result.outcome.is_gone for result in results)
        self.repo.gone.update(items)
        self.stage = Stage.DELETED
        return "deleted" if len(items) == len(self.plan.batches[batch]) else "deleted, some are needed again"

    def _finish(self, batch: int) -> str:
        self.repo.buried.update(self.repo.gone.intersection(self.plan.batches[batch]))
        self.plan.left_alone |= any(
            self._is_kept(address) for address in self.plan.batches[batch] if address not in self.repo.gone
        )
        self.plan.finished.add(batch)
        if not self.plan.interrupted:
            self._open()
        self.stage, self.tries = Stage.OPEN, 0
        return "finished"

    def _verify(self) -> None:
        self.looked_at = self.repo.catalog.sequence(self.repo.name)
        document = self.repo.document()
        self.kept = kept(document, self.plan.rules, self.plan.now)
        self.commits = frozenset(commit.id for commit in document.commits)

    def _is_kept(self, address: str) -> bool:
        """Tell whether something keeps an item from the collector that found it."""
        return address in self.kept[self.plan.found[address]]

    def _check_nobody_came(self, items: list[str]) -> None:
        """
        Make sure that the gate has kept its promise: nothing refers to an item that did not when it closed.

        Only one thing may come: the commits of a branch or tag that is deleted now dangle, and rules may
        treat them otherwise. For retention they are no new commits, for lifecycle nobody can reach them by
        a name. What nothing referred to at all, nothing may refer to now.
        """
        late = kept(self.repo.document(), self.plan.rules, self.plan.now)
        excused = {
            CollectorName.LIFECYCLE: frozenset({"dangling"}),
            CollectorName.UNCOMMITTED: frozenset[str](),
            CollectorName.RETENTION: self.commits,
        }
        for address in items:
            finder = self.plan.found[address]
            assert late[finder].get(address, frozenset()) <= excused[finder], address

    def _check_ripe(self, items: list[str]) -> None:
        """Make sure that nobody is uploading an item, and no garbage is younger than the grace period."""
        uploads, sweeps = self.repo.open_uploads(), self.plan.rules.uncommitted
        for address in items:
            assert address not in uploads, address
            if sweeps and self.plan.found[address] is CollectorName.UNCOMMITTED:
                assert self.repo.written[address] + sweeps.grace <= self.repo.clock(), address

    def _save_states(self) -> None:
        """Leave what the next sweep may build on, as a run does that has settled everything."""
        for path, state in self.plan.states.items() if not self.plan.left_alone else ():
            save_state(self.repo.store, path, state)

    def _open(self) -> None:
        self.repo.catalog.open_fence(self.repo.name, self.plan.holder)
