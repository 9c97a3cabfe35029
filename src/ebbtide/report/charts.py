"""Charts and figures: four numbers, the tide line, and bar charts that are tables with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ebbtide.core.decision import Outcome
from ebbtide.core.display import Words
from ebbtide.core.format import count, human_bytes, percent
from ebbtide.core.manifest import Summary, Tally
from ebbtide.report.results import Headline, Results, done_of, tally_of
from ebbtide.report.samples import Name, name

T = TypeVar("T")
AT_ONCE = 8
"""How many rows are shown; the others unfold."""

_SMALLEST = 0.8
"""The smallest width of a bar that can still be seen, in percent."""


@dataclass(frozen=True)
class Bar:
    """One row: its label, its numbers, and the lengths of its bars in percent of the longest."""

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
    """What the numbers count."""

    @property
    def shown(self) -> tuple[Bar, ...]:
        """The rows that are shown."""
        return shown(self.bars)

    @property
    def folded(self) -> tuple[Bar, ...]:
        """The rows that unfold."""
        return self.bars[len(self.shown) :]


def due_charts(summary: Summary, words: Words) -> tuple[Chart, ...]:
    """Return the four charts of a plan: by rule, prefix, age, and branch or action."""
    due = summary.due
    rules, branches = _bars(summary.by_rule, due), _bars(summary.by_label.get("branch", ()), due)
    prefixes = _bars(summary.by_prefix, due, _rest(summary.by_prefix, due))
    ages = Chart("By age", "Age", f"Since each {words.item} was written.", _bars(summary.by_age, due))
    once = f"Each {words.item} counts once, under "
    if words.has_branches or summary.by_label.get("branch"):
        shared = "An object counts under each {} it has, so the rows may add up to more than the plan."
        charts = (
            Chart("By rule", "Rule", shared.format("rule"), rules),
            Chart("By prefix", "Prefix", f"{once}its first path.", prefixes),
            Chart("By branch", "Branch", shared.format("branch"), branches),
            ages,
        )
    else:
        actions = _bars(summary.by_action, due)
        charts = (
            Chart("By action", "Action", f"{once}the action that is planned.", actions),
            Chart("By rule", "Rule", f"{once}the rule that decides.", rules),
            Chart("By prefix", "Prefix", f"{once}the first folders of its key.", prefixes),
            ages,
        )
    return tuple(replace(chart, counted=f"{words.item}s") for chart in charts)


def held_chart(summary: Summary, words: Words) -> Chart:
    """Return the chart of reasons for which matched items are kept."""
    bars = _bars(summary.held_by_reason, summary.held)
    note = f"Each {words.item} counts once, under the reason that holds it."
    return Chart("By reason", "Reason", note, bars, both=True, counted=f"{words.item}s")


def _bars(tallies: Sequence[Tally], whole: Tally, rest: Sequence[Tally] = ()) -> tuple[Bar, ...]:
    """Scale bars to the rows that are shown; the rest of a table that was cut has no bar."""
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
    """Return the rows that are shown; a single remaining row is shown too."""
    return rows if len(rows) <= AT_ONCE + 1 else rows[:AT_ONCE]


def _width(value: int, most: int) -> float:
    if value <= 0 or most <= 0:
        return 0.0
    return round(min(100, max(_SMALLEST, 100 * value / most)), 2)


def _rest(tallies: Sequence[Tally], due: Tally) -> tuple[Tally, ...]:
    """Return the remainder of a table that was cut, so that its rows add up."""
    objects = due.objects - sum(tally.objects for tally in tallies)
    size = due.bytes - sum(tally.bytes for tally in tallies)
    return (Tally("(everything else)", objects, max(0, size)),) if tallies and objects > 0 else ()


@dataclass(frozen=True)
class Figure:
    """One number with its label and a note."""

    id: str
    label: str
    value: str
    note: str
    tone: str = "plan"


@dataclass(frozen=True)
class Stretch:
    """One part of the tide line, with its start and width in percent."""

    kind: str
    label: str
    objects: str
    share: str
    start: float
    width: float


def figures(
    summary: Summary, head: Headline, found: Results, outcomes: Mapping[str, Tally], words: Words
) -> tuple[Figure, ...]:
    """Return four numbers: how much goes, how much is held, of how much, and how many need attention."""
    due, held = summary.due, summary.held
    taken = percent(due.objects, summary.known_objects)
    return (
        _freed(summary, head, outcomes, words),
        Figure("held", "Held", human_bytes(held.bytes), f"{words.items(held.objects)} kept for a reason"),
        Figure("known", words.known, count(summary.known_objects), f"this plan takes {taken} of them"),
        _attention(head, found, words),
    )


def _freed(summary: Summary, head: Headline, outcomes: Mapping[str, Tally], words: Words) -> Figure:
    due = summary.due
    if not head.attempted:
        label, size = words.would, summary.freed if words.frees_apart else due
        label = "Would free" if words.frees_apart else label
        return Figure("freed", label, human_bytes(size.bytes), words.items(due.objects), "sea")
    done = done_of(outcomes)
    note = f"{words.items(done.objects)} of {count(due.objects)} planned"
    if words.frees_apart:
        freed = tally_of(outcomes, Outcome.DELETED)
        return Figure("freed", "Freed", human_bytes(freed.bytes), note, "sea")
    return Figure("freed", words.did, human_bytes(done.bytes), note, "sea")


def _attention(head: Headline, found: Results, words: Words) -> Figure:
    label = "Need attention"
    if found.attention:
        parts = [f"{row.objects} {row.label}" for row in found.rows if row.tone == "bad"]
        return Figure("attention", label, count(found.attention), ", ".join(parts), "bad")
    note = f"no {words.item} was refused or failed" if head.attempted else "nothing was attempted yet"
    return Figure("attention", label, "0", note, "good" if head.attempted else "plan")


def tide(summary: Summary, words: Words, *, attempted: bool) -> tuple[Stretch, ...]:
    """Return the parts of the tide line: due, held and the rest. Counts may be estimates and are capped."""
    due, held = summary.due.objects, summary.held.objects
    whole = max(summary.known_objects, due + held)
    if not whole:
        return ()
    parts = (
        ("goes", words.planned_part if attempted else words.part, due),
        ("held", "Held", held),
        ("rest", f"Other known {words.item}s", whole - due - held),
    )
    stretches, start = [], 0.0
    for kind, label, objects in parts:
        width = round(100 * objects / whole, 3)
        stretches.append(
            Stretch(kind, label, count(objects), percent(objects, whole), round(start, 3), width)
        )
        start += width
    return tuple(stretches)
