"""
A seed draws the same examples in every process.

Hypothesis mixes numbers and texts into its examples that it finds in the source of whatever modules of ours
are loaded by then. Which these are depends on the tests that ran before, and so would the examples of a seed,
and whether there are enough of a kind among them.
"""

from __future__ import annotations

from hypothesis.internal.conjecture import providers
from sortedcontainers import SortedSet

_NONE = providers.Constants(integers=SortedSet(), floats=SortedSet(), bytes=SortedSet(), strings=SortedSet())


def draw_alike() -> None:
    """Let no loaded module have a part in what is drawn; tests/unit/test_seeds.py sees whether that works."""
    providers._get_local_constants = lambda: _NONE
