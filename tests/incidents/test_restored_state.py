"""
A ledger or state root that was restored from a backup without the other: nothing is planned or deleted by it.

PostgreSQL knows the same trouble: a restored cluster gets a new timeline, so no log position is used twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from tests.services.outcomes import FIRST, UID, Desk, Happened
from tests.unit.plan.test_manifest import MANIFEST

from ebbtide.cli.main import run
from ebbtide.core.decision import Outcome
from ebbtide.core.errors import BadInput, MetadataError, SafetyStop, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.apply import ApplyOptions
from ebbtide.engine.apply import apply as apply_plan
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.interruption import abandon_leftovers
from ebbtide.engine.newest_run import FILE, accept_restored, begin_run, check_newest_run
from ebbtide.engine.plan import PlanOptions, plan
from ebbtide.engine.restore import check_none_interrupted
from ebbtide.engine.run_folder import run_folder
from ebbtide.state.runs import Ledger, RunState

DAY = timedelta(days=1)


class Place:
    """A state root and a ledger beside it, which can be backed up and restored one by one."""

    def __init__(self, folder: Path) -> None:
        self.root, self.database = folder / "state", folder / "ledger.db"
        self._moments = (datetime(2026, 1, 1, tzinfo=UTC) + n * DAY for n in count())
        self._open()

    def _open(self) -> None:
        self.ledger = Ledger(f"sqlite:///{self.database}", clock=lambda: next(self._moments))

    def begin(self, target_uid: str = UID) -> int:
        """Begin a run and make its folder."""
        run_id = begin_run(self.root, self.ledger, "lake:x", target_uid, "lifecycle", "", FIRST)
        run_folder(self.root, run_id).path.mkdir(parents=True)
        return run_id

    def planned(self) -> int:
        """Begin a run and record its plan."""
        run_id = self.begin()
        self.ledger.planned(run_id, "hash", 1, 1)
        return run_id

    def removes(self, run_id: int, *addresses: str) -> None:
        """Let a run remove items, and fold that."""
        self.desk.attempt(run_id, [Happened(one, Outcome.DELETED) for one in addresses])
        self.desk.table.folded(FIRST)

    @property
    def desk(self) -> Desk:
        """Writes outcomes."""
        return Desk(self.root, self.ledger)

    def check(self) -> None:
        """Compare the two."""
        check_newest_run(self.root, self.ledger)

    def back_up(self) -> None:
        """Copy both."""
        self.ledger.close()
        shutil.copyfile(self.database, f"{self.database}.backup")
        shutil.copytree(self.root, f"{self.root}.backup")

    def restore_ledger(self) -> None:
        """Restore the ledger alone."""
        self.ledger.close()
        shutil.copyfile(f"{self.database}.backup", self.database)
        self._open()

    def restore_root(self) -> None:
        """Restore the state root alone."""
        shutil.rmtree(self.root)
        shutil.copytree(f"{self.root}.backup", self.root)


@pytest.fixture
def place(tmp_path) -> Place:
    """Give a state root and a ledger with one planned run, both backed up."""
    made = Place(tmp_path)
    made.planned()
    made.back_up()
    return made


def test_a_ledger_restored_alone_stops_and_gives_no_number_twice(place):
    """Without the newest run in the ledger nothing begins, and the error names both ways forward."""
    place.planned()
    place.restore_ledger()
    with pytest.raises(SafetyStop, match="the ledger is older than the state root: run 2") as stopped:
        place.check()
    with pytest.raises(SafetyStop):
        place.begin()

    assert 3 == stopped.value.exit_code
    assert "restore a newer copy of the ledger" in stopped.value.fix
    assert "ebb state accept" in stopped.value.fix
    assert [1] == [one.run_id for one in place.ledger.runs()]


def test_a_number_that_another_run_has_is_noticed(place):
    """A ledger that gave the number to another run, at another time, is not the one of the root."""
    place.planned()
    place.restore_ledger()
    place.ledger.begin("lake:y", "other", "lifecycle", "", FIRST)
    with pytest.raises(SafetyStop, match="run 2 is missing in it, or is another run"):
        place.check()


def test_the_folder_of_an_unknown_run_stops_also_without_a_record(place):
    """In a root of an earlier version, a folder whose number the ledger has not reached says the same."""
    place.planned()
    (place.root / FILE).unlink()
    place.restore_ledger()
    with pytest.raises(SafetyStop, match="run 2 is missing"):
        place.begin()


def test_numbers_go_on_after_an_accepted_ledger(place):
    """An acceptance is a run of its own, and later runs have higher numbers than all folders."""
    place.planned()
    place.planned()
    place.restore_ledger()
    number, found = accept_restored(place.root, place.ledger)
    place.check()

    assert (4, True) == (number, "run 3" in found)
    assert 5 == place.begin()
    assert found in place.ledger.events(4)[0][2]
    with pytest.raises(BadInput, match="agree"):
        accept_restored(place.root, place.ledger)


def test_an_accepted_ledger_keeps_what_the_root_knows_of_removed_items(place):
    """What the lost runs removed and restored stays so, in the order of the runs, also when folded again."""
    place.desk.attempt(1, [Happened(one, Outcome.DELETED) for one in "ab"])
    place.ledger.close()
    shutil.copyfile(place.database, f"{place.database}.backup")
    until = FIRST + 900 * DAY
    place.desk.attempt(place.planned(), [Happened("a", Outcome.RESTORED, until)])
    place.desk.table.folded(FIRST)
    place.removes(place.planned(), *(f"later-{number}" for number in range(20)))
    place.restore_ledger()
    accept_restored(place.root, place.ledger)
    items = place.desk.table.folded(FIRST)

    assert [Outcome.RESTORED] == [row["outcome"] for row in place.desk.table.find("a")[:1]]
    assert (21, 1) == (len(items.gone_hashes()), len(items.holds()))


def test_a_state_root_restored_alone_stops(place):
    """Runs that only the ledger knows stop whoever plans, and the error names both ways forward."""
    place.planned()
    place.restore_root()
    with pytest.raises(SafetyStop, match="the state root is older than the ledger") as stopped:
        place.begin()

    assert "restore a newer copy of the state root" in stopped.value.fix
    assert "ebb state accept" in stopped.value.fix


def test_an_empty_state_root_is_older_than_a_ledger_with_plans(place):
    """A root that has nothing is no root of an earlier version if the ledger has a plan."""
    shutil.rmtree(place.root)
    with pytest.raises(SafetyStop, match="it does not know run 1"):
        place.check()


def test_a_table_of_removed_items_from_before_the_last_fold_stops(place):
    """A root from before an apply loses what that removed, though no run was begun since."""
    place.removes(1, "a")
    shutil.rmtree(f"{place.root}.backup")
    shutil.copytree(place.root, f"{place.root}.backup")
    place.desk.attempt(1, [Happened("b", Outcome.DELETED)], batch=1)
    place.desk.table.folded(FIRST)
    place.restore_root()
    for look in (lambda: place.desk.table.folded(FIRST), lambda: place.desk.table.find("b")):
        with pytest.raises(SafetyStop, match="of 2 finished attempts its table of removed items has 1"):
            look()


def test_missing_outcomes_can_be_accepted(place):
    """A root without the outcomes of a run stops folds, until somebody accepts that they are lost."""
    place.removes(1, "a")
    place.restore_root()
    with pytest.raises(MetadataError, match="the outcomes of run 1 are missing") as stopped:
        place.desk.table.folded(FIRST)
    number, found = accept_restored(place.root, place.ledger)
    place.check()
    place.removes(place.planned(), "b")

    assert "ebb state accept" in stopped.value.fix
    assert (2, "the outcomes of run 1 are missing") == (number, found)
    assert [] == place.desk.table.find("a")
    assert 1 == len(place.desk.table.find("b"))


def test_an_older_table_can_be_accepted(place):
    """After an acceptance an older table is taken as it is, and is compared again from then on."""
    place.removes(1, "a")
    shutil.rmtree(f"{place.root}.backup")
    shutil.copytree(place.root, f"{place.root}.backup")
    place.desk.attempt(1, [Happened("b", Outcome.DELETED)], batch=1)
    place.desk.table.folded(FIRST)
    place.restore_root()
    accept_restored(place.root, place.ledger)
    place.desk.table.folded(FIRST)
    pointer = json.loads((place.desk.table.folder / "current.json").read_text())

    assert (2, 2) == (pointer["folded"], pointer["acceptance"])
    assert 1 == len(place.desk.table.find("a"))


def test_a_root_of_an_earlier_version_gets_its_records_at_first_use(place):
    """Neither the newest run nor the number of folded attempts was recorded; the first use adds both."""
    place.removes(1, "a")
    (place.root / FILE).unlink()
    file = place.desk.table.folder / "current.json"
    known = {"format", "segments", "number", "added"}
    earlier = {name: value for name, value in json.loads(file.read_text()).items() if name in known}
    digest = hashlib.sha256(json.dumps(earlier, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(earlier | {"digest": digest}))
    place.check()
    place.desk.table.folded(FIRST)

    assert 1 == json.loads((place.root / FILE).read_text())["run_id"]
    assert 1 == json.loads(file.read_text())["folded"]
    assert 2 == place.begin()


def test_a_run_that_was_killed_while_it_began_does_not_stop_the_next(place):
    """A run that the ledger has and the root does not, without a plan, has left nothing behind."""
    killed = place.ledger.begin("lake:x", UID, "lifecycle", "", FIRST)
    place.check()
    abandon_leftovers(place.root, place.ledger, UID)
    place.check()

    assert killed + 1 == place.begin()


def test_a_damaged_record_stops_and_can_be_accepted(place):
    """A record that cannot be read is no record of an earlier version."""
    (place.root / FILE).write_text('{"run_id": ')
    with pytest.raises(MetadataError, match="ebb state accept"):
        place.check()
    accept_restored(place.root, place.ledger)
    place.check()


def test_files_of_an_applied_run_outlive_a_ledger_that_says_it_is_being_planned(place):
    """A run that has outcomes is abandoned with its files in place."""
    run_id = place.begin()
    place.desk.attempt(run_id, [Happened("a", Outcome.DELETED)])
    abandon_leftovers(place.root, place.ledger, UID)

    assert RunState.ABANDONED == place.ledger.run(run_id).state
    assert list(run_folder(place.root, run_id).path.rglob("*.parquet"))


def test_an_interrupted_run_before_an_acceptance_stops_no_restore(place):
    """It can never be finished, so nobody has to finish it first."""
    place.ledger.start_batch(1, 0)
    with pytest.raises(SafetyStop, match="was interrupted"):
        check_none_interrupted(place.ledger, UID, None)
    place.planned()
    place.restore_root()
    accept_restored(place.root, place.ledger)

    check_none_interrupted(place.ledger, UID, None)


def test_commands_stop_before_spark_starts_until_it_is_accepted(tmp_path, monkeypatch, capsys):
    """Plans exit with 3 and say what to do, `ebb runs` still lists, and an acceptance needs a yes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").write_text('{"raw": {"prefix": "raw/", "days": 3}}')
    policy = ["lake", "policy", "set", "sales", "policy.json"]
    for command in (["init"], ["lake", "create", "sales", "./lake"], policy):
        assert 0 == run(command)
    root = tmp_path / ".ebbtide"
    ledger = Ledger(f"sqlite:///{root}/ledger.db")
    ledger.close()
    shutil.copyfile(root / "ledger.db", tmp_path / "backup.db")
    run_id = begin_run(root, ledger, "lake:sales", UID, "lifecycle", "", FIRST)
    ledger.planned(run_id, "hash", 0, 0)
    run_folder(root, run_id).path.mkdir(parents=True)
    run_folder(root, run_id).manifest_file.write_text(replace(MANIFEST, run_id=run_id).to_json())
    ledger.close()
    shutil.copyfile(tmp_path / "backup.db", root / "ledger.db")
    capsys.readouterr()
    commands = ("plan lake:sales", "apply 1 --yes", "runs", "state accept")
    codes = [run(words.split()) for words in commands]
    said = capsys.readouterr().err
    done = run(["state", "accept", "--yes", "--json"])

    assert [3, 3, 0, 2] == codes
    assert 2 == said.count("the ledger is older than the state root")
    assert 0 == done
    assert 2 == json.loads(capsys.readouterr().out)["run_id"]
    assert 2 == run(["state", "accept", "--yes"])


class NoSpark:
    """Stands for a session that nobody may use: the check comes first."""

    def __getattr__(self, name: str) -> object:
        """Fail."""
        raise AssertionError(f"Spark was asked for {name}")


class Untouched(Collector):
    """A collector that must not be asked for anything."""

    name = "lifecycle"
    identity = Identity("lake:x", UID, "ns")

    def policy(self) -> Policy:
        """Fail."""
        raise AssertionError

    def reach(self) -> Reach:
        """Fail."""
        raise AssertionError

    def collect(self, run: Run) -> Collected:
        """Fail."""
        raise AssertionError

    def check_unchanged(self, plan: Manifest) -> None:
        """Fail."""
        raise AssertionError

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Fail."""
        raise AssertionError


def apply(place: Place, run_id: int) -> None:
    """Apply a plan that must be refused before Spark is needed."""
    manifest = replace(MANIFEST, run_id=run_id)
    context = Context(place.root, place.ledger, lambda: FIRST)
    apply_plan(NoSpark(), context, Untouched(), manifest, options=ApplyOptions())


def test_a_plan_is_not_applied_again_by_a_restored_ledger(place):
    """A ledger from before an apply does not know its outcomes; this stops before Spark is used."""
    place.removes(1, "a")
    place.restore_ledger()
    with pytest.raises(SafetyStop, match="it does not know batch-00000-attempt-001 of run 1") as stopped:
        apply(place, 1)

    assert "restore a newer copy of the ledger, or plan again" in stopped.value.fix


def test_a_restored_ledger_applies_nothing_and_plans_nothing(place):
    """Both stop before Spark is used and before anything is taken for a leftover."""
    place.planned()
    place.restore_ledger()
    context = Context(place.root, place.ledger, lambda: FIRST)
    with pytest.raises(SafetyStop, match="run 2 is missing"):
        apply(place, 1)
    with pytest.raises(SafetyStop, match="run 2 is missing"):
        plan(NoSpark(), context, Untouched(), now=FIRST, options=PlanOptions())


def test_a_plan_from_before_an_acceptance_is_stale(place):
    """Nobody knows what was applied and restored since, so a new plan is needed."""
    place.planned()
    place.restore_ledger()
    accept_restored(place.root, place.ledger)
    with pytest.raises(StalePlan, match="plan 1 was made before"):
        apply(place, 1)
