"""The log of runs: silent unless it is asked for, one line per step, nothing that must not be shared."""

from __future__ import annotations

import json

import pytest

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.engine import log


@pytest.fixture(autouse=True)
def quiet():
    """Leave the log as it is by default."""
    yield
    log.configure()


def test_by_default_nothing_is_written(capsys):
    """Who does not ask for a log sees none, on neither stream."""
    log.configure()
    with log.bound(run=1):
        log.write("plan begins")
        log.steps(lambda _: None)("run begun")

    assert ("", "") == capsys.readouterr()


def test_every_line_of_a_run_says_which_run_it_is(tmp_path):
    """A JSON line has the time, the level, the event, what is bound and the counts that are given."""
    file, seen = tmp_path / "logs" / "ebb.log", []
    with log.logged_to("info", as_json=True, path=file), log.bound(run=7, target="lake:x"):
        log.steps(seen.append)("run begun")
        log.write("plan ends", due=3)
    log.write("after the block nothing is written")
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    assert ["run begun"] == seen
    assert ["run begun", "plan ends"] == [line["event"] for line in lines]
    assert {"run": 7, "target": "lake:x", "due": 3, "level": "info"}.items() <= lines[1].items()
    assert lines[0]["timestamp"].endswith("Z")
    assert "run" not in log.structlog.contextvars.get_contextvars()


def test_text_goes_to_standard_error(capsys):
    """Lines for people have the event and its values, and leave standard output alone."""
    with log.logged_to("info", as_json=False, path=None):
        log.write("batch ends", batch=2, of=5)
    out, error = capsys.readouterr()

    assert "" == out
    assert "batch ends" in error
    assert "batch=2" in error


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    """A log below a file that is no folder stops the command with its path."""
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "ebb.log"
    with (
        pytest.raises(EnvironmentProblem, match="cannot be written"),
        log.logged_to("info", as_json=True, path=place),
    ):
        pass
