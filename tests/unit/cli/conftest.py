"""A folder to run commands in, and a small lake."""

import pytest

from ebbtide.cli.main import run


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in an empty folder with a state root of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EBBTIDE_NOW", raising=False)
    return tmp_path


@pytest.fixture
def lake(here):
    """Make a repository with two committed objects and a policy."""
    (here / "data" / "raw").mkdir(parents=True)
    (here / "data" / "raw" / "a.csv").write_text("a")
    (here / "data" / "b.csv").write_text("b")
    (here / "policy.json").write_text('{"raw": {"prefix": "raw/", "days": 3}}')
    for command in (
        ["init"],
        ["lake", "create", "sales", "./lake"],
        ["lake", "upload", "sales", "data"],
        ["lake", "commit", "sales", "-m", "first"],
        ["lake", "policy", "set", "sales", "policy.json"],
    ):
        assert 0 == run(command)
    return here
