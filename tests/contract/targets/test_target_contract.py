"""
What every kind of target promises, whatever it collects: toy, lake, bucket and registry.

Each case is written once, and each kind of target has a world in `worlds`. What only one kind can do has
tests of its own.

What is killed: a child process, by SIGKILL, that does the driver's part of a plan, an apply or a restore,
with connections, locks and open files of its own, at a durable step. Within a batch, a Spark worker kills the
driver and itself when it has done one item. What is not killed: Spark's JVM, which all children borrow from
the tests (`tests/integration/test_crashes.py` kills an apply with a Spark of its own). No machine loses
power, so what the operating system has not yet written to disk is not lost.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.contract.targets.operations import ITEM, WORK, kind_of_step, restore_run
from tests.contract.targets.worlds import (
    BucketWorld,
    FilesWorld,
    LakeWorld,
    LayoutWorld,
    RegistryWorld,
    VersionsWorld,
)
from tests.services.executioner import Executioner
from tests.services.registry import registry_server
from tests.services.seaweed import fresh_bucket
from tests.toy_target.installation import installed

from ebbtide.core.decision import Decision, Outcome
from ebbtide.core.errors import BreakerTripped, Busy, MetadataError, StalePlan
from ebbtide.core.instant import format_instant
from ebbtide.engine.run_folder import no_step, run_folder
from ebbtide.engine.run_tables import outcome_tallies
from ebbtide.engine.tables.row_counts import RECORD, adopt_counts
from ebbtide.state.runs import RunState
from ebbtide.targets.target import bin_of

pytestmark = pytest.mark.spark

KINDS = ("files", "lake", "bucket", "versions", "layout", "registry")
BUCKETS = {"bucket": BucketWorld, "versions": VersionsWorld}
BINS = [kind for kind in KINDS if kind != "versions"]
"""A restored version is a new version, so the bin of a versioned bucket has tests of its own."""
MANY = 40
"""More steps than any run has."""
EACH = pytest.mark.parametrize(
    "each_step",
    [pytest.param(False, id="kinds"), pytest.param(True, id="steps", marks=pytest.mark.long)],
)
"""Killed at one step of each kind, as batches and pages are all alike; or, in `make soak`, at every step."""


class Worlds:
    """Makes worlds for a session, and one planned world of each kind that tests only look at."""

    def __init__(self, request, folder, ended):
        self._request, self._folder, self._ended, self._planned, self._count = request, folder, ended, {}, 0

    def make(self, kind):
        """Make a world."""
        self._count += 1
        spark, folder = self._request.getfixturevalue("spark"), self._folder / f"{self._count}-{kind}"
        if kind in BUCKETS:
            server = self._request.getfixturevalue("s3_server")
            world = BUCKETS[kind](spark, folder, server, self._ended.enter_context(fresh_bucket(server)))
        elif kind == "registry":
            registry = self._ended.enter_context(registry_server(self._folder / f"{self._count}-server"))
            world = RegistryWorld(spark, folder, registry)
        else:
            world = {"files": FilesWorld, "lake": LakeWorld, "layout": LayoutWorld}[kind](spark, folder)
        self._ended.callback(world.close)
        return world

    def planned(self, kind):
        """Give a world with a plan that nobody applies, and what the world held before it was planned."""
        if kind not in self._planned:
            world = self.make(kind)
            before = world.contents()
            self._planned[kind] = (world, world.plan(), before)
        return self._planned[kind]


@pytest.fixture(scope="module")
def worlds(request, tmp_path_factory):
    """Give worlds of all kinds; the toy target is installed."""
    folder = tmp_path_factory.mktemp("worlds")
    with installed(folder / "site"), ExitStack() as ended:
        yield Worlds(request, folder, ended)


@pytest.fixture(params=KINDS)
def kind(request):
    """Name a kind of target."""
    return request.param


@pytest.fixture(scope="module")
def executioner(worlds, spark, s3_server, tmp_path_factory):
    """Have work done in processes that are killed; they know the toy target, and the keys of the server."""
    with Executioner(spark, tmp_path_factory.mktemp("deaths") / "log") as executioner:
        yield executioner


def names(world, rows, decision):
    """Name the items on which there is a decision."""
    return {world.name(row) for row in rows if row["decision"] == decision}


def without(contents, gone):
    """Leave items out of a target's contents."""
    return {name: content for name, content in contents.items() if name not in gone}


def test_a_plan_finds_what_is_due_and_changes_nothing(worlds, kind):
    """A plan says exactly of the items that are due that they are, and the target is as it was before."""
    world, manifest, before = worlds.planned(kind)
    rows = world.rows(manifest)

    assert world.due == names(world, rows, Decision.DUE)
    assert world.held == names(world, rows, Decision.HELD)
    assert before == world.contents()
    assert RunState.PLANNED == world.place.ledger.run(manifest.run_id).state


def test_counts_add_up(worlds, kind):
    """The counts of a plan are those of its rows, however they are grouped."""
    world, manifest, _ = worlds.planned(kind)
    rows, summary = world.rows(manifest), manifest.summary
    due = [row["size"] for row in rows if row["decision"] == Decision.DUE]
    held = [row["size"] for row in rows if row["decision"] == Decision.HELD]

    assert (len(due), sum(due)) == (summary.due.objects, summary.due.bytes)
    assert (len(held), sum(held)) == (summary.held.objects, summary.held.bytes)
    assert len(due) + len(held) <= summary.known_objects
    for tallies in (summary.by_prefix, summary.by_age, summary.by_collector, summary.by_action):
        assert len(due) == sum(tally.objects for tally in tallies)
        assert sum(due) == sum(tally.bytes for tally in tallies)
    assert len(held) == sum(tally.objects for tally in summary.held_by_reason)
    assert len(due) <= sum(tally.objects for tally in summary.by_rule)


def test_explain_agrees_with_the_plan(worlds, kind):
    """Explain says of each item what the plan says: whether it is due, and when its time is over."""
    world, manifest, _ = worlds.planned(kind)
    rows = world.rows(manifest)

    assert rows
    for row in rows:
        said = (row["decision"], format_instant(row["deadline"]))
        assert (world.name(row), *said) == (world.name(row), *world.explain(row))


@contextmanager
def altered_table(folder):
    """Let every row of a plan's table name another item, and the record of its rows fit, for the block."""
    files = [(file, file.read_bytes()) for file in folder.plan.rglob("*") if file.is_file()]
    for file in folder.plan.rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        other = pa.array([f"{address}x" for address in table.column("address").to_pylist()], pa.string())
        pq.write_table(table.set_column(table.schema.get_field_index("address"), "address", other), file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    (folder.plan / RECORD).unlink()
    adopt_counts(folder.plan)
    yield
    for file, content in files:
        file.write_bytes(content)


def test_an_altered_or_stale_plan_is_refused(worlds, kind):
    """A plan whose table was altered, or whose policy was changed since, stops before anything is removed."""
    world = worlds.make(kind)
    before, manifest = world.contents(), world.plan()
    with (
        altered_table(run_folder(world.place.root, manifest.run_id)),
        pytest.raises(MetadataError, match="planned"),
    ):
        world.apply(manifest)
    world.change_policy()
    with pytest.raises(StalePlan):
        world.apply(manifest)

    assert before == world.contents()
    assert {} == outcome_tallies(world.place.root, world.place.ledger, manifest.run_id)


def test_apply_does_what_was_planned_and_only_once(worlds, kind):
    """What was due is gone and nothing else; each item has an outcome; nothing is done or planned twice."""
    world = worlds.make(kind)
    before, manifest = world.contents(), world.plan()
    applied = world.apply(manifest)
    after, attempts = world.contents(), world.place.ledger.batch_attempts(manifest.run_id)
    world.days_later(1)
    again = world.apply(manifest)
    rows = world.rows(world.plan())

    assert without(before, world.due) == after
    assert after == world.contents()
    check_outcomes(world, manifest, applied)
    assert (False, True) == (applied.already_applied, again.already_applied)
    assert applied.outcomes == again.outcomes
    assert attempts == world.place.ledger.batch_attempts(manifest.run_id)
    assert (set(), world.held) == (names(world, rows, Decision.DUE), names(world, rows, Decision.HELD))


def test_what_came_to_be_needed_since_the_plan_stays(worlds, kind):
    """An item that users came to need since the plan is left alone, and all other planned items go."""
    world = worlds.make(kind)
    manifest = world.plan()
    needed = world.need()
    before = world.contents()
    applied = world.apply(manifest)

    assert without(before, world.due - needed) == world.contents()
    assert len(needed) == applied.outcomes[Outcome.CHANGED].objects
    assert len(world.due - needed) == applied.done


def set_aside(world):
    """Let a run set aside what is due; return its plan, and what the target held before."""
    before = world.contents()
    world.recycle(7)
    manifest = world.plan()
    applied = world.apply(manifest)

    assert {Outcome.RECYCLED} == set(applied.outcomes)
    assert without(before, world.due) == world.contents()
    return manifest, before


def stored_in_bin(world):
    """Count the items in the bin; damage fails the test."""
    return len(list(bin_of(world.target).stream(None, pytest.fail)))


@pytest.mark.parametrize("kind", BINS)
def test_what_is_set_aside_comes_back_and_is_not_taken_again_at_once(worlds, kind):
    """A restore brings all of a run back as it was; the bin is empty then, and nothing is due."""
    world = worlds.make(kind)
    manifest, before = set_aside(world)
    number = stored_in_bin(world)
    done = restore_run(world.target, manifest, no_step)

    assert (number, 0, ()) == (done.back.objects, done.left, done.troubles)
    assert before == world.contents()
    assert 0 == stored_in_bin(world)
    assert 0 == world.plan().summary.due.objects


@pytest.mark.parametrize("kind", BINS)
def test_what_has_been_in_the_bin_for_its_days_goes_for_good(worlds, kind):
    """A bin's plan finds nothing before the days end, then everything; it has a breaker; the target stays."""
    world = worlds.make(kind)
    set_aside(world)
    number, after = stored_in_bin(world), world.contents()
    early = world.plan_bin()
    world.days_later(40)
    manifest = world.plan_bin()
    with pytest.raises(BreakerTripped):
        world.apply(manifest, override_breaker=False)
    world.apply(manifest)

    assert (0, number) == (early.summary.due.objects, early.summary.held.objects)
    assert number == manifest.summary.due.objects
    assert (0, after) == (stored_in_bin(world), world.contents())


@EACH
@pytest.mark.parametrize("kind", BINS)
def test_a_restore_that_is_killed_is_finished(worlds, executioner, kind, each_step):
    """A restore whose process is killed at its steps brings everything back, as if nothing had happened."""
    world = worlds.make(kind)
    manifest, before = set_aside(world)
    order = world.order("restore", run_id=manifest.run_id, each_step=each_step)
    steps = []
    for step in deaths(executioner, order):
        steps.append(step)
        assert without(before, world.due).items() <= world.contents().items() <= before.items(), step

    assert ITEM in steps
    assert before == world.contents()
    assert 0 == stored_in_bin(world)


def test_what_comes_to_be_needed_while_a_batch_is_removed_is_not_lost(worlds, kind):
    """A user who comes to need an item of the batch at work is refused, or has it: nothing in use is lost."""
    world, answers = worlds.make(kind), []
    manifest = world.plan()

    def need(step):
        if step == "batch 0 started":
            try:
                answers.append((world.need_meanwhile(), world.contents()))
            except Busy:
                answers.append((frozenset(), world.contents()))

    applied = world.apply(manifest, on_step=need)
    ((needed, meanwhile),) = answers

    assert without(meanwhile, world.due - needed) == world.contents()
    assert len(world.due - needed) == applied.done
    assert RunState.SUCCEEDED == world.place.ledger.run(manifest.run_id).state


def check_outcomes(world, manifest, applied):
    """See that every planned item was done, and that all who count outcomes count alike."""
    assert all(Outcome(name).is_done for name in applied.outcomes)
    assert manifest.summary.due.objects == applied.done
    assert manifest.summary.due.bytes == sum(tally.bytes for tally in applied.outcomes.values())
    assert applied.outcomes == outcome_tallies(world.place.root, world.place.ledger, manifest.run_id)
    assert RunState.SUCCEEDED == world.place.ledger.run(manifest.run_id).state


def deaths(executioner, order):
    """
    Have an order carried out again and again; each process dies at the first step that none died at before.

    Gives the steps, each when a process has died at it; the last process gets to the end.
    """
    survived = []
    for _ in range(MANY):
        ended = executioner.run(WORK, **order, survived=survived)
        if not ended.killed:
            assert 0 == ended.code, executioner.last_words()
            return
        step = ended.moments[-1] if order["each_step"] else kind_of_step(ended.moments[-1])
        survived.append(step if step not in survived else ITEM)
        yield survived[-1]
    raise AssertionError(f"it does not end: {survived}")


@EACH
def test_a_plan_and_an_apply_that_are_killed_go_on(worlds, executioner, kind, each_step):
    """A plan and an apply whose processes are killed at their steps end as if nothing had happened."""
    world = worlds.make(kind)
    before, planned, done = world.contents(), set(), set()
    for step in deaths(executioner, world.order("plan", batch_size=2, each_step=each_step)):
        planned.add(kind_of_step(step))
        assert before == world.contents(), step
    manifest = world.last_manifest()

    assert {"run begun", "plan written", "plan durable", "plan recorded"} <= planned
    assert world.due == names(world, world.rows(manifest), Decision.DUE)

    for step in deaths(executioner, world.order("apply", run_id=manifest.run_id, each_step=each_step)):
        done.add(kind_of_step(step))
        assert without(before, world.due).items() <= world.contents().items() <= before.items(), step

    assert {"applying", "batch N started", ITEM, "batch N deleted", "batch N finished", "finished"} <= done
    assert without(before, world.due) == world.contents()
    check_outcomes(world, manifest, world.apply(manifest))
