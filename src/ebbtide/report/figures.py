"""The figures at the top of the page: four numbers, and the tide line that sets them against the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.core.decision import Outcome
from ebbtide.core.format import count, human_bytes, percent
from ebbtide.core.manifest import Summary, Tally
from ebbtide.core.words import Words
from ebbtide.report.results import Results
from ebbtide.report.story import Headline, done_of, tally_of


@dataclass(frozen=True)
class Figure:
    """One number with its label and a line that puts it in place."""

    id: str
    label: str
    value: str
    note: str
    tone: str = "plan"


@dataclass(frozen=True)
class Stretch:
    """One part of the tide line; where it starts and how long it is, in percent."""

    kind: str
    label: str
    objects: str
    share: str
    start: float
    width: float


def figures(
    summary: Summary, head: Headline, found: Results, outcomes: Mapping[str, Tally], words: Words
) -> tuple[Figure, ...]:
    """Pick the four numbers that answer: how much, what stays, out of what, and is anything wrong."""
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
    """Lay what goes, what is held and the rest end to end; counts may be estimates, so none overflows."""
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
