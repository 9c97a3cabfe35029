"""`ebb plan --deleted`: what it goes with, and which repository it means. Nothing here starts Spark."""

import pytest

from ebbtide.cli.main import run


@pytest.mark.parametrize(
    "more",
    [["--uncommitted"], ["--retention"], ["--all"], ["--branch", "main"], ["--clean"], ["--full"]],
    ids=lambda more: more[0],
)
def test_a_deleted_repository_is_planned_by_nothing_else(lake, more, capsys):
    """Every other choice of what is looked for is refused, before anything is asked."""
    run(["lake", "delete", "sales", "--yes"])
    code = run(["plan", "lake:sales", "--deleted", *more])

    assert 2 == code
    assert "--deleted goes with no other choice" in capsys.readouterr().err


def test_a_living_repository_is_not_meant(lake, capsys):
    """A repository that was not deleted is not collected."""
    code = run(["plan", "lake:sales", "--deleted"])

    assert 2 == code
    assert "there is no deleted repository 'sales'" in capsys.readouterr().err


def test_a_deleted_repository_is_not_meant_without_the_option(lake, capsys):
    """Without --deleted a deleted repository is none."""
    run(["lake", "delete", "sales", "--yes"])
    code = run(["plan", "lake:sales"])

    assert 2 == code
    assert "no repository 'sales'" in capsys.readouterr().err
