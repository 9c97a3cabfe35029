"""
The decision machine: a real catalog, real gates and deletes, and no Spark, so that thousands are cheap.

Its plans are worlds of a history. Whether Spark, in full and step by step, agrees with the oracle about them
is asked afterwards, for all histories of many machines at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.machine.checking import check_heads, check_readable, perform
from tests.machine.drawing import Interlude, interludes, many_keys, policies, some_branches
from tests.machine.history import History
from tests.machine.operations import CreateBranch, Operation, Upload
from tests.machine.rehearsal import Plan, Rehearsal, planned
from tests.machine.repository import NumberedAddresses, Repository
from tests.services.lake import FIRST_DAY, SettableClock

from ebbtide.errors import Busy
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.catalog.graveyard import Burial
from ebbtide.lake.lifecycle.policies import PolicyRun
from ebbtide.lake.oracle import judge_world
from ebbtide.store.address import is_inside

OnHistory = Callable[[History], None]


@dataclass
class Scene:
    """One catalog for many machines, each of which has a repository of its own in it."""

    folder: Path
    clock: SettableClock = field(default_factory=SettableClock)
    repositories: dict[str, Repository] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the catalog."""
        self.addresses = NumberedAddresses()
        self.catalog = Catalog(
            f"sqlite:///{self.folder}/catalog.db",
            clock=self.clock,
            graveyard=self,
            range_keys=3,
            gate_wait=timedelta(0),
        )

    def lookup(self, repository: str, address: str) -> Burial | None:
        """Say what became of an address, as the ledger does for real runs."""
        if address not in self.repositories[repository].buried:
            return None
        return Burial(address, self.clock(), 1, (), restorable=False)

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
        self.plans: list[Plan] = []
        self.run: Rehearsal | None = None

    @initialize(rules=policies, keys=many_keys, branches=some_branches, later=st.integers(0, 4))
    def begin(self, rules: dict[str, object], keys: tuple[str, ...], branches: list[str], later: int) -> None:
        """Begin with a policy, a few branches and a first commit that may have become old."""
        self.repo.set_rules(rules)
        first: list[Operation] = [Upload("main", keys, commit=True), *(CreateBranch(b, 0) for b in branches)]
        for operation in first:
            self._write(operation)
        self.repo.clock.now += timedelta(days=later)

    @rule(
        before=interludes(8),
        shift=st.sampled_from([0, 0, 0, 0, -1, -3, 2, 8]),
        steps=st.sampled_from([0, 1, 2, 3, 4, None]),
    )
    def plan(self, before: Interlude, shift: int, steps: int | None) -> None:
        """Plan for now, for an earlier or for a later day, and begin to apply it, unless the plan is dry."""
        self._live(before)
        self._plan(shift, dry=steps is None)
        self._go_on(0, steps or 0)

    @rule(
        before=interludes(4),
        place=st.integers(0, 2),
        steps=st.integers(1, 6),
        crash=st.sampled_from([False, False, True]),
    )
    def apply(self, before: Interlude, place: int, steps: int, crash: bool) -> None:  # noqa: FBT001
        """Begin, resume or go on with a run, some steps of it; then writers come, or a crash."""
        self._live(before)
        if not self.plans:
            # Not a precondition: Hypothesis may leave out the other rule, and would be left with nothing.
            self._plan(0, dry=False)
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

    def _plan(self, shift: int, *, dry: bool) -> None:
        now, document = self.repo.clock() + timedelta(days=shift), self.repo.document()
        self.history.record(document, now)
        judged = judge_world(document, now)
        self._count(due=len(judged.due), held=len(judged.held), back=shift < 0)
        due = sorted(address for address in judged.due - self.repo.buried if is_inside(address))
        number = len(self.repo.runs) + 1
        self.repo.runs.append(PolicyRun(number, now, self.repo.policy, succeeded=False))
        if due and shift <= 0 and not dry:
            self.plans.append(planned(number, self.repo.policy, now, due))

    def _go_on(self, place: int, steps: int) -> None:
        for _ in range(steps):
            if self.run is None and not self._start(place):
                return
            self._advance()

    def _start(self, place: int) -> bool:
        if not self.plans:
            return False
        plan = self.plans[-1 - place % len(self.plans)]
        holder = self.repo.catalog.gate(self.repo.name)
        if holder not in (None, plan.holder):
            try:
                self.repo.catalog.close_gate(self.repo.name, plan.holder)
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
        run = self.repo.runs[number - 1]
        self.repo.runs[number - 1] = PolicyRun(number, run.now, run.policy, succeeded=True)

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
