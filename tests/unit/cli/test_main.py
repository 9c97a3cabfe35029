"""The command line: help, exit codes, errors in words."""

import io
import json
import shlex
import sys
from dataclasses import replace

import pytest
from tests.unit.report.sample_run import MANIFEST

from ebbtide.cli import plan
from ebbtide.cli.console import safe, say
from ebbtide.cli.main import COMMANDS, run
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput, NotFound
from ebbtide.core.manifest import Tally
from ebbtide.engine import log
from ebbtide.state.runs import Ledger


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
        ([], "'ebb' needs an argument"),
        (["plan"], "Missing argument 'TARGET'"),
        (["lake"], "'ebb lake' needs an argument"),
        (["plan", "nonsense"], "unknown target 'nonsense'"),
        (["plan", "lake:nowhere"], "nowhere"),
        (["plan", "show", "99"], "no plan"),
        (["plan", "show", "latest"], "no plan yet"),
        (["apply", "what"], "names no plan"),
        (["apply", "99"], "no plan"),
        (["report", "99"], "no plan"),
        (["explain", "bucket:x", "k"], "unknown target"),
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
        ('{"policy": {}, "branches": {"main": "c1"}}', "not a commit of this world"),
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
    run(["lake", "cat", "sales", "raw/a.csv", "--json"])
    whole = json.loads(capsys.readouterr().out)
    run(["lake", "branch", "sales", "dev", "--json"])
    branches = json.loads(capsys.readouterr().out)
    run(["lake", "log", "sales", "--json"])
    messages = [commit["message"] for commit in json.loads(capsys.readouterr().out)]
    run(["lake", "policy", "get", "sales", "--json"])
    policy = json.loads(capsys.readouterr().out)

    assert ["b.csv", "raw/a.csv"] == listed
    assert "a" == read
    assert ("raw/a.csv", 1, "YQ==") == (whole["key"], whole["size"], whole["content_base64"])
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


@pytest.mark.parametrize(
    "endpoint", ["localhost:9000", "minio", "ftp://host", "http://", "https://host:99999"]
)
def test_an_endpoint_that_is_no_web_address_is_bad_input(here, endpoint, capsys):
    """The endpoint of a store has a scheme and a host; one without is the user's mistake, not a defect."""
    (here / "ebbtide.toml").write_text(f'[store]\nendpoint = "{endpoint}"\n')
    code = run(["plan", "s3://logs", "--rules-from", "bucket"])
    error = capsys.readouterr().err

    assert 2 == code
    assert f"the endpoint {endpoint!r} is not a web address" in error
    assert "https://HOST[:PORT]" in error


def test_errors_are_json_after_json(capsys):
    """With --json the error is one JSON object on stderr, with what, why, fix and the exit code."""
    code = run(["plan", "nonsense", "--json"])
    error = json.loads(capsys.readouterr().err)["error"]

    assert (2, 2) == (code, error["exit_code"])
    assert "nonsense" in error["what"]
    assert {"what", "why", "fix", "details", "exit_code"} == set(error)


def test_an_answer_of_no_is_no_interruption(lake, capsys, monkeypatch):
    """Who does not confirm is told that nothing was changed."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    code = run(["lake", "delete", "sales"])

    assert 1 == code
    assert "not confirmed; nothing was changed" in capsys.readouterr().err


def test_the_next_command_can_be_pasted(here, capsys):
    """A printed command stands alone on its line, quoted, with the configuration that was named."""
    (here / "my settings.toml").write_text("")
    run(["--config", "my settings.toml", "lake", "create", "sales", "./lake"])
    (here / "it's.csv").write_text("a")
    capsys.readouterr()
    run(["--config", "my settings.toml", "lake", "upload", "sales", "it's.csv"])
    said = [line.removeprefix("next: ") for line in capsys.readouterr().out.splitlines() if "next:" in line]

    assert ["ebb --config 'my settings.toml' lake commit sales -m 'what changed'"] == said
    assert 0 == run(shlex.split(said[0])[1:])


def planned(here, *targets):
    """Record a plan for each target."""
    ledger = Ledger(f"sqlite:///{here}/.ebbtide/ledger.db")
    for target in targets:
        run_id = ledger.begin(target, target, "test", "{}", ledger._clock())
        ledger.planned(run_id, "hash", 0, 0)
    return State()


def test_a_target_and_latest_name_its_last_plan(here):
    """TARGET:latest is read from the right, so that a target may have a port."""
    state = planned(
        here, "lake:sales", "s3://logs", "oci://localhost:5000", "oci://localhost:5000/app", "lake:b"
    )
    ledger = state.ledger
    ledger.begin("lake:sales", "lake:sales", "test", "{}", ledger._clock())
    names = ("latest", "lake:sales:latest", "s3://logs:latest", "oci://localhost:5000:latest")

    assert [5, 1, 2, 3] == [state.run_id(name) for name in names]
    assert 4 == state.run_id("oci://localhost:5000/app:latest")
    with pytest.raises(NotFound, match="no plan for lake:nowhere"):
        state.run_id("lake:nowhere:latest")
    with pytest.raises(BadInput, match="unknown target 'oci'"):
        state.run_id("oci:latest")


def test_with_a_detailed_exit_code_every_error_is_1(capsys):
    """As terraform's: 2 means that something is due, so that bad input is 1, and the message has its own."""
    code = run(["plan", "lake:nowhere", "--detailed-exitcode"])

    assert 1 == code
    assert "the exit code is 2 without --detailed-exitcode" in capsys.readouterr().err


@pytest.mark.parametrize(("due", "expected"), [(0, 0), (3, 2)])
def test_a_detailed_exit_code_says_whether_something_is_due(lake, capsys, monkeypatch, due, expected):
    """As terraform's: 0 if nothing is due, 2 if something is; without the option both are 0."""
    summary = replace(MANIFEST.summary, due=Tally("due", due, due))
    made = replace(MANIFEST, summary=summary)
    monkeypatch.setattr(plan, "plan_or_ask", lambda *_, **__: made)

    assert expected == run(["plan", "lake:sales", "--detailed-exitcode"])
    assert 0 == run(["plan", "lake:sales"])


def test_the_log_of_the_settings_is_open_while_a_command_runs(here, monkeypatch, capsys):
    """Any command writes to the log that the settings name, and nothing is written after it has ended."""
    monkeypatch.setenv("EBBTIDE_LOG__LEVEL", "info")
    monkeypatch.setenv("EBBTIDE_LOG__FORMAT", "json")
    monkeypatch.setenv("EBBTIDE_LOG__FILE", str(here / "logs" / "ebb.log"))
    monkeypatch.setattr("ebbtide.cli.runs.say", lambda text: log.write("runs listed", text=text))
    code = run(["runs"])
    log.write("after the command")
    lines = [json.loads(line) for line in (here / "logs" / "ebb.log").read_text().splitlines()]

    assert (0, "") == (code, capsys.readouterr().err)
    assert ["runs listed"] == [line["event"] for line in lines]


def test_a_log_that_cannot_be_written_stops_the_command(here, monkeypatch, capsys):
    """A log below a file stops a command before it does anything, with the path of the log."""
    (here / "file").touch()
    monkeypatch.setenv("EBBTIDE_LOG__LEVEL", "info")
    monkeypatch.setenv("EBBTIDE_LOG__FILE", str(here / "file" / "ebb.log"))

    assert 1 == run(["lake", "create", "sales", "./sales"])
    assert "ebb.log cannot be written" in capsys.readouterr().err
    assert not (here / "sales").exists()
