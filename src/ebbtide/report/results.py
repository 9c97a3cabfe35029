"""What really happened, outcome by outcome, and whether that accounts for the whole plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.core.decision import Outcome
from ebbtide.core.format import count, human_bytes, plural, printable
from ebbtide.core.manifest import Tally
from ebbtide.core.words import Words
from ebbtide.report.story import tally_of
from ebbtide.state.runs import RunState

_RARE = {Outcome.RECYCLED, Outcome.HIDDEN, Outcome.MOVED, Outcome.RESTORED, Outcome.TAKEN}
"""What most runs cannot come to: shown only where it did."""
_TONES: Mapping[str, str] = {
    Outcome.DELETED: "good",
    Outcome.RECYCLED: "good",
    Outcome.HIDDEN: "good",
    Outcome.MOVED: "good",
    Outcome.DENIED: "bad",
    Outcome.FAILED: "bad",
    Outcome.NOT_REACHED: "bad",
}


@dataclass(frozen=True)
class OutcomeRow:
    """One outcome: how often, how much, and what it means."""

    label: str
    objects: str
    size: str
    meaning: str
    tone: str
    is_none: bool


@dataclass(frozen=True)
class Results:
    """All outcomes, the sum in words, and whether that sum is as it should be."""

    rows: tuple[OutcomeRow, ...]
    sum_text: str
    sum_tone: str
    attention: int


def results(state: str, due: Tally, outcomes: Mapping[str, Tally], words: Words) -> Results:
    """Lay out the outcomes in their usual order; one that nobody expected comes last, never left out."""
    labels = [str(outcome) for outcome in Outcome if outcome not in _RARE or outcome in outcomes]
    labels += [label for label in outcomes if label not in labels]
    recorded = sum(tally.objects for tally in outcomes.values())
    text, tone = _sum(state, due.objects, recorded, words)
    return Results(
        rows=tuple(_row(label, tally_of(outcomes, label), words.meanings) for label in labels),
        sum_text=text,
        sum_tone=tone,
        attention=sum(tally_of(outcomes, outcome).objects for outcome in Outcome if not outcome.is_final),
    )


def _row(label: str, tally: Tally, meanings: Mapping[str, str]) -> OutcomeRow:
    return OutcomeRow(
        label=printable(label),
        objects=count(tally.objects),
        size=human_bytes(tally.bytes),
        meaning=meanings.get(label, "Not an outcome that this version of Ebbtide knows."),
        tone=_TONES.get(label, "plan") if tally.objects else "none",
        is_none=not tally.objects,
    )


def _sum(state: str, planned: int, recorded: int, words: Words) -> tuple[str, str]:
    text = f"{plural(recorded, 'outcome')} for {words.items(planned, 'planned')}"
    if recorded == planned:
        return f"{text}: they add up.", "good"
    if recorded > planned or state == RunState.SUCCEEDED:
        return (
            f"{text}: they do not add up. This is a defect of Ebbtide; keep this page and report it.",
            "bad",
        )
    missing = plural(planned - recorded, f"{words.item} has", f"{words.item}s have")
    more = f"may have {words.acted} more than stands here"
    caution = f"Outcomes are recorded wave by wave: an interrupted wave {more}."
    return f"{text}: {missing} no outcome yet. {caution}", "busy"
