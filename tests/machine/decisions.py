"""
The decision machine: a real catalog, real gates and deletes, and no Spark, so that thousands are cheap.

Its plans are worlds of a history. Whether Spark, in full and step by step, agrees with the oracle about them
is asked afterwards, for all histories of many machines at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.machine.checking import check_heads, check_readable, perform
from tests.machine.drawing import Interlude, interludes, kinds, many_keys, policies, some_branches
from tests.machine.expecting import Expected, expected
from tests.machine.history import History
from tests.machine.kinds import Kind
from tests.machine.numbering import NumberedAddresses
from tests.machine.operations import CreateBranch, Operation, Upload
from tests.machine.rehearsal import Plan, Rehearsal, planned
from tests.machine.repository import Repository
from tests.machine.sweeping import Swept, rehearsed_sweep
from tests.services.lake import FIRST_DAY, SettableClock
from tests.worlds import retentions

from ebbtide.core.errors import Busy
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.repository.model import RemovedObject
from ebbtide.targets.repository.policy import PolicyRun

OnHistory = Callable[[History], None]


@dataclass
class Scene:
    """One catalog for many machines, each of which has a repository of its own in it."""

    folder: Path
    clock: SettableClock = field(default_factory=SettableClock)
    repositories: dict[str, Repository] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the catalog."""
        self.addresses = NumberedAddresses(self.clock)
        self.catalog = Catalog(
            f"sqlite:///{self.folder}/catalog.db",
            clock=self.clock,
            removed_items=self,
            range_keys=3,
            fence_wait=timedelta(0),
        )

    def lookup(self, repository: str, address: str) -> RemovedObject | None:
        """Say what became of an address, as the ledger does for real runs."""
        if address not in self.repositories[repository].buried:
            return None
        return RemovedObject(address, self.clock(), 1, (), restorable=False)

    def repository(self) -> Repository:
        """Make a new, empty repository, and let it be the first day again."""
        self.clock.now = FIRST_DAY
        name = f"r{len(self.repositories)}"
        self.catalog.create_repository(name, str(self.folder / name))
        self.repositories[name] = Repository(self.catalog, name, self.clock, self.addresses)
        return self.repositories[name]


class DecisionMachine(RuleBasedStateMachine):
    """Writers, planners and a rehearsed apply on one repository, in any order."""

    scene: ClassVar[Scene]
    on_history: ClassVar[OnHistory]

    def __init__(self) -> None:
        super().__init__()
        self.repo = self.scene.repository()
        self.history = History()
        self.number = 0
        self.plans: list[Plan] = []
        self.run: Rehearsal | None = None

    @initialize(
        rules=policies,
        retained=retentions(),
        keys=many_keys,
        branches=some_branches,
        later=st.integers(0, 4),
    )
    def begin(
        self,
        rules: dict[str, object],
        retained: dict[str, object],
        keys: tuple[str, ...],
        branches: list[str],
        later: int,
    ) -> None:
        """Begin with rules, a few branches and a first commit that may have become old."""
        self.repo.set_rules(rules)
        self.repo.set_retention(retained)
        first: list[Operation] = [Upload("main", keys, commit=True), *(CreateBranch(b, 0) for b in branches)]
        for operation in first:
            self._write(operation)
        self.repo.clock.now += timedelta(days=later)

    @rule(
        before=interludes(8),
        kind=kinds,
        shift=st.sampled_from([0, 0, 0, 0, -1, -3, 2, 8]),
        steps=st.sampled_from([0, 1, 2, 3, 4, None]),
    )
    def plan(self, before: Interlude, kind: Kind, shift: int, steps: int | None) -> None:
        """Plan for now, for an earlier or for a later day, and begin to apply it, unless the plan is dry."""
        self._live(before)
        self._plan(kind, shift, dry=steps is None)
        self._go_on(0, steps or 0)

    @rule(
        before=interludes(4),
        kind=kinds,
        place=st.integers(0, 2),
        steps=st.integers(1, 6),
        crash=st.sampled_from([False, False, True]),
    )
    def apply(self, before: Interlude, kind: Kind, place: int, steps: int, crash: bool) -> None:  # noqa: FBT001
        """Begin, resume or go on with a run, some steps of it; then writers come, or a crash."""
        self._live(before)
        if not self.plans:
            # Not a precondition: Hypothesis may leave out the other rule, and would be left with nothing.
            self._plan(kind, 0, dry=False)
        self._go_on(place, steps)
        if crash and self.run:
            # The gate stays as it is, and the plan can be applied again.
            self.history.tell(f"crash when {self.run.stage}")
            self._count(crashes=1)
            self.run = None

    @invariant()
    def all_that_is_needed_is_readable(self) -> None:
        """Everything that a reference reaches is readable, unless a run deleted it when nothing needed it."""
        check_readable(self.repo, self.repo.document())

    def teardown(self) -> None:
        """Read every branch through the catalog, and hand the history over."""
        check_heads(self.repo)
        self.history.counts["interrupted for ever"] += self.repo.is_closed
        type(self).on_history(self.history)

    def _plan(self, kind: Kind, shift: int, *, dry: bool) -> None:
        self.number += 1
        now = self.repo.clock() + timedelta(days=shift)
        rules = kind.rules(self.repo.policy, self.repo.retention)
        wanted = expected(self.repo, rules, now)
        self.history.record(wanted.world, now)
        self._count(due=len(wanted.found), held=len(wanted.held), back=shift < 0)
        self._count(**{f"kind {kind}": 1})
        found, states = wanted.found, {}
        if rules.uncommitted is not None:
            swept = rehearsed_sweep(self.repo, rules.uncommitted, now, self.number)
            if self._is_stopped(swept):
                return
            self._check_sweep(swept, wanted)
            missed = wanted.uncommitted() - swept.due(now)
            found = {address: finder for address, finder in found.items() if address not in missed}
            states = swept.states
        if rules.lifecycle is not None:
            self.repo.runs.append(PolicyRun(self.number, now, self.repo.policy, succeeded=False))
        if (found or states) and shift <= 0 and not dry:
            self.plans.append(planned(self.number, rules, now, found, states))

    def _is_stopped(self, swept: Swept) -> bool:
        """Tell whether the preflight stops a sweep: only an interrupted run can have caused that."""
        assert swept.missing <= self.repo.gone - self.repo.buried
        self._count(**{"stopped by the preflight": bool(swept.missing)})
        return bool(swept.missing)

    def _check_sweep(self, swept: Swept, wanted: Expected) -> None:
        """Compare a sweep with the oracle: it misses only what came into a settled partition by itself."""
        due, clean = swept.due(wanted.now), wanted.uncommitted()
        assert due <= clean
        assert clean - due <= self.repo.late
        assert not swept.is_clean or clean == due
        assert swept.deadlines == {a: wanted.deadlines[a] for a in swept.deadlines}
        self._count(
            **{
                "swept clean": swept.is_clean,
                "swept optimized": not swept.is_clean,
                "garbage of optimized": 0 if swept.is_clean else len(due),
                "unseen by optimized": len(clean - due),
            }
        )

    def _go_on(self, place: int, steps: int) -> None:
        for _ in range(steps):
            if self.run is None and not self._start(place):
                return
            self._advance()

    def _start(self, place: int) -> bool:
        if not self.plans:
            return False
        plan = self.plans[-1 - place % len(self.plans)]
        holder = self.repo.catalog.fence_holder(self.repo.name)
        if holder not in (None, plan.holder):
            try:
                self.repo.catalog.close_fence(self.repo.name, plan.holder)
            except Busy:
                # Only the run that left the gate closed can open it: it is the one to go on with.
                self.history.tell("another run", "waits for the gate")
                plan = next(plan for plan in self.plans if plan.holder == holder)
            else:
                raise AssertionError("two runs have closed one gate")
        self._count(resumed=bool(plan.begun))
        self.run = Rehearsal(self.repo, plan)
        return True

    def _advance(self) -> None:
        assert self.run is not None
        ended = self.run.advance()
        self.history.tell(f"apply(plan {self.run.plan.number})", ended)
        if ended in ("succeeded", "stale"):
            self.plans.remove(self.run.plan)
            if ended == "succeeded":
                self._succeeded(self.run.plan.number)
            self.run = None

    def _succeeded(self, number: int) -> None:
        self.repo.runs = [
            replace(run, succeeded=True) if run.run_id == number else run for run in self.repo.runs
        ]

    def _live(self, interlude: Interlude) -> None:
        for operation in interlude.writes:
            self._write(operation)
        self.repo.clock.now += interlude.passes

    def _write(self, operation: Operation) -> None:
        ended = perform(self.repo, operation)
        self.history.tell(repr(operation), ended)
        self.history.counts[ended] += 1

    def _count(self, **counts: int) -> None:
        self.history.counts.update(counts)
