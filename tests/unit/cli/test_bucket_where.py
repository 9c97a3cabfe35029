"""`ebb bucket where`: what is printed about a move, and what is said if there was none."""

import json

import pytest
import typer

from ebbtide.cli.bucket_rules import where
from ebbtide.cli.state import State
from ebbtide.core.errors import NotFound
from ebbtide.targets.s3.transition.moves import MoveLog, MoveRecord, Stage

LINE = MoveRecord(
    bucket="logs",
    key="a.log",
    version="null",
    etag="e1",
    size=2048,
    modified="2026-01-01T00:00:00Z",
    location="COLD",
    url="s3://cold/a.log/null",
    rules=("old",),
    run=7,
    wave=0,
    stage=Stage.MOVED,
    at="2026-02-01T00:00:00Z",
    writer="one",
)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Call the command as a colleague's app would register it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EBBTIDE_ROOT", str(tmp_path / "state"))
    MoveLog(tmp_path / "state").append(LINE)
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("where")(where)
    command = typer.main.get_command(app)
    return lambda *words: command.main(["where", *words], standalone_mode=False, obj=State())


def test_a_move_is_told_in_words(ask, capsys):
    """The address, the size, the location, the time and the rule are printed."""
    ask("s3://logs", "a.log")
    said = capsys.readouterr().out

    assert [] == [
        word
        for word in (
            "s3://cold/a.log/null",
            "2.0 KiB",
            "COLD",
            "moved at 2026-02-01T00:00:00Z",
            "by old",
            "run 7",
        )
        if word not in said
    ]


def test_a_move_is_told_to_programs(ask, capsys):
    """With --json each move is an object with the same facts."""
    ask("logs", "a.log", "--json")
    [found] = json.loads(capsys.readouterr().out)

    assert ("logs", "a.log", "s3://cold/a.log/null", "moved", 2048, ["old"], 7) == tuple(
        found[name] for name in ("bucket", "key", "url", "stage", "size", "rules", "run")
    )


def test_a_key_that_was_never_moved_is_not_found(ask):
    """Nothing known is an error of the caller's kind, exit code 2."""
    with pytest.raises(NotFound, match="nothing is known") as wrong:
        ask("logs", "b.log")

    assert 2 == wrong.value.exit_code
