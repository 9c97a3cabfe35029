"""
The engine machine: the same writers, but plans and applies are the real ones, with Spark.

Writers come in through `on_step`, between any two durable steps of an apply; a crash is raised from there.
After every rule all that is needed is readable, and what the ledger says is what the store has lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.machine.checking import check_heads, check_readable, needed, perform
from tests.machine.drawing import Interlude, interludes, many_keys, policies, some_branches
from tests.machine.history import History
from tests.machine.operations import CreateBranch, Operation, Upload
from tests.machine.records import decided, outcomes_of, recorded_gone, waves_of
from tests.machine.repository import NumberedAddresses, Repository
from tests.services.lake import REPOSITORY, Lake

from ebbtide.errors import Busy, StalePlan
from ebbtide.lake.oracle import judge_world
from ebbtide.lake.target import LakeTarget
from ebbtide.ledger.runs import RunState
from ebbtide.plan.manifest import Manifest
from ebbtide.rules.lake_policy_parser import parse_lake_policy, policy_hash
from ebbtide.store.address import is_inside

MAX_AGE = timedelta(days=10_000)
"""Plans do not grow old here: that they do is tested elsewhere."""


class Crash(BaseException):
    """Stands for the end of a process; nothing of Ebbtide catches it."""


@dataclass(frozen=True)
class Script:
    """What writers do at each step of an apply in turn, and at which step it crashes, and how."""

    writes: tuple[tuple[Operation, ...], ...]
    crash_at: int | None
    killed: bool
    """Killed, it leaves the gate as it is; interrupted, it opens it."""


@dataclass
class Watcher:
    """Plays a script while an apply is at work, and notes what it must do with each planned item."""

    repo: Repository
    manifest: Manifest
    script: Script
    write: Callable[[Operation], None]
    waves: dict[int, list[str]]
    expected: dict[str, str] = field(default_factory=dict)
    step: str = ""
    closed: bool = False
    steps: int = 0
    interrupted: frozenset[int] = frozenset()
    """Waves that an earlier apply left half-way."""

    def __call__(self, step: str) -> None:
        """Do what the script says for this step."""
        self.step, self.closed = step, self.repo.is_closed
        assert self.closed or not step.endswith(("started", "deleted"))
        if step.startswith("wave "):
            self._follow(*step.split()[1:])
        place, self.steps = self.steps, self.steps + 1
        for operation in self.script.writes[place] if place < len(self.script.writes) else ():
            self.write(operation)
        if place == self.script.crash_at:
            raise Crash(step)

    def _follow(self, number: str, step: str) -> None:
        """Take over what the wave has done by now: deleted when it is `deleted`, recorded when `finished`."""
        wave = int(number)
        if step == "started":
            self._expect(wave)
            return
        gone = {a for a in self.waves.get(wave, []) if self.expected[a] in ("deleted", "absent")}
        (self.repo.gone if step == "deleted" else self.repo.buried).update(gone)

    def _expect(self, wave: int) -> None:
        """Say by the oracle, for this very moment, what has to become of each item of a wave."""
        policy = parse_lake_policy(self.manifest.policy)
        kept = needed(self.repo.document(), policy, self.manifest.now)
        for address in self.waves.get(wave, []):
            # What is gone from an interrupted wave was its own doing, whoever may refer to it by now.
            mine = wave in self.interrupted and address in self.repo.gone
            there = mine or address not in self.repo.gone
            outcome = "deleted" if there else "absent"
            self.expected[address] = "changed" if address in kept and not mine else outcome


scripts = st.builds(
    Script,
    st.lists(interludes(2).map(lambda interlude: interlude.writes), max_size=8).map(tuple),
    st.sampled_from([None, None, 0, 1, 2, 2, 3, 4, 5, 6]),
    st.booleans(),
)


class EngineMachine(RuleBasedStateMachine):
    """Writers, planners and appliers on one real lake."""

    make_lake: ClassVar[Callable[[], Lake]]
    on_history: ClassVar[Callable[[History], None]]

    def __init__(self) -> None:
        super().__init__()
        self.lake = type(self).make_lake()
        self.repo = Repository(self.lake.catalog, REPOSITORY, self.lake.clock, NumberedAddresses())
        self.history = History()
        self.manifests: list[Manifest] = []

    @initialize(rules=policies, keys=many_keys, branches=some_branches, later=st.integers(2, 6))
    def begin(self, rules: dict[str, object], keys: tuple[str, ...], branches: list[str], later: int) -> None:
        """Begin with a policy, a few branches and a first commit that has become old."""
        self.repo.set_rules(rules)
        first: list[Operation] = [Upload("main", keys, commit=True), *(CreateBranch(b, 0) for b in branches)]
        for operation in first:
            self._write(operation)
        self.lake.clock.now += timedelta(days=later)

    @rule(before=interludes(6), shift=st.sampled_from([0, 0, -2]), size=st.integers(1, 3), full=st.booleans())
    def plan(self, before: Interlude, shift: int, size: int, full: bool) -> None:  # noqa: FBT001
        """Plan: it equals the oracle, but for what earlier runs deleted; in full it is the same."""
        self._live(before)
        manifest = self._plan(shift, size)
        if full:
            again = self.lake.plan(wave_size=size, now=manifest.now, full=True)
            assert decided(self.lake.folder(manifest)) == decided(self.lake.folder(again))
            self.history.counts["plans compared"] += 1

    @rule(before=interludes(2), place=st.integers(0, 2), script=scripts)
    def apply(self, before: Interlude, place: int, script: Script) -> None:
        """Apply or resume a plan, with writers at its steps: each item becomes what the oracle says."""
        self._live(before)
        pending = [one for one in self.manifests if self.lake.state(one) is not RunState.SUCCEEDED]
        if not pending:
            pending = [self._plan(0, 2)]
        manifest = pending[-1 - place % len(pending)]
        run_id, refused = manifest.run_id, self._refusal(manifest)
        attempts = self.lake.ledger.wave_attempts(run_id)
        interrupted = frozenset(wave for wave, tries in attempts.items() if not tries[-1][1])
        watcher = Watcher(
            self.repo,
            manifest,
            script,
            self._write,
            waves_of(self.lake.folder(manifest)),
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
        """Compare what outcomes call gone with what the store has lost; an interrupted wave is in between."""
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

    def _plan(self, shift: int, size: int) -> Manifest:
        manifest = self.lake.plan(wave_size=size, now=self.lake.clock() + timedelta(days=shift))
        self.manifests.append(manifest)
        self.history.tell(f"plan(run {manifest.run_id}, {manifest.summary.due.objects} due)")
        self._check_plan(manifest)
        return manifest

    def _refusal(self, manifest: Manifest) -> str | None:
        """Say why a plan must be refused before its first step, if it must."""
        if policy_hash(self.repo.policy) != manifest.policy_hash:
            return "stale"
        holder = self.repo.catalog.gate(REPOSITORY)
        mine = holder is None or holder.split("@")[0] == str(manifest.run_id)
        return None if mine else "another run keeps the gate closed"

    def _apply(self, manifest: Manifest, watcher: Watcher) -> str:
        try:
            self.lake.apply(manifest, on_step=watcher, override_breaker=True, max_plan_age=MAX_AGE)
        except Crash:
            self.history.counts["crashes"] += 1
            if watcher.script.killed and watcher.closed:
                LakeTarget(self.lake.catalog, REPOSITORY).fence(manifest)
                return "killed in a wave"
            return "interrupted"
        except StalePlan:
            return "stale"
        except Busy:
            return "another run keeps the gate closed"
        return "done"

    def _settle(self, manifest: Manifest, watcher: Watcher, ended: str) -> None:
        """Compare the outcomes of the waves that it did with what the oracle said."""
        outcomes = outcomes_of(self.lake, manifest)
        finished = {address: outcome for address, outcome in outcomes.items() if address in watcher.expected}
        unfinished = watcher.expected.keys() - outcomes.keys()

        assert {address: watcher.expected[address] for address in finished} == finished
        assert not unfinished or ended in ("killed in a wave", "interrupted")
        self.history.counts.update(Counter(f"outcome {outcome}" for outcome in finished.values()))

    def _check_plan(self, manifest: Manifest) -> None:
        """Compare a plan with the oracle; what lies outside is held though it is due."""
        judged = judge_world(self.repo.document(), manifest.now)
        expected = {
            address: ("due" if address in judged.due and is_inside(address) else "held", deadline)
            for address, deadline in judged.deadlines.items()
            if address not in self.repo.buried
        }
        rows = decided(self.lake.folder(manifest))

        assert expected == {address: (row["decision"], row["deadline"]) for address, row in rows.items()}
        self.history.counts.update(due=len(judged.due), held=len(judged.held))

    def _live(self, interlude: Interlude) -> None:
        for operation in interlude.writes:
            self._write(operation)
        self.lake.clock.now += interlude.passes

    def _write(self, operation: Operation) -> None:
        ended = perform(self.repo, operation)
        self.history.tell(repr(operation), ended)
        self.history.counts[ended] += 1
