"""`ebb recycle` and `ebb restore`: what cannot be meant."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.bin_label import Label
from ebbtide.engine.object_bin import StoreBin
from ebbtide.storage.store import MoveRequest, StoreSpec, open_store
from ebbtide.targets.lake.bin import BIN_ROOT
from ebbtide.targets.lake.catalog.catalog import Catalog


def no_spark(*_):
    """Fail whoever starts Spark."""
    raise AssertionError("this command must not start Spark")


MISTAKES = {
    "recycle set lake:sales": "say either --days or --off",
    "recycle set lake:sales --days 3 --off": "say either --days or --off",
    "recycle set lake:nowhere --days 3": "nowhere",
    "recycle set oci://host/x --days 3": "policies say what is recycled",
    "recycle ls nothing": "unknown target",
    "restore lake:sales": "nothing of lake:sales is named",
    "restore lake:sales raw/a.csv": "is not in the recycle bin",
    "restore lake:sales --from 000001-x": "the recycle bin has no '000001-x'",
    "restore 7": "there is no plan",
    "restore 7 --from x": "--from goes with a target",
    "plan lake:sales --bin --all": "--bin and --all are given",
}


def test_what_cannot_be_meant_is_said_and_changes_nothing(lake, monkeypatch, capsys):
    """Bad input is exit code 2 with words that say what to do, and no Spark is started for it."""
    monkeypatch.setattr(State, "spark", no_spark)
    codes, told = {}, {}
    for words in MISTAKES:
        codes[words] = run(words.split())
        told[words] = capsys.readouterr().err

    assert dict.fromkeys(MISTAKES, 2) == codes
    assert [] == [words for words, said in MISTAKES.items() if said not in told[words]]


def test_days_are_set_shown_and_switched_off(lake, capsys):
    """What was set is what the bin's listing says, until it is switched off."""
    seen = []
    for words in (["--days", "14"], ["--off"]):
        assert 0 == run(["recycle", "set", "lake:sales", *words])
        capsys.readouterr()
        assert 0 == run(["recycle", "ls", "lake:sales"])
        seen.append(capsys.readouterr().out)

    assert "0 objects, 0 B; runs set aside for 14 days" in seen[0]
    assert "runs delete at once" in seen[1]


def test_what_is_restored_is_not_reaped(lake, capsys):
    """Garbage that was set aside while it waited in the reaper's queue is back for the next sweep to find."""
    assert 0 == run(["lake", "upload", "sales", "data", "more/"])
    assert 0 == run(["lake", "reset", "sales"])
    capsys.readouterr()
    assert 0 == run(["lake", "queue", "sales", "--json"])
    address, other = (row["address"] for row in json.loads(capsys.readouterr().out))
    repository = Catalog(f"sqlite:///{lake}/.ebbtide/catalog.db").repository("sales")
    place = StoreBin(open_store(StoreSpec(repository.namespace)), BIN_ROOT, repository.uid)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    place.write(Label("000007-ab", 7, "lake:sales", repository.uid, "uncommitted", "h", 14, now))
    place.store.move([MoveRequest(address, place.place_of("000007-ab", address))])
    restored = run(["restore", "lake:sales", address])
    reaped = run(["lake", "reap", "sales", "--grace", "0"])

    assert (0, 0) == (restored, reaped)
    assert (lake / "lake" / address).is_file()
    assert not (lake / "lake" / other).exists()
