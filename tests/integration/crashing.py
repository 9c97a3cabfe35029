"""
Crashes: a lake whose plan or apply is killed at a moment, and what must be true then and in the end.

A *chain* kills one process after the other on the same lake, each a step later, so that a kill costs one
process. `every_kill_point` kills one by one: it puts the lake back, kills, goes on, and compares the end with
that of a run which nobody disturbed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.services.executioner import QUICK, Executioner
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake, open_lake

from ebbtide.core.manifest import Manifest
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.engine.verdicts import TOUCHED, UNTOUCHED
from ebbtide.state.runs import RunState
from ebbtide.targets.repository.memory import Memory, Remembered
from ebbtide.targets.repository.rules import stored_policy

OBJECTS = 32
"""So many are due in two batches: by chance alone neither batch has less than two."""
KEPT = 96
"""So many are not: what changes before the second plan is then little enough to be laid over the rest."""
PLAN_DAY = 40
SECOND_PLAN_DAY = 45
NEVER = ""
"""No moment has this name: who is to die then is not disturbed."""

WORK = "tests.integration.doomed_lake:work"

State = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What is killed: a plan or an apply, on a lake in a stage of its life."""

    name: str
    stage: str
    kind: str
    day: int
    steps: tuple[str, ...]
    within: tuple[str, ...] = ()
    """More moments to die at, between the steps."""


_PLAN_STEPS = (
    "run begun",
    "ranges listed",
    "ranges decoded",
    "verdicts written",
    "verdicts kept",
    "verdicts linked",
    "plan written",
    "plan durable",
    "plan recorded",
    "outputs written",
)
_APPLY_STEPS = (
    "applying",
    "batch 0 started",
    "batch 0 deleted",
    "batch 0 finished",
    "batch 1 started",
    "batch 1 deleted",
    "batch 1 finished",
    "removed items written",
    "removed items listed",
    "removed items folded",
    "finished",
    "statistics written",
)
FIRST_PLAN = Job("first plan", "made", "plan", PLAN_DAY, _PLAN_STEPS)
APPLY = Job("apply", "planned", "apply", PLAN_DAY, _APPLY_STEPS, ("unlink:2", f"unlink:{OBJECTS - 1}"))
SECOND_PLAN = Job("second plan", "changed", "plan", SECOND_PLAN_DAY, _PLAN_STEPS)
JOBS = (FIRST_PLAN, APPLY, SECOND_PLAN)


@dataclass(frozen=True)
class Undisturbed:
    """What a job's steps are, and the state before and after it, when nobody disturbs it."""

    steps: list[str]
    before: State
    after: State
    parts: set[str]
    """What the memory consists of then: a plan may have kept earlier verdicts, or made all anew."""


@dataclass
class Scene:
    """A lake whose whole folder can be put back to a stage, and how each job on it ends undisturbed."""

    spark: SparkSession
    folder: Path
    pristine: Path
    executioner: Executioner
    _ends: dict[str, Undisturbed] = field(default_factory=dict)

    def reset(self, job: Job) -> Lake:
        """Put everything back to the stage in which a job begins."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.pristine / job.stage, self.folder)
        return self.open(job)

    def open(self, job: Job) -> Lake:
        """Open what lies in the folder, as a new process would, on the day of a job."""
        lake = open_lake(self.spark, self.folder)
        lake.day(job.day)
        return lake

    def save(self, lake: Lake, stage: str) -> None:
        """Remember this stage; databases are closed, so that all of them is in the files."""
        lake.close()
        shutil.copytree(self.folder, self.pristine / stage)

    def kill(self, job: Job, moment: str, *, own_spark: bool = False, fine: bool = False) -> list[str]:
        """Run a job in a process that dies at a moment; give all moments that it came to."""
        ended = self.executioner.run(
            WORK,
            own_spark=own_spark,
            folder=str(self.folder),
            kind=job.kind,
            day=job.day,
            run_id=1,
            batch_size=OBJECTS // 2,
            moment=moment,
            fine=fine,
        )
        if not ended.killed and moment != NEVER:
            raise RuntimeError(
                f"{job.name} did not die at {moment!r}: {ended}\n{self.executioner.last_words()}"
            )
        return ended.moments

    def observe(self, lake: Lake, job: Job) -> None:
        """Run a job with nobody disturbing it, and remember how that was."""
        steps: list[str] = []
        before = present(lake)
        run(lake, job, steps)
        parts = set(current(lake)["parts"])
        self._ends[job.name] = Undisturbed(steps, before, end_of(lake, job), parts)

    def undisturbed(self, job: Job) -> Undisturbed:
        """Say how a job ends that nobody disturbs."""
        if job.name not in self._ends:
            lake = self.reset(job)
            self.observe(lake, job)
            lake.close()
        return self._ends[job.name]

    def fine_moments(self, job: Job) -> list[str]:
        """Name every single thing that a job makes durable, its steps among them."""
        self.reset(job).close()
        return [*self.kill(job, NEVER, fine=True), *job.within]


def quick(spark: SparkSession) -> SparkSession:
    """Give a session of the same Spark for small tables; the one that others use stays as it is."""
    session = spark.newSession()
    for name, value in QUICK.items():
        session.conf.set(name, value)
    return session


def make_scene(scene: Scene) -> None:
    """Live a lake's life and remember its stages: made, planned, and changed after the plan was applied."""
    scene.folder.mkdir(parents=True)
    lake = make_lake(scene.spark, scene.folder)
    lake.policy(RAW_30_DAYS)
    lake.catalog.create_branch(REPOSITORY, "side", "main")
    lake.upload(*(f"raw/{number:02d}" for number in range(OBJECTS)))
    lake.upload(*(f"keep/{number:02d}" for number in range(KEPT)))
    lake.commit()
    lake.day(12)
    lake.upload("raw/late-1", "raw/late-2")
    lake.commit()
    lake.upload("raw/side-1", "raw/side-2", branch="side")
    lake.commit("side")
    lake.day(PLAN_DAY)
    # What is needed to get on is at the same time what the killed ones are compared with.
    for job in (FIRST_PLAN, APPLY):
        scene.save(lake, job.stage)
        scene.observe(lake, job)
    _change(lake)
    scene.save(lake, SECOND_PLAN.stage)


def _change(lake: Lake) -> None:
    """Do what makes a second plan differ from the first: uploads, a commit, staging, a branch that goes."""
    lake.catalog.delete_branch(REPOSITORY, "side")
    lake.upload("raw/new-1", "keep/new-1", "keep/00")
    lake.commit()
    lake.upload("raw/staged-1")


def run(lake: Lake, job: Job, steps: list[str] | None = None, *, full: bool = False) -> None:
    """Do a job, or go on with one that was killed."""
    told: list[str] = [] if steps is None else steps
    if job.kind == "plan":
        lake.plan(batch_size=OBJECTS // 2, full=full, on_step=told.append)
    else:
        lake.apply(lake.folder_of(1).read_manifest(), on_step=told.append)


def present(lake: Lake) -> State:
    """Give what a job finds: the objects, which of them it may delete, and what runs remember."""
    planned = [run for run in lake.ledger.runs() if run.state is RunState.PLANNED]
    due = {address for run in planned for address in lake.due(lake.folder_of(run.run_id).read_manifest())}
    return {"stored": lake.stored(), "due": due, "memory": remembered(lake)}


def end_of(lake: Lake, job: Job) -> State:
    """Give the state in which a job leaves the world, without what may differ: the number of its run."""
    last = lake.ledger.runs()[-1]
    manifest = lake.folder_of(last.run_id).read_manifest()
    common = {
        "stored": lake.stored(),
        "metadata": outputs(lake, last.run_id),
        "run": (last.state, last.plan_hash, last.due_objects, last.due_bytes),
        "gate": lake.catalog.fence_holder(REPOSITORY),
        "memory": remembered(lake),
        "leftovers": leftovers(lake),
    }
    return common | (plan_end(lake, manifest) if job.kind == "plan" else apply_end(lake, manifest))


def plan_end(lake: Lake, manifest: Manifest) -> State:
    """Give what a plan says."""
    facts = {name: manifest.snapshot[name] for name in sorted(manifest.snapshot) if name != "ranges_decoded"}
    return {
        "plan": (manifest.plan_hash, manifest.digest, manifest.batches, manifest.breaker, manifest.warnings),
        "summary": manifest.summary,
        "snapshot": facts,
        "decisions": in_order(stream_decisions(lake.folder(manifest))),
    }


def apply_end(lake: Lake, manifest: Manifest) -> State:
    """Give what an apply did."""
    return {
        "outcomes": {address: outcome for address, (outcome, _) in lake.outcomes(manifest).items()},
        "statistics": lake.store.read("_lakefs/retention/lc/stats/2026-02-10.csv"),
    }


def outputs(lake: Lake, run_id: int) -> list[str]:
    """List the metadata in the store, without that of earlier runs, and with no run's number."""
    this, other = f"/run-{run_id:06d}", "/run-"
    found = [key for key in lake.listing("_lakefs/") if this in key or other not in key]
    return [key.replace(this, "/run") for key in found]


def memory_of(lake: Lake) -> Memory:
    """Find what runs remember of the repository."""
    found = lake.catalog.repository(REPOSITORY)
    return Memory.of(lake.shop.root, found.uid, found.namespace)


def current(lake: Lake) -> State:
    """Read the document that says what the memory consists of."""
    return dict(json.loads((memory_of(lake).folder / "current.json").read_text(encoding="utf-8")))


def recalled(lake: Lake) -> Remembered | None:
    """Recall it as the next plan would."""
    return memory_of(lake).recall(lake.spark, stored_policy(lake.repository))


def remembered(lake: Lake) -> State | None:
    """Give every row that the next plan would recall."""
    found = recalled(lake)
    if found is None:
        return None
    verdicts = found.layers.read(lake.spark, TOUCHED, UNTOUCHED)
    return {"ranges": table_rows(found.ranges), "verdicts": table_rows(verdicts)}


def table_rows(frame: DataFrame) -> list[str]:
    """Collect a table's rows."""
    return in_order(frame.toArrow().to_pylist())


def in_order(rows: Iterable[State]) -> list[str]:
    """Write rows as text, in an order that does not depend on who wrote them."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def leftovers(lake: Lake) -> list[str]:
    """Name the files and folders of the state root that belong to no plan and to nothing remembered."""
    plans = {f"{run.run_id:06d}" for run in lake.ledger.runs() if run.state is not RunState.ABANDONED}
    whole = {"manifest.json", "verdicts", "removed", "plan", "snapshot", "outcomes", "kept"}
    runs = lake.shop.root / "runs"
    lost = [place for place in runs.iterdir() if place.name not in plans]
    lost += [part for name in plans for part in (runs / name).iterdir() if part.name not in whole]
    return sorted(str(path.relative_to(lake.shop.root)) for path in [*lost, *_forgotten(lake)])


def _forgotten(lake: Lake) -> list[Path]:
    """Find what lies in the memory and is not recalled."""
    memory = memory_of(lake)
    known = current(lake)
    found = recalled(lake)
    ranges = {row["range_id"] for row in found.ranges.toArrow().to_pylist()} if found else set()
    needed = {memory.folder / part for part in known["parts"].values()}
    needed |= {memory.folder / name for name in ("current.json", "begun", "references")}
    parts = [part for run in memory.folder.glob("run-*") for part in (run, *run.iterdir())]
    places = [place for place in memory.folder.iterdir() if not place.name.startswith("run-")]
    used = {part.parent for part in needed} | needed
    lost = [path for path in [*memory.folder.parent.iterdir(), *parts, *places] if path not in used]
    files = [file for file in memory.references.rglob("*") if file.is_file()]
    return lost + [file for file in files if file.suffix == ".tmp" or file.stem not in ranges]


def broken_promises(lake: Lake, undisturbed: Undisturbed) -> list[str]:
    """Say what is wrong with a lake on which a process was killed; whatever the moment, nothing may be."""
    before, stored = undisturbed.before, lake.stored()
    promises = {
        "something that was not due is gone": before["stored"] - before["due"] <= stored,
        "something came out of nowhere": stored <= before["stored"],
        "a batch is half done and the fence is open": not _half_done(lake)
        or lake.catalog.fence_holder(REPOSITORY),
        "what is remembered was never true": remembered(lake)
        in (None, before["memory"], undisturbed.after["memory"]),
    }
    return [promise for promise, kept in promises.items() if not kept]


def _half_done(lake: Lake) -> bool:
    attempts = [
        tries for run in lake.ledger.runs() for tries in lake.ledger.batch_attempts(run.run_id).values()
    ]
    return any(not tries[-1][1] for tries in attempts)


def differences(expected: State, actual: State) -> list[str]:
    """Name what is not as it should be."""
    names = sorted(expected.keys() | actual.keys())
    return [f"{name} differs" for name in names if expected.get(name) != actual.get(name)]


@dataclass(frozen=True)
class Death:
    """A kill point: which job died when, and all that was wrong afterwards."""

    job: str
    moment: str
    wrong: list[str]


def chain(scene: Scene, job: Job, moments: Sequence[str]) -> Iterator[Death]:
    """Kill one process after the other on one lake, then let one go on to the end."""
    undisturbed = scene.undisturbed(job)
    scene.reset(job).close()
    for moment in moments:
        scene.kill(job, moment)
        lake = scene.open(job)
        yield Death(job.name, moment, broken_promises(lake, undisturbed))
        lake.close()
    yield Death(job.name, "the end", _resumed(scene, job))


def every_kill_point(
    scene: Scene, job: Job, moments: Sequence[str], *, fine: bool = False
) -> Iterator[Death]:
    """Kill a job at each moment, each time from the beginning, and go on: it must end as if undisturbed."""
    undisturbed = scene.undisturbed(job)
    for moment in moments:
        scene.reset(job).close()
        scene.kill(job, moment, fine=fine)
        lake = scene.open(job)
        wrong = broken_promises(lake, undisturbed)
        lake.close()
        yield Death(job.name, moment, wrong + _resumed(scene, job))


def _resumed(scene: Scene, job: Job) -> list[str]:
    """Go on after a death, and say what is not as if nobody had died."""
    lake = scene.open(job)
    try:
        run(lake, job)
        return differences(scene.undisturbed(job).after, end_of(lake, job))
    finally:
        lake.close()
