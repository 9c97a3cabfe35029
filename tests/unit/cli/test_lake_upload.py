"""`ebb lake upload`: what is uploaded of a folder with symbolic links in it."""

import json

import pytest

from ebbtide.cli.main import run


@pytest.fixture
def folder(here):
    """Make an empty repository, and a folder with two files, links and a secret outside it."""
    (here / "data" / "sub").mkdir(parents=True)
    (here / "data" / "a").write_text("a")
    (here / "data" / "sub" / "b").write_text("b")
    (here / "outside").mkdir()
    (here / "outside" / "secret").write_text("secret")
    (here / "data" / "sub" / "link").symlink_to(here / "outside" / "secret")
    (here / "data" / "away").symlink_to(here / "outside")
    for command in (["init"], ["lake", "create", "sales", "./lake"]):
        assert 0 == run(command)
    return here / "data"


def keys(capsys):
    """List the keys of main."""
    capsys.readouterr()
    run(["lake", "ls", "sales", "--json"])
    return [entry["key"] for entry in json.loads(capsys.readouterr().out)]


def test_links_are_skipped_with_a_warning(folder, capsys):
    """A link is not followed; how many there are and the first names are said on standard error."""
    code = run(["lake", "upload", "sales", "data", "in/"])
    said = capsys.readouterr()

    assert 0 == code
    assert "warning: skipped 2 symbolic links: in/away, in/sub/link" in said.err
    assert ["in/a", "in/sub/b"] == keys(capsys)


def test_links_are_named_in_json(folder, capsys):
    """A program finds the links that were skipped in the answer."""
    capsys.readouterr()
    run(["lake", "upload", "sales", "data", "--json"])

    assert {"uploaded": 2, "branch": "main", "skipped_links": ["away", "sub/link"]} == json.loads(
        capsys.readouterr().out
    )


def test_links_are_followed_if_asked_for(folder, capsys):
    """With --follow-links what they point to is uploaded under their names."""
    code = run(["lake", "upload", "sales", "data", "--follow-links"])

    assert 0 == code
    assert ["a", "away/secret", "sub/b", "sub/link"] == keys(capsys)


@pytest.mark.parametrize(
    ("target", "words"),
    [("..", "would never end"), (".", "would never end"), ("nowhere", "points to nothing")],
)
def test_a_loop_or_a_broken_link_uploads_nothing(folder, capsys, target, words):
    """A link that leads back, or nowhere, ends a followed upload before its first object."""
    (folder / "sub" / "z").symlink_to(target)

    code = run(["lake", "upload", "sales", "data", "--follow-links"])

    assert 2 == code
    assert words in capsys.readouterr().err
    assert [] == keys(capsys)


def test_a_link_that_is_named_is_refused(folder, capsys):
    """A source that is itself a link needs --follow-links too."""
    codes = [run(["lake", "upload", "sales", f"data/{name}", *more]) for name, more in SOURCES]

    assert [2, 2, 0] == codes
    assert ["link"] == keys(capsys)


SOURCES = [("away", []), ("sub/link", []), ("sub/link", ["--follow-links"])]
