"""`ebb lake`: changing what is on a branch."""

import json

import pytest

from ebbtide.cli.main import run


def keys(capsys):
    """List the keys of main."""
    capsys.readouterr()
    run(["lake", "ls", "sales", "--json"])
    return [entry["key"] for entry in json.loads(capsys.readouterr().out)]


def test_keys_are_removed_and_brought_back_by_a_reset(lake, capsys):
    """What is removed is gone from the branch until it is committed or reset."""
    codes = [run(["lake", "rm", "sales", "b.csv"])]
    after = keys(capsys)
    codes.append(run(["lake", "reset", "sales"]))

    assert [0, 0] == codes
    assert ["raw/a.csv"] == after
    assert ["b.csv", "raw/a.csv"] == keys(capsys)


def test_a_head_is_moved_back(lake, capsys):
    """With a ref the branch's head moves there."""
    code = run(["lake", "reset", "sales", "--to", "main~1"])

    assert 0 == code
    assert [] == keys(capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["lake", "rm", "sales", "none.csv"],
        ["lake", "reset", "sales", "-b", "none"],
        ["lake", "reset", "sales", "--prefix", "raw/", "--to", "main~1"],
    ],
)
def test_what_cannot_be_done_is_refused(lake, command, capsys):
    """A key or branch that is not there, or two ways to reset at once, is bad input."""
    code = run(command)

    assert 2 == code
    assert "what to do" in capsys.readouterr().err
