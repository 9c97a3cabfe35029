"""Prefixes, path-safe names, and what opens no database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import BadInput, EnvironmentProblem
from ebbtide.state.database import Database
from ebbtide.targets.lake.catalog.names import after_prefix, path_safe
from ebbtide.targets.lake.catalog.schema import SCHEMA

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=4)


@given(TEXT, TEXT)
def test_after_prefix_separates_what_starts_with_it_from_what_does_not(prefix, key):
    """A key starts with a prefix exactly when it lies between the prefix and what comes after it."""
    end = after_prefix(prefix)

    between = key >= prefix and (end is None or key < end)

    assert key.startswith(prefix) == between


@pytest.mark.parametrize(
    ("name", "expected"),
    [("main", "main-1"), ("a/b.c", "a-b-c-1"), ("..", "branch-1"), ("x" * 99, "x" * 64 + "-1")],
)
def test_a_branch_is_one_safe_part_of_a_path(name, expected):
    """Whatever a branch is called, its folder has letters, digits, '_' and '-' only."""
    assert expected == path_safe(name, "1")


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "/plain/path"]
)
def test_a_url_that_opens_no_catalog_is_bad_input(url):
    """Anything but a SQLite file or PostgreSQL is refused with what to write instead."""
    with pytest.raises(BadInput, match=r"What to do: (use|name)"):
        Database(url, SCHEMA)


@pytest.mark.parametrize(
    "url", ["sqlite:////proc/no/all.db", "postgresql+psycopg://me:secret@127.0.0.1:1/db"]
)
def test_a_database_that_does_not_answer_says_so_without_its_password(url):
    """An unreachable database is a problem of the environment, told without secrets."""
    with pytest.raises(EnvironmentProblem, match=r"failed.*What to do") as caught:
        Database(url, SCHEMA)

    assert "secret" not in str(caught.value)
