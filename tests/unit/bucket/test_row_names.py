"""Every row of the semantics has a test that names it, wherever that test lives."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
ROWS = range(1, 36)
_NAMED = re.compile(r"test_row_(\d\d)[a-z]?_\w+")


def rows_named_in(text: str) -> set[int]:
    """Give the rows that the test functions of a module name."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return {int(named[1]) for one in functions if (named := _NAMED.fullmatch(one.name))}


def test_every_row_is_named_by_a_test():
    """No row from 1 to 35 is without a test that carries its number."""
    texts = (module.read_text(encoding="utf-8") for module in TESTS.rglob("test_*.py"))
    named = {row for text in texts if "def test_row_" in text for row in rows_named_in(text)}

    assert [] == [row for row in ROWS if row not in named]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("def test_row_07_plain(): ...", {7}, id="a row"),
        pytest.param("def test_row_08a_midnight(): ...", {8}, id="a part of a row"),
        pytest.param("class A:\n    def test_row_09_date(self): ...", {9}, id="in a class"),
        pytest.param("# def test_row_10_days(): ...", set(), id="a comment"),
        pytest.param("def row_11_helper(): ...", set(), id="no test"),
    ],
)
def test_only_test_functions_count(text, expected):
    """A number in a comment or in the name of something else is no test."""
    assert expected == rows_named_in(text)
