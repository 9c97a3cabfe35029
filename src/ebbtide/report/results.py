"""What really happened, outcome by outcome, and whether that accounts for the whole plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.ledger.runs import RunState
from ebbtide.plan.decision import Outcome
from ebbtide.plan.manifest import Tally
from ebbtide.report.format import count, human_bytes, plural, printable
from ebbtide.report.story import tally_of
from ebbtide.report.words import LAKE, LAKE_WITH_BIN, REGISTRY, Words

_MEANINGS: Mapping[str, str] = {
    Outcome.DELETED: "Gone, and its space is free.",
    Outcome.RECYCLED: "Set aside in the recycle bin; 'ebb restore' brings it back until its days are over.",
    Outcome.ABSENT: "Was already gone when its turn came. Nothing to do.",
    Outcome.CHANGED: "Needed or rewritten since the plan was made, so it was left alone.",
    Outcome.DENIED: "The store refused for want of permission. Still there; grant it, then apply again.",
    Outcome.FAILED: "The store failed, even after retries. Still there; apply again.",
    Outcome.NOT_REACHED: "Not tried, because others had failed. Still there; apply again.",
}
_IN_BUCKETS: Mapping[str, str] = {
    Outcome.DELETED: "Done as planned: ended, moved or aborted.",
    Outcome.RECYCLED: "Set aside in the recycle bin; 'ebb restore' brings it back until its days are over.",
    Outcome.ABSENT: "Was done or gone already when its turn came. Nothing to do.",
    Outcome.CHANGED: "Not what it was when the plan was made, so it was left alone.",
    Outcome.DENIED: "Refused: it is not permitted, or cannot be done. As it was; see its reason.",
    Outcome.FAILED: "The store failed, even after retries. As it was; apply again.",
    Outcome.NOT_REACHED: "Not tried, because others had failed. As it was; apply again.",
}
_IN_REGISTRIES: Mapping[str, str] = {
    Outcome.DELETED: "Gone for good: nothing of it is in the recycle bin.",
    Outcome.RECYCLED: "Set aside in the recycle bin; 'ebb restore' brings it back until its days are over.",
    Outcome.ABSENT: "Was gone already when its turn came. Nothing to do.",
    Outcome.CHANGED: "Needed again, or not what it was when the plan was made, so it was left alone.",
    Outcome.DENIED: "Refused: it is not permitted, or the registry cannot do it. As it was; see its reason.",
    Outcome.FAILED: "The registry failed, even after retries. Apply again.",
    Outcome.NOT_REACHED: "Not tried, because the registry had failed at others. As it was; apply again.",
}
_RARE = {Outcome.RECYCLED, Outcome.RESTORED, Outcome.TAKEN}
"""What most runs cannot come to: shown only where it did."""
_TONES: Mapping[str, str] = {
    Outcome.DELETED: "good",
    Outcome.RECYCLED: "good",
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
    meanings = {LAKE: _MEANINGS, LAKE_WITH_BIN: _MEANINGS, REGISTRY: _IN_REGISTRIES}.get(words, _IN_BUCKETS)
    return Results(
        rows=tuple(_row(label, tally_of(outcomes, label), meanings) for label in labels),
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
