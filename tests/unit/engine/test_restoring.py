"""Restoring without Spark: what is wanted is written down, and a kill loses and doubles nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ebbtide.core.bin_label import Label, items_of, label_from_json, label_key
from ebbtide.core.errors import MetadataError, NotFound, SafetyStop
from ebbtide.engine import log
from ebbtide.engine import restore as restoring
from ebbtide.engine.bin import RestoreChoice
from ebbtide.engine.collector import Context, Identity
from ebbtide.engine.object_bin import ObjectBin, StoreBin
from ebbtide.engine.removed_table import RestoredItem, find_item
from ebbtide.engine.restore import Restorer, check_none_interrupted, restored_since
from ebbtide.engine.run_folder import outcome_folders
from ebbtide.engine.run_tables import is_restore
from ebbtide.state.runs import Ledger, RunState
from ebbtide.storage.store import Store, StoreSpec, open_store

NOW = datetime(2026, 1, 20, tzinfo=UTC)
ROOT = "_lakefs/recycle/"
LABEL = Label("000007-0123456789ab", 7, "lake:x", "uid", "lifecycle", "h", 14, NOW)
KEYS = ["repos/1", "repos/2", "repos/3"]


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Scene:
    """A bin with three objects in it, and where they are to go."""

    store: Store
    ledger: Ledger
    root: Path

    @property
    def bin(self) -> StoreBin:
        """The bin."""
        return StoreBin(self.store, ROOT, "uid")

    def restorer(self, dies_at: str = "") -> Restorer:
        """Make what restores; it may die at a step."""

        def watch(step: str) -> None:
            if step == dies_at:
                raise Killed(step)

        context, identity = Context(self.root, self.ledger, lambda: NOW), Identity("lake:x", "uid", "")
        return Restorer(ObjectBin(context, identity, self.bin), watch)

    def restore(self, dies_at: str = "") -> restoring.Restored:
        """Restore all that is in the bin."""
        return self.restorer(dies_at).restore(RestoreChoice(), self.bin.items(LABEL))

    def listing(self, prefix: str = "") -> list[str]:
        """List what is stored."""
        return [key for batch in self.store.list(prefix) for key in batch["key"].to_pylist()]


@pytest.fixture
def scene(tmp_path, monkeypatch) -> Scene:
    """Set three objects aside by hand; pages hold two."""
    monkeypatch.setattr(restoring, "PAGE", 2)
    (tmp_path / "objects").mkdir()
    store = open_store(StoreSpec((tmp_path / "objects").as_uri()))
    made = Scene(store, Ledger(f"sqlite:///{tmp_path}/ledger.db", clock=lambda: NOW), tmp_path / "state")
    made.bin.write(LABEL)
    for key in KEYS:
        store.write(made.bin.place_of(LABEL.folder, key), key.encode())
    return made


def test_everything_comes_back_and_is_recorded(scene):
    """Each item is back with its bytes, has an outcome, and its folder can be forgotten."""
    done = scene.restore()
    tidied = scene.bin.tidy(LABEL)

    assert (3, 0, ()) == (done.back.objects, done.left, done.troubles)
    assert (KEYS, True) == (scene.listing(), tidied)
    assert KEYS == [scene.store.read(key).decode() for key in KEYS]
    assert RunState.SUCCEEDED == scene.ledger.run(done.run_id).state
    assert all(map(is_restore, outcome_folders(scene.root, scene.ledger, done.run_id)))
    held = RestoredItem(NOW, done.run_id, NOW + timedelta(days=LABEL.days))
    assert held == find_item(scene.root, scene.ledger, "lake:x", KEYS[0])
    assert held.until == done.held_until


@pytest.mark.parametrize(("days", "until"), [(3, NOW + timedelta(days=3)), (0, None)])
def test_who_restores_may_say_for_how_long_items_are_held(scene, days, until):
    """The days that were asked for count from the restore; with 0 days nothing is held."""
    asked = RestoreChoice(days=days)
    done = scene.restorer().restore(asked, scene.bin.items(LABEL))
    found = find_item(scene.root, scene.ledger, "lake:x", KEYS[2])

    assert (until, RestoredItem(NOW, done.run_id, until)) == (done.held_until, found)


def test_an_interrupted_restore_holds_for_the_days_that_were_asked_for(scene):
    """Whoever finishes the page of a killed restore knows for how many days its items are to be held."""
    asked = RestoreChoice(days=5)
    with pytest.raises(Killed):
        scene.restorer("page 0 moved").restore(asked, scene.bin.items(LABEL))
    scene.restorer().finish_interrupted()
    found = find_item(scene.root, scene.ledger, "lake:x", KEYS[0])

    assert RestoredItem(NOW, 1, NOW + timedelta(days=5)) == found


def test_nothing_is_restored_by_a_ledger_that_was_restored_alone(scene, tmp_path):
    """A restore that the ledger has lost stops the next one before it moves anything."""
    with pytest.raises(Killed):
        scene.restore(dies_at="restore begun")
    ledger = Ledger(f"sqlite:///{tmp_path}/restored.db", clock=lambda: NOW)
    before = scene.listing()
    with pytest.raises(SafetyStop, match="the ledger is older than the state root"):
        replace(scene, ledger=ledger).restorer().finish_interrupted()

    assert before == scene.listing()


STEPS = [
    "restore begun",
    *(f"page {page} {step}" for page in (0, 1) for step in ("wanted", "moved", "finished")),
    "restore ended",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_nothing_is_lost_or_double_and_the_next_ends_it(scene, step):
    """After a kill each object is in one place; restoring again brings all back and records each once."""
    with pytest.raises(Killed):
        scene.restore(dies_at=step)
    places = [key.removeprefix(items_of(ROOT, LABEL.folder)) for key in scene.listing()]
    scene.restore()
    states = {run.state for run in scene.ledger.runs()} - {RunState.SUCCEEDED}
    moved = [run for run in scene.ledger.runs() if scene.ledger.batch_attempts(run.run_id)]
    unfinished = [
        run for run in moved if not all(t[-1][1] for t in scene.ledger.batch_attempts(run.run_id).values())
    ]

    assert sorted([*KEYS, label_key(ROOT, LABEL.folder)]) == sorted(places)
    assert KEYS == [key for key in scene.listing() if not key.startswith(ROOT)]
    assert states <= {RunState.FAILED, RunState.PLANNING}
    assert [] == unfinished


def test_steps_are_those_that_are_killed(scene):
    """A restore reports the steps that this file kills it at, so a new one cannot be forgotten here."""
    seen: list[str] = []
    replace(scene.restorer(), on_step=seen.append).restore(RestoreChoice(), scene.bin.items(LABEL))

    assert STEPS == seen


def test_a_place_that_is_taken_is_left_alone(scene):
    """New content is not overwritten: the item stays in the bin, the others come back, and it is told."""
    scene.store.write(KEYS[1], b"newer")
    done = scene.restore()

    assert (2, 1) == (done.back.objects, done.left)
    assert f"{KEYS[1]}: taken there is another content in its place" == done.troubles[0]
    assert b"newer" == scene.store.read(KEYS[1])
    assert scene.bin.find(LABEL, KEYS[1])
    assert not scene.bin.tidy(LABEL)
    assert RunState.FAILED == scene.ledger.run(done.run_id).state


def test_a_restore_is_what_came_later(scene):
    """Runs before it know that something was restored since; runs after it and other targets do not."""
    before = scene.ledger.begin("lake:x", "uid", "lifecycle", "{}", NOW)
    scene.restore()
    after = scene.ledger.begin("lake:x", "uid", "lifecycle", "{}", NOW)

    assert restored_since(scene.ledger, "uid", before)
    assert None is restored_since(scene.ledger, "uid", after)
    assert None is restored_since(scene.ledger, "other", before)


def test_an_interrupted_apply_must_be_finished_or_wholly_restored_first(scene):
    """What a killed apply has done is not all recorded, so nothing but all of it may be restored."""
    run = scene.ledger.begin("lake:x", "uid", "lifecycle", "{}", NOW)
    scene.ledger.start_batch(run, 0)
    check_none_interrupted(scene.ledger, "uid", whole=run)
    with pytest.raises(SafetyStop, match=f"run {run} .* was interrupted"):
        check_none_interrupted(scene.ledger, "uid", whole=None)
    scene.restore()

    check_none_interrupted(scene.ledger, "uid", whole=None)


def test_labels_say_what_they_hold_and_are_believed_only_whole(scene):
    """A label reads back as it was; another folder's, a damaged and a missing one are told and left alone."""
    damage: list[Exception] = []
    text = LABEL.to_json()
    scene.store.write(label_key(ROOT, "000008-x"), text.encode())
    scene.store.write(label_key(ROOT, "000009-x"), b"\xff{")
    scene.store.write(items_of(ROOT, "000010-x") + "a", b"")
    scene.bin.write(Label("000011-x", 11, "lake:y", "another", "lifecycle", "h", 1, NOW))

    assert LABEL == label_from_json(text, LABEL.folder)
    assert datetime(2026, 2, 3, tzinfo=UTC) == LABEL.expires
    assert [LABEL] == scene.bin.labels(damage.append)
    assert [MetadataError, MetadataError, NotFound] == [type(error) for error in damage]


@pytest.mark.parametrize("bad", ["days", "set_aside", "run", "format"])
def test_a_label_with_a_field_that_cannot_be_is_no_label(bad):
    """Nobody guesses until when something is kept."""
    values = {
        "days": '"days": 0',
        "set_aside": '"set_aside": "soon"',
        "run": '"run": "7"',
        "format": '"format": 2',
    }
    lines = [f"  {values[bad]}," if f'"{bad}"' in line else line for line in LABEL.to_json().splitlines()]
    text = "\n".join(lines).replace(",\n}", "\n}")

    with pytest.raises(MetadataError, match="cannot be read"):
        label_from_json(text, LABEL.folder)


def test_a_folder_with_nothing_in_it_is_no_damage(scene, tmp_path):
    """Some stores show a folder for a while after all of it is gone; items without a label are damage."""
    (tmp_path / "objects" / ROOT / "000008-0123456789ab" / "items").mkdir(parents=True)
    whole, damaged = [], []
    labels = scene.bin.labels(whole.append)
    scene.bin.remove(label_key(ROOT, LABEL.folder))
    scene.bin.labels(damaged.append)

    assert ([LABEL], []) == (labels, whole)
    assert [f"{LABEL.folder!r} in the recycle bin has no label"] == [str(one.what) for one in damaged]


def test_a_folder_that_is_not_there_any_more_is_said_to_be_restored_or_emptied(scene):
    """Who restores twice is not told of damage."""
    scene.restore()
    scene.bin.tidy(LABEL)

    with pytest.raises(NotFound, match="the recycle bin has no '000007-0123456789ab'") as told:
        scene.bin.label(LABEL.folder)
    assert "restored or deleted" in told.value.why


def test_a_restore_is_logged_by_step_with_its_counts(scene, tmp_path):
    """Every line of a restore names its target, and the last one has the run and the outcomes."""
    context, identity = Context(scene.root, scene.ledger, lambda: NOW), Identity("lake:x", "uid", "")
    whole = ObjectBin(context, identity, scene.bin)
    with log.logged_to("info", as_json=True, path=tmp_path / "ebb.log"):
        restoring.restore(whole, RestoreChoice(folder=LABEL.folder))
    lines = [json.loads(line) for line in (tmp_path / "ebb.log").read_text().splitlines()]

    assert {"lake:x"} == {line["target"] for line in lines}
    assert ["restore begun", "restore ends"] == [lines[0]["event"], lines[-1]["event"]]
    assert (1, {"restored": 3}, 0) == tuple(lines[-1][name] for name in ("run", "outcomes", "gone"))
