"""
The engine machine: the same writers, but plans and applies are the real ones, with Spark.

Writers come in through `on_step`, between any two steps of a plan or an apply; a crash is raised from there.
After every rule all that is needed is readable, and what the ledger says is what the store has lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.machine.checking import check_heads, check_readable, perform, reached
from tests.machine.drawing import Interlude, interludes, kinds, many_keys, policies, some_branches
from tests.machine.history import History
from tests.machine.kinds import Kind
from tests.machine.numbering import NumberedAddresses
from tests.machine.operations import CreateBranch, Operation, Upload
from tests.machine.records import batches_of, decided, outcomes_of, recorded_gone
from tests.machine.repository import Repository
from tests.machine.watching import (
    Crash,
    PlanWatcher,
    Script,
    Watcher,
    Writes,
    during_plans,
    scripts,
)
from tests.services.lake import REPOSITORY, Lake
from tests.worlds import retentions

from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import Busy, LiveObjectMissing, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.state.runs import RunState
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.collector import RepositoryCollector
from ebbtide.targets.repository.rules import GRACE, RepositoryRules, current_rules, parse_rules
from ebbtide.targets.repository.sweeps import states_from_json
from ebbtide.targets.repository.uncommitted import STATES

MAX_AGE = timedelta(days=10_000)
"""Plans do not grow old here: that they do is tested elsewhere."""


class EngineMachine(RuleBasedStateMachine):
    """Writers, planners and appliers on one real lake."""

    make_lake: ClassVar[Callable[[], Lake]]
    on_history: ClassVar[Callable[[History], None]]

    def __init__(self) -> None:
        super().__init__()
        self.lake = type(self).make_lake()
        self.repo = Repository(
            self.lake.catalog, REPOSITORY, self.lake.clock, NumberedAddresses(self.lake.clock)
        )
        self.history = History()
        self.manifests: list[Manifest] = []

    @initialize(
        rules=policies,
        retained=retentions(),
        keys=many_keys,
        branches=some_branches,
        later=st.integers(2, 6),
    )
    def begin(
        self,
        rules: dict[str, object],
        retained: dict[str, object],
        keys: tuple[str, ...],
        branches: list[str],
        later: int,
    ) -> None:
        """Begin with rules, a few branches and a first commit that has become old."""
        self.repo.set_rules(rules)
        self.repo.set_retention(retained)
        first: list[Operation] = [Upload("main", keys, commit=True), *(CreateBranch(b, 0) for b in branches)]
        for operation in first:
            self._write(operation)
        self.lake.clock.now += timedelta(days=later)

    @rule(
        before=interludes(6),
        kind=kinds,
        shift=st.sampled_from([0, 0, -2]),
        size=st.integers(1, 3),
        during=during_plans,
        again=st.booleans(),
    )
    def plan(
        self,
        before: Interlude,
        kind: Kind,
        shift: int,
        size: int,
        during: Writes,
        again: bool,  # noqa: FBT001
    ) -> None:
        """Plan among writers: it equals the oracle, but for what earlier runs deleted; so it does again."""
        self._live(before)
        manifest = self._plan(kind, shift, size, during)
        if manifest and again and not during:
            self._compare(manifest, kind)

    @rule(before=interludes(2), kind=kinds, place=st.integers(0, 2), script=scripts)
    def apply(self, before: Interlude, kind: Kind, place: int, script: Script) -> None:
        """Apply or resume a plan, with writers at its steps: each item becomes what the oracle says."""
        self._live(before)
        pending = [one for one in self.manifests if self.lake.state(one) is not RunState.SUCCEEDED]
        if not pending and (made := self._plan(kind, 0, 2, ())):
            pending = [made]
        if not pending:
            return
        manifest = pending[-1 - place % len(pending)]
        run_id, refused = manifest.run_id, self._refusal(manifest)
        attempts = self.lake.ledger.batch_attempts(run_id)
        interrupted = frozenset(batch for batch, tries in attempts.items() if not tries[-1][1])
        watcher = Watcher(
            self.repo,
            manifest,
            script,
            self._write,
            batches_of(self.lake.folder(manifest)),
            interrupted=interrupted,
        )
        ended = self._apply(manifest, watcher)
        self.history.tell(f"apply(run {run_id})", ended)
        assert refused is None or refused == ended
        self._settle(manifest, watcher, ended)

    @invariant()
    def all_that_is_needed_is_readable(self) -> None:
        """Everything that a reference reaches is readable, unless a run deleted it when nothing needed it."""
        check_readable(self.repo, self.repo.document())

    @invariant()
    def the_ledger_equals_the_store(self) -> None:
        """Compare what outcomes call gone with what the store lost; an interrupted batch is in between."""
        lost = self.repo.contents.keys() - self.lake.stored()
        recorded = recorded_gone(self.lake)

        assert self.repo.gone == lost
        assert self.repo.buried == recorded
        assert recorded <= lost

    def teardown(self) -> None:
        """Read every branch through the catalog, let go of the lake, and hand the history over."""
        check_heads(self.repo)
        self.lake.close()
        type(self).on_history(self.history)

    def _plan(self, kind: Kind, shift: int, size: int, during: Writes) -> Manifest | None:
        rules, now = self._rules(kind), self.lake.clock() + timedelta(days=shift)
        watcher = PlanWatcher(self.repo, rules, now, during, self._write)
        try:
            manifest = self.lake.plan(batch_size=size, now=now, rules=rules, on_step=watcher)
        except LiveObjectMissing:
            missing = watcher.swept.missing if watcher.swept else frozenset[str]()
            assert missing
            assert missing <= self.repo.gone - self.repo.buried
            self.history.tell(f"plan({kind})", "stopped by the preflight")
            return None
        self.manifests.append(manifest)
        self.history.tell(f"plan(run {manifest.run_id}, {kind}, {manifest.summary.due.objects} due)")
        self.history.counts[f"kind {kind}"] += 1
        self._check_plan(manifest, watcher)
        return manifest

    def _rules(self, kind: Kind) -> RepositoryRules:
        return kind.rules(self.repo.policy, self.repo.retention)

    def _compare(self, manifest: Manifest, kind: Kind) -> None:
        """Plan again, in full: it must be the same; an optimized sweep may miss what a clean one sees."""
        other = Kind.CLEAN if kind is Kind.OPTIMIZED else kind
        again = self.lake.plan(batch_size=2, now=manifest.now, rules=self._rules(other), full=True)
        one, full = decided(self.lake.folder(manifest)), decided(self.lake.folder(again))
        unseen = full.keys() - one.keys()
        assert unseen <= (self.repo.late if kind is Kind.OPTIMIZED else set())
        assert one == {address: row for address, row in full.items() if address not in unseen}
        self.history.counts.update({"plans compared": 1, "unseen by optimized": len(unseen)})

    def _refusal(self, manifest: Manifest) -> str | None:
        """Say why a plan must be refused before its first step, if it must."""
        planned = parse_rules(manifest.policy, manifest.collector)
        if (
            current_rules(CatalogRepository(self.repo.catalog, REPOSITORY), planned).hash
            != manifest.policy_hash
        ):
            return "stale"
        holder = self.repo.catalog.fence_holder(REPOSITORY)
        mine = holder is None or holder.split("@")[0] == str(manifest.run_id)
        return None if mine else "another run keeps the gate closed"

    def _apply(self, manifest: Manifest, watcher: Watcher) -> str:
        try:
            self.lake.apply(manifest, on_step=watcher, override_breaker=True, max_plan_age=MAX_AGE)
        except Crash:
            self.history.counts["crashes"] += 1
            if watcher.script.killed and watcher.closed:
                collector = RepositoryCollector.of_plan(
                    self.lake.shop.context, self.lake.repository, manifest
                )
                collector.fence(manifest)
                return "killed in a batch"
            return "interrupted"
        except StalePlan:
            return "stale"
        except Busy:
            return "another run keeps the gate closed"
        return "done"

    def _settle(self, manifest: Manifest, watcher: Watcher, ended: str) -> None:
        """Compare the outcomes of the batches that it did with what the oracle said."""
        outcomes = outcomes_of(self.lake, manifest)
        finished = {address: outcome for address, outcome in outcomes.items() if address in watcher.expected}
        unfinished = watcher.expected.keys() - outcomes.keys()

        assert {address: watcher.expected[address] for address in finished} == finished
        assert not unfinished or ended in ("killed in a batch", "interrupted")
        self.history.counts.update(Counter(f"outcome {outcome}" for outcome in finished.values()))

    def _check_plan(self, manifest: Manifest, watcher: PlanWatcher) -> None:
        """Compare a plan with the oracle, and what the next sweep may build on with a rehearsed one."""
        rows = decided(self.lake.folder(manifest))
        made = {address: (row["decision"], row["deadline"]) for address, row in rows.items()}
        assert not watcher.swept or not watcher.swept.missing
        assert watcher.decisions() == made
        watcher.check_sweep()
        self._check_safe({a for a, row in rows.items() if row["decision"] == "due"}, rows, manifest)
        if watcher.swept:
            states = states_from_json((self.lake.folder(manifest).path / STATES).read_text())
            assert watcher.swept.states == {path: replace(one, run_id=0) for path, one in states.items()}
            self.history.counts["swept clean" if watcher.swept.is_clean else "swept optimized"] += 1
        self.history.counts.update(Counter(decision for decision, _ in made.values()))

    def _check_safe(self, due: set[str], rows: dict[str, dict[str, Any]], manifest: Manifest) -> None:
        """Whatever writers did meanwhile, no garbage is referenced, too young or being uploaded."""
        garbage = {a for a in due if rows[a]["collector"] == CollectorName.UNCOMMITTED}
        assert not garbage & reached(self.repo.document())
        assert not garbage & self.repo.open_uploads().keys()
        assert all(self.repo.written[address] + GRACE <= manifest.now for address in garbage)
        self.history.counts["garbage due"] += len(garbage)

    def _live(self, interlude: Interlude) -> None:
        for operation in interlude.writes:
            self._write(operation)
        self.lake.clock.now += interlude.passes

    def _write(self, operation: Operation) -> None:
        ended = perform(self.repo, operation)
        self.history.tell(repr(operation), ended)
        self.history.counts[ended] += 1
