"""`ebb lake delete` and what is left of a deleted repository."""

import io
import json

import pytest

from ebbtide.cli.main import run
from ebbtide.targets.lake.catalog.catalog import Catalog


class Terminal(io.StringIO):
    """Somebody at a terminal, who types this."""

    def isatty(self) -> bool:
        """Say that somebody is there."""
        return True


def names(capsys, *more: str) -> list[str]:
    """List the names of repositories."""
    capsys.readouterr()
    assert 0 == run(["lake", "list", "--json", *more])
    return [repo["name"] for repo in json.loads(capsys.readouterr().out)]


def test_a_repository_is_deleted_and_listed_as_such(lake, capsys):
    """A delete says where the objects are and what comes next, and the lists follow."""
    before = names(capsys, "--deleted")
    code = run(["lake", "delete", "sales", "--yes"])
    said = capsys.readouterr().out

    assert (0, []) == (code, before)
    assert f"file://{lake}/lake" in said
    assert "next: ebb plan lake:sales --deleted" in said
    assert ([], ["sales"]) == (names(capsys), names(capsys, "--deleted"))
    assert any((lake / "lake").rglob("repos/*/branches/*/*/*"))


def test_deleted_repositories_are_a_table(lake, capsys):
    """Without --json the list says what was deleted, where it was and when."""
    capsys.readouterr()
    run(["lake", "delete", "sales", "--yes", "--json"])
    gone = json.loads(capsys.readouterr().out)
    run(["lake", "list", "--deleted"])
    shown = capsys.readouterr().out

    assert {"name", "uid", "namespace", "deleted"} == set(gone)
    assert all(gone[column] in shown for column in ("name", "namespace"))
    assert f"{gone['deleted'][:19]}Z" in shown


def test_a_delete_without_anybody_there_needs_a_yes(lake, capsys, monkeypatch):
    """Off a terminal nothing is deleted unless --yes is said."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code = run(["lake", "delete", "sales"])

    assert 2 == code
    assert "--yes" in capsys.readouterr().err
    assert ["sales"] == names(capsys)


@pytest.mark.parametrize(
    ("typed", "code", "left"), [("y\n", 0, []), ("n\n", 1, ["sales"]), ("\n", 1, ["sales"])]
)
def test_a_delete_asks_on_a_terminal(lake, capsys, monkeypatch, typed, code, left):
    """Only a yes deletes."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    ended = run(["lake", "delete", "sales"])

    assert "branches, tags and commits of sales for good?" in capsys.readouterr().out
    assert (code, left) == (ended, names(capsys))


def test_what_is_not_there_is_not_deleted(lake, capsys):
    """An unknown repository is named, and one that was deleted before is said to be so."""
    codes = [run(["lake", "delete", "nowhere", "--yes"]), run(["lake", "delete", "sales", "--yes"])]
    capsys.readouterr()
    codes.append(run(["lake", "delete", "sales", "--yes"]))

    assert [2, 0, 2] == codes
    assert "collect its objects with 'ebb plan lake:sales --deleted'" in capsys.readouterr().err


def test_a_repository_is_not_deleted_under_a_run(lake, capsys):
    """While a run is deleting, the command stops with exit code 3 and names the run."""
    catalog = Catalog(f"sqlite:///{lake}/.ebbtide/catalog.db")
    catalog.close_fence("sales", "7")
    code = run(["lake", "delete", "sales", "--yes"])
    catalog.close()

    assert 3 == code
    assert "run 7 is deleting objects of 'sales'" in capsys.readouterr().err
    assert ["sales"] == names(capsys)


def test_a_new_repository_keeps_out_of_the_old_ones_place(lake, capsys):
    """The name may be used again at once, the folder only after its objects are collected."""
    run(["lake", "delete", "sales", "--yes"])
    codes = [run(["lake", "create", "sales", place]) for place in ("./lake", "./lake2")]

    assert [2, 0] == codes
    assert "still to be collected" in capsys.readouterr().err
    assert (["sales"], ["sales"]) == (names(capsys), names(capsys, "--deleted"))
