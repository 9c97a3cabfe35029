"""What every command has in common."""

import pytest
from tests.services.command_tree import all_commands

from ebbtide.cli.main import run

COMMANDS = all_commands()


def test_all_commands_are_found():
    """The walk over the commands reaches those of groups in groups."""
    assert {"plan make", "lake policy set", "image role grant", "bucket rules check"} <= set(COMMANDS)


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_every_command_speaks_json(words):
    """Programs can read what any command prints."""
    assert "--json" in [name for parameter in COMMANDS[words].params for name in parameter.opts]


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_every_command_has_help_that_fits_a_terminal(words, capsys, monkeypatch):
    """Help explains the command and its options in lines of at most 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    code = run([*words.split(), "--help"])
    text = capsys.readouterr().out

    assert 0 == code
    assert text.startswith("Usage: ebb ")
    assert "--json" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_help_of_plan_shows_how_to_plan(capsys):
    """`ebb plan --help` is about planning, not about the names of subcommands."""
    code = run(["plan", "--help"])
    text = capsys.readouterr().out

    assert 0 == code
    assert all(word in text for word in ("--uncommitted", "--rules-from", "--running", "ebb plan show PLAN"))
    assert "ebb plan [OPTIONS]" in text
