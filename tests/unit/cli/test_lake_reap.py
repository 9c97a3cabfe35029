"""`ebb lake reap` and `ebb lake queue`."""

import json

import pytest

from ebbtide.cli import lake_reap
from ebbtide.cli.main import run
from ebbtide.core.errors import StoreError
from ebbtide.engine.spark import session
from ebbtide.storage.local import LocalStore
from ebbtide.targets.lake.catalog.catalog import Catalog


@pytest.fixture
def dropped(lake, capsys):
    """Stage two objects on the lake and reset them."""
    assert 0 == run(["lake", "upload", "sales", "data", "more/"])
    assert 0 == run(["lake", "reset", "sales"])
    capsys.readouterr()
    return lake


def answer(capsys, *words):
    """Run a command and give its exit code and what it printed as JSON."""
    code = run([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def objects(lake):
    """Count the data objects in the store."""
    return sum(path.is_file() for path in (lake / "lake").rglob("repos/*/branches/*/*/*"))


def test_what_waits_is_shown_with_its_reason_and_its_time(dropped, capsys):
    """The queue says what dropped each object, when, and from when it may go."""
    code, rows = answer(capsys, "lake", "queue", "sales", "--grace", "2")
    shown = run(["lake", "queue", "sales"])
    text = capsys.readouterr().out

    assert (0, 0) == (code, shown)
    assert [("reset", "waiting")] * 2 == [(row["reason"], row["state"]) for row in rows]
    assert all(row["queued"] < row["due"] for row in rows)
    assert rows[0]["address"] in text


def test_nothing_goes_before_its_grace_period(dropped, capsys):
    """By default that is an hour; a setting or an option say otherwise."""
    code, early = answer(capsys, "lake", "reap", "sales")
    before = objects(dropped)
    settings = (dropped / "ebbtide.toml").read_text()
    (dropped / "ebbtide.toml").write_text(settings.replace("[reaper]\n", "[reaper]\ngrace_hours = 0\n"))
    late_code, late = answer(capsys, "lake", "reap", "--all")

    assert (0, {}, 4) == (code, early[0]["outcomes"], before)
    assert (0, {"deleted": 2}, 2) == (late_code, late[0]["outcomes"], objects(dropped))


def test_the_log_has_a_line_for_each_batch(dropped, capsys, tmp_path, monkeypatch):
    """Lines name the reaper and the repository with their counts, and no object; an idle pass has none."""
    file = tmp_path / "ebb.log"
    for name, value in {"LEVEL": "info", "FORMAT": "json", "FILE": str(file)}.items():
        monkeypatch.setenv(f"EBBTIDE_LOG__{name}", value)
    passes = [run(["lake", "reap", "sales", "--grace", "0", "--batch", "1"]) for _ in range(2)]
    text = file.read_text()
    lines = [json.loads(line) for line in text.splitlines()]

    assert [0, 0] == passes
    assert ["batch ends", "batch ends", "reap ends"] == [line["event"] for line in lines]
    assert {"lake:sales"} == {line["target"] for line in lines}
    assert 1 == len({line["reaper"] for line in lines})
    assert [1, 2] == [line["batch"] for line in lines[:2]]
    assert [{"deleted": 1}, {"deleted": 1}, {"deleted": 2}] == [line["outcomes"] for line in lines]
    assert "repos/" not in text


def test_the_log_says_that_a_reap_stopped(dropped, capsys, tmp_path, monkeypatch):
    """A reap that an error ends leaves a line with the kind of error and what was done before."""
    file = tmp_path / "ebb.log"
    for name, value in {"LEVEL": "info", "FORMAT": "json", "FILE": str(file)}.items():
        monkeypatch.setenv(f"EBBTIDE_LOG__{name}", value)

    def fail(*_arguments):
        raise StoreError("the store is away: repos/secret")

    monkeypatch.setattr(Catalog, "reclaim_store", fail)
    code = run(["lake", "reap", "sales", "--grace", "0"])
    (line,) = map(json.loads, file.read_text().splitlines())

    assert 1 == code
    assert ("reap stops", "StoreError", {}) == (line["event"], line["error"], line["outcomes"])
    assert "repos/" not in file.read_text()


def test_a_dry_run_deletes_nothing(dropped, capsys):
    """It says what the next batch would be."""
    code, found = answer(capsys, "lake", "reap", "sales", "--grace", "0", "--dry-run")
    said = run(["lake", "reap", "sales", "--grace", "0", "--dry-run"])

    assert (0, 0, 2, 4) == (code, said, len(found["sales"]["addresses"]), objects(dropped))
    assert "sales: 2 objects would go in the next batch" in capsys.readouterr().out


def test_a_deleted_repository_is_reaped_too(dropped, capsys):
    """By its name, or with all others; then its queue is empty."""
    assert 0 == run(["lake", "delete", "sales", "--yes"])
    capsys.readouterr()
    code, done = answer(capsys, "lake", "reap", "--all", "--grace", "0")
    assert 0 == run(["lake", "queue", "sales"])

    assert (0, {"deleted": 2}) == (code, done[0]["outcomes"])
    assert "nothing waits in the queue of sales" in capsys.readouterr().out


def test_what_the_store_would_not_delete_is_exit_code_4(dropped, capsys, monkeypatch):
    """The reasons are printed, and the queue keeps them."""

    def broken(*_args):
        raise StoreError("the disk is on fire")

    monkeypatch.setattr(LocalStore, "delete", broken)
    code = run(["lake", "reap", "sales", "--grace", "0"])
    said = capsys.readouterr()
    _, rows = answer(capsys, "lake", "queue", "sales")

    assert 4 == code
    assert "the disk is on fire" in said.out
    assert "2 objects could not be deleted" in said.err
    assert {"failed: the disk is on fire"} == {row["problem"] for row in rows}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["lake", "reap"], "reap needs a repository or --all"),
        (["lake", "reap", "sales", "--all"], "'sales' and --all are both given"),
        (["lake", "reap", "nope"], "there is no repository 'nope'"),
        (["lake", "queue", "nope"], "there is no repository 'nope'"),
        (["lake", "reap", "sales", "--batch", "0"], "--batch"),
        (["lake", "reap", "sales", "--grace", "-1"], "--grace"),
    ],
)
def test_bad_input_is_exit_code_2(dropped, capsys, words, complaint):
    """Each is told, and nothing is deleted."""
    code = run(words)

    assert (2, 4) == (code, objects(dropped))
    assert complaint in capsys.readouterr().err


def test_a_watch_goes_on_until_it_is_interrupted(dropped, capsys, monkeypatch):
    """Each pass that did something says so; between them it rests."""
    rests = []

    def rest(seconds):
        rests.append(seconds)
        if len(rests) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(lake_reap, "sleep", rest)
    code = run(["lake", "reap", "sales", "--grace", "0", "--watch", "5"])
    said = capsys.readouterr()

    assert (130, [5.0, 5.0, 5.0], 2) == (code, rests, objects(dropped))
    assert 1 == said.out.count("sales: 2 deleted")


@pytest.mark.parametrize("how", [["--all"], ["--all", "--watch", "5"]], ids=["once", "watching"])
def test_a_repository_that_cannot_be_reaped_does_not_keep_others_waiting(dropped, capsys, monkeypatch, how):
    """One whose store is out of reach is named, and those after it are reaped all the same."""
    assert 0 == run(["lake", "create", "first", "./first"])
    real = Catalog.fence_batch

    def unreachable(catalog, target, *args, **more):
        if target.name == "first":
            raise StoreError("the disk is on fire")
        return real(catalog, target, *args, **more)

    def rest(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(Catalog, "fence_batch", unreachable)
    monkeypatch.setattr(lake_reap, "sleep", rest)
    capsys.readouterr()
    code = run(["lake", "reap", "--grace", "0", *how])
    said = capsys.readouterr()

    assert (4 if how == ["--all"] else 130, 2) == (code, objects(dropped))
    assert "first: stopped" in said.out
    assert "the disk is on fire" in said.out
    assert "sales: 2 deleted" in said.out


def test_spark_is_not_started(dropped, monkeypatch):
    """Neither command makes a Spark session."""

    def started(*_args, **_more):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "spark_session", started)

    assert 0 == run(["lake", "reap", "sales", "--grace", "0"])
    assert 0 == run(["lake", "queue", "sales"])
