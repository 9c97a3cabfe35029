"""Every numbered scenario and requirement of the seed has a test that names it, wherever that test lives."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
_NAMED = re.compile(r"(scenario|requirement)_(\d+_\d)")
SCENARIOS = ("1_0", "2_0", "3_0", "4_1", "4_2", "5_0")
REQUIREMENTS = tuple(f"{number}_0" for number in range(1, 12))


def numbers_in(text: str) -> set[tuple[str, str]]:
    """Give the numbers that the test functions of a module name."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    names = [one.name for one in functions if one.name.startswith("test_")]
    return {(found[1], found[2]) for name in names for found in _NAMED.finditer(name)}


def test_every_number_of_the_seed_is_named_by_a_test():
    """No scenario from 1.0 to 5.0 and no requirement from 1.0 to 11.0 is without a test."""
    texts = (module.read_text(encoding="utf-8") for module in TESTS.rglob("test_*.py"))
    named = {number for text in texts for number in numbers_in(text)}
    wanted = [("scenario", one) for one in SCENARIOS] + [("requirement", one) for one in REQUIREMENTS]

    assert [] == [one for one in wanted if one not in named]


def test_a_number_in_a_comment_does_not_count():
    """Only test functions count."""
    assert {("scenario", "1_0")} == numbers_in("# def test_requirement_2_0\ndef test_scenario_1_0_x(): ...")
