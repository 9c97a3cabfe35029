"""Bar charts that are tables: every bar stands in the row that gives its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ebbtide.core.format import count, human_bytes, percent
from ebbtide.core.manifest import Summary, Tally
from ebbtide.core.words import Words
from ebbtide.report.names import Name, name

T = TypeVar("T")
AT_ONCE = 8
"""So many rows stand open; the rest unfolds."""

_SMALLEST = 0.8
"""The width, in percent, below which something would look like nothing."""


@dataclass(frozen=True)
class Bar:
    """One row: its label, its numbers, and how long its bars are in percent of the longest."""

    label: Name
    size: str
    objects: str
    share: str
    width: float
    objects_width: float


@dataclass(frozen=True)
class Chart:
    """One chart; `both` draws a second bar for objects beside the one for bytes."""

    title: str
    column: str
    note: str
    bars: tuple[Bar, ...]
    both: bool = False
    counted: str = "objects"
    """What its numbers count."""

    @property
    def shown(self) -> tuple[Bar, ...]:
        """The rows that stand open."""
        return shown(self.bars)

    @property
    def folded(self) -> tuple[Bar, ...]:
        """The rows that unfold."""
        return self.bars[len(self.shown) :]


def due_charts(summary: Summary, words: Words) -> tuple[Chart, ...]:
    """Draw what a plan does from four sides."""
    due = summary.due
    rules, branches = _bars(summary.by_rule, due), _bars(summary.by_branch, due)
    prefixes = _bars(summary.by_prefix, due, _rest(summary.by_prefix, due))
    ages = Chart("By age", "Age", f"Since each {words.item} was written.", _bars(summary.by_age, due))
    once = f"Each {words.item} counts once, under "
    if words.has_branches or summary.by_branch:
        shared = "An object counts under each {} it has, so the rows may add up to more than the plan."
        charts = (
            Chart("By rule", "Rule", shared.format("rule"), rules),
            Chart("By prefix", "Prefix", f"{once}its first path.", prefixes),
            Chart("By branch", "Branch", shared.format("branch"), branches),
            ages,
        )
    else:
        actions = _bars(summary.by_collector, due)
        charts = (
            Chart("By action", "Action", f"{once}what is to be done with it.", actions),
            Chart("By rule", "Rule", f"{once}the rule that decides.", rules),
            Chart("By prefix", "Prefix", f"{once}the first folders of its key.", prefixes),
            ages,
        )
    return tuple(replace(chart, counted=f"{words.item}s") for chart in charts)


def held_chart(summary: Summary, words: Words) -> Chart:
    """Draw why things that a rule touched are kept."""
    bars = _bars(summary.held_by_reason, summary.held)
    note = f"Each {words.item} counts once, under what holds it."
    return Chart("By reason", "Reason", note, bars, both=True, counted=f"{words.item}s")


def _bars(tallies: Sequence[Tally], whole: Tally, rest: Sequence[Tally] = ()) -> tuple[Bar, ...]:
    """Draw bars to the scale of the rows that stand open; what a cut table leaves out has no bar."""
    open_rows = shown((*tallies, *rest))
    scale = [tally for tally in open_rows if tally not in rest] or open_rows
    most_bytes = max((tally.bytes for tally in scale), default=0)
    most_objects = max((tally.objects for tally in scale), default=0)
    return tuple(
        Bar(
            label=name(tally.label),
            size=human_bytes(tally.bytes),
            objects=count(tally.objects),
            share=percent(tally.bytes, whole.bytes),
            width=0.0 if tally in rest else _width(tally.bytes, most_bytes),
            objects_width=0.0 if tally in rest else _width(tally.objects, most_objects),
        )
        for tally in (*tallies, *rest)
    )


def shown(rows: tuple[T, ...]) -> tuple[T, ...]:
    """Give the rows that stand open; a rest of one is not worth folding away."""
    return rows if len(rows) <= AT_ONCE + 1 else rows[:AT_ONCE]


def _width(value: int, most: int) -> float:
    if value <= 0 or most <= 0:
        return 0.0
    return round(min(100, max(_SMALLEST, 100 * value / most)), 2)


def _rest(tallies: Sequence[Tally], due: Tally) -> tuple[Tally, ...]:
    """Account for what a table that was cut leaves out, so that its rows add up."""
    objects = due.objects - sum(tally.objects for tally in tallies)
    size = due.bytes - sum(tally.bytes for tally in tallies)
    return (Tally("(everything else)", objects, max(0, size)),) if tallies and objects > 0 else ()
