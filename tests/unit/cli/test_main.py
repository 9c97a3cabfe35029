"""The command line: help, exit codes, errors in words."""

import json

import pytest

from ebbtide.cli.console import safe, say
from ebbtide.cli.main import COMMANDS, run


def test_help_lists_every_command_and_the_exit_codes(capsys):
    """`ebb --help` names every subcommand and says what exit codes mean."""
    code = run(["--help"])
    text = capsys.readouterr().out

    assert 0 == code
    assert all(name in text for name in COMMANDS)
    assert "stopped by a safety check" in text


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command, capsys):
    """Every subcommand can be loaded and explains itself."""
    assert 0 == run([command, "--help"])
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["frobnicate"], "No such command"),
        (["plan"], ""),
        (["plan", "nonsense"], "'nonsense' is no target"),
        (["plan", "lake:nowhere"], "nowhere"),
        (["plan", "show", "99"], "no plan"),
        (["plan", "show", "latest"], "no plan yet"),
        (["apply", "what"], "names no plan"),
        (["apply", "99"], "no plan"),
        (["report", "99"], "no plan"),
        (["explain", "bucket:x", "k"], "is no target"),
        (["simulate", "lake", "nowhere.json"], "cannot be read"),
        (["policy", "check", "policy.txt"], "cannot be read"),
        (["lake", "commit", "nowhere", "-m", "x"], "nowhere"),
        (["lake", "upload", "nowhere", "no-such-file"], "is not there"),
        (["--config", "nowhere.toml", "runs"], "cannot be read"),
        (["lake", "create", "BAD NAME", "./x"], "BAD NAME"),
    ],
)
def test_bad_input_is_a_message_and_exit_code_2(command, words, capsys):
    """Bad input says what is wrong and what to do, changes nothing, and is never a traceback."""
    code = run(command)
    error = capsys.readouterr().err

    assert 2 == code
    assert words in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("world", "words"),
    [
        ("[]", "not a table"),
        ("{}", "no policy"),
        ('{"policy": {}, "comits": []}', "did you mean 'commits'"),
        ('{"policy": {}, "branches": {"main": "c1"}}', "no commit of this world"),
        ('{"policy": {}, "commits": [{"id": "a", "parents": ["b"], "created": "1998-01-01"}]}', "parent"),
        ('{"policy": {}, "commits": [{"id": "a", "created": "soon"}]}', "is not a time"),
        (
            '{"policy": {}, "commits": [{"id": "a", "created": "1998-01-01", "entries": {"k": {}}}]}',
            "address",
        ),
        ('{"policy": {"r": {"days": 1}}}', "no prefix"),
        ("{", "not readable"),
    ],
)
def test_a_malformed_world_is_named(here, world, words, capsys):
    """A world that is wrong names the place, before Spark starts."""
    (here / "world.json").write_text(world)
    code = run(["simulate", "lake", "world.json", "--now", "1998-01-20"])

    assert 2 == code
    assert words in capsys.readouterr().err


def test_a_lake_from_the_command_line(lake, capsys):
    """Objects are uploaded, committed, listed and read; every command speaks JSON too."""
    capsys.readouterr()
    run(["lake", "ls", "sales", "--json"])
    listed = [entry["key"] for entry in json.loads(capsys.readouterr().out)]
    run(["lake", "cat", "sales", "raw/a.csv"])
    read = capsys.readouterr().out
    run(["lake", "branch", "sales", "dev", "--json"])
    branches = json.loads(capsys.readouterr().out)
    run(["lake", "log", "sales", "--json"])
    messages = [commit["message"] for commit in json.loads(capsys.readouterr().out)]
    run(["lake", "policy", "get", "sales", "--json"])
    policy = json.loads(capsys.readouterr().out)

    assert ["b.csv", "raw/a.csv"] == listed
    assert "a" == read
    assert {"main", "dev"} == set(branches)
    assert "first" == messages[0]
    assert {"raw": {"prefix": "raw/", "days": 3}} == policy


def test_a_bad_policy_is_not_set(lake, capsys):
    """A policy that cannot be followed leaves the old one in place."""
    (lake / "bad.json").write_text('{"raw": {"prefix": "raw/", "days": 0}}')
    code = run(["lake", "policy", "set", "sales", "bad.json"])
    capsys.readouterr()
    run(["lake", "policy", "get", "sales", "--json"])

    assert 2 == code
    assert 3 == json.loads(capsys.readouterr().out)["raw"]["days"]


def test_a_rule_that_matches_everything_is_pointed_out(lake, capsys):
    """An empty prefix is allowed and reported as matching everything."""
    (lake / "all.json").write_text('{"r": {"prefix": "", "days": 9}}')
    code = run(["policy", "check", "all.json"])

    assert 0 == code
    assert "matches everything" in capsys.readouterr().out


def test_no_colour_codes_off_a_terminal(lake, capsys):
    """What is piped holds no escape sequences."""
    capsys.readouterr()
    run(["runs"])
    run(["lake", "list"])

    assert "\x1b" not in capsys.readouterr().out


def test_init_does_not_overwrite(lake, capsys):
    """A folder that is set up is left alone."""
    assert 2 == run(["init"])
    assert "already there" in capsys.readouterr().err


def test_a_tag_is_no_picture(capsys):
    """Names are printed as they are, also those that some libraries take for emoji."""
    say(f"{safe('team/app:one')}: pinned")

    assert "team/app:one: pinned\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "command"),
    [(["lake", "create", "x"], "ebb lake create"), (["lake", "creat"], "ebb lake"), (["--nope"], "ebb")],
)
def test_a_command_that_was_called_wrongly_names_its_own_help(words, command, capsys):
    """Who forgot an argument is sent to the help of that very command, not to the list of all."""
    code = run(words)

    assert 2 == code
    assert f"see '{command} --help'" in capsys.readouterr().err
