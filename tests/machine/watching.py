"""What writers do while real runs are at work, and what such a run must make of it, by the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from hypothesis import strategies as st
from tests.machine.checking import kept
from tests.machine.drawing import interludes
from tests.machine.expecting import Expected, expected
from tests.machine.operations import Operation
from tests.machine.repository import Repository
from tests.machine.sweeping import Looked, Swept, look, subtract

from ebbtide.core.decision import CollectorName
from ebbtide.core.manifest import Manifest
from ebbtide.storage.address import is_inside
from ebbtide.targets.repository.oracle import address_of, judge_world
from ebbtide.targets.repository.rules import RepositoryRules, parse_rules

Writes = tuple[tuple[Operation, ...], ...]
"""What writers do at each step in turn."""


class Crash(BaseException):
    """Stands for the end of a process; nothing of Ebbtide catches it."""


@dataclass(frozen=True)
class Script:
    """What writers do at each step of an apply in turn, and at which step it crashes, and how."""

    writes: Writes
    crash_at: int | None
    killed: bool
    """Killed, it leaves the gate as it is; interrupted, it opens it."""


_writes = interludes(2).map(lambda interlude: interlude.writes)
during_plans: st.SearchStrategy[Writes] = st.one_of(st.just(()), st.lists(_writes, max_size=6).map(tuple))
scripts = st.builds(
    Script,
    st.lists(_writes, max_size=8).map(tuple),
    st.sampled_from([None, None, 0, 1, 2, 2, 3, 4, 5, 6]),
    st.booleans(),
)


@dataclass
class PlanWatcher:
    """Lets writers in while a plan is made, and notes at the moments that count what it must decide."""

    repo: Repository
    rules: RepositoryRules
    now: datetime
    writes: Writes
    write: Callable[[Operation], None]
    steps: int = 0
    looked: Looked | None = None
    swept: Swept | None = None
    wanted: Expected | None = None
    """What a clean run must find at the moment of the snapshot."""

    def __call__(self, step: str) -> None:
        """Write what is to be written at this step."""
        place, self.steps = self.steps, self.steps + 1
        for operation in self.writes[place] if place < len(self.writes) else ():
            self.write(operation)
        sweeps = self.rules.uncommitted
        if step == "run begun" and sweeps:
            self.looked = look(self.repo, sweeps)
        if step == ("store listed" if sweeps else "run begun"):
            self.wanted = expected(self.repo, self.rules, self.now)
            if self.looked and sweeps:
                self.swept = subtract(self.repo, self.looked, sweeps, self.now, 0)

    def decisions(self) -> dict[str, tuple[str, datetime]]:
        """Give all that the plan must say; what lies outside is held though it is due."""
        assert self.wanted is not None
        others = tuple(one for one in self.rules.collectors if one is not CollectorName.UNCOMMITTED)
        judged = judge_world(replace(self.wanted.world, collect=others), self.now)
        left_out = self.repo.buried | self._kept_by_heads(self.wanted)
        deadlines = {a: deadline for a, deadline in judged.deadlines.items() if a not in left_out}
        deadlines |= self.swept.deadlines if self.swept else {}
        return {
            address: ("due" if deadline <= self.now and is_inside(address) else "held", deadline)
            for address, deadline in deadlines.items()
        }

    def _kept_by_heads(self, wanted: Expected) -> set[str]:
        """Name what only retention touches and a head needs: it cannot become due, so plans leave it out."""
        if self.rules.retention is None:
            return set()
        lifecycle = tuple(one for one in self.rules.collectors if one is CollectorName.LIFECYCLE)
        touched = (
            judge_world(replace(wanted.world, collect=lifecycle), self.now).deadlines if lifecycle else {}
        )
        heads = set(wanted.world.branches.values())
        entries = [
            entry
            for commit in wanted.world.commits
            if commit.id in heads
            for entry in commit.entries.values()
        ]
        return {address_of(entry, wanted.world) for entry in entries} - touched.keys()

    def check_sweep(self) -> None:
        """Make sure that only what came into a settled partition by itself, or is uploading, was missed."""
        if self.swept and self.wanted and self.looked:
            due, clean = self.swept.due(self.now), self.wanted.uncommitted()
            assert due <= clean
            assert clean - due <= self.repo.late | self.looked.uploads.keys()


@dataclass
class Watcher:
    """Plays a script while an apply is at work, and notes what it must do with each planned item."""

    repo: Repository
    manifest: Manifest
    script: Script
    write: Callable[[Operation], None]
    batches: Mapping[int, Mapping[str, CollectorName]]
    """The items of each batch, and who found each."""
    expected: dict[str, str] = field(default_factory=dict)
    step: str = ""
    closed: bool = False
    steps: int = 0
    interrupted: frozenset[int] = frozenset()
    """Batches that an earlier apply left half-way."""

    def __call__(self, step: str) -> None:
        """Do what the script says for this step."""
        self.step, self.closed = step, self.repo.is_closed
        assert self.closed or not step.endswith(("started", "deleted"))
        if step.startswith("batch "):
            self._follow(*step.split()[1:])
        place, self.steps = self.steps, self.steps + 1
        for operation in self.script.writes[place] if place < len(self.script.writes) else ():
            self.write(operation)
        if place == self.script.crash_at:
            raise Crash(step)

    def _follow(self, number: str, step: str) -> None:
        """Take over what the batch has done: deleted when it is `deleted`, recorded when `finished`."""
        batch = int(number)
        if step == "started":
            self._expect(batch)
            return
        gone = {a for a in self.batches.get(batch, {}) if self.expected[a] in ("deleted", "absent")}
        if step == "deleted":
            assert not gone & self.repo.open_uploads().keys()
            self.repo.gone.update(gone)
        else:
            self.repo.buried.update(gone)

    def _expect(self, batch: int) -> None:
        """Say by the oracle, for this very moment, what has to become of each item of a batch."""
        rules = parse_rules(self.manifest.policy, self.manifest.collector)
        keepers = kept(self.repo.document(), rules, self.manifest.now)
        for address, finder in self.batches.get(batch, {}).items():
            # What is gone from an interrupted batch was its own doing, whoever may refer to it by now.
            mine = batch in self.interrupted and address in self.repo.gone
            there = mine or address not in self.repo.gone
            outcome = "deleted" if there else "absent"
            self.expected[address] = "changed" if address in keepers[finder] and not mine else outcome
