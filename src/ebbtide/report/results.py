"""What a run did, in words and numbers: the headline, next steps, and the table of outcomes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.core.decision import DELETED_REPOSITORY, Outcome
from ebbtide.core.display import Words
from ebbtide.core.format import count, human_bytes, plural, printable
from ebbtide.core.manifest import Manifest, Summary, Tally
from ebbtide.state.runs import RunState
from ebbtide.targets.kinds import words_of

_NOT_ATTEMPTED = {RunState.PLANNING, RunState.PLANNED, RunState.APPROVED, RunState.ABANDONED}
_STATE_TONES: Mapping[str, str] = {
    RunState.SUCCEEDED: "good",
    RunState.FAILED: "bad",
    RunState.APPLYING: "busy",
}


@dataclass(frozen=True)
class Headline:
    """The badge and the first sentence of the page."""

    badge: str
    tone: str
    sentence: str
    attempted: bool


@dataclass(frozen=True)
class Step:
    """A command, and its purpose."""

    command: str
    purpose: str


def headline(state: str, summary: Summary, outcomes: Mapping[str, Tally], words: Words) -> Headline:
    """Return one sentence about what happened or would happen."""
    attempted = state not in _NOT_ATTEMPTED or bool(outcomes)
    sentence = _after(state, summary.due, outcomes, words) if attempted else _before(state, summary, words)
    return Headline(printable(state), _STATE_TONES.get(state, "plan"), sentence, attempted)


def _after(state: str, due: Tally, outcomes: Mapping[str, Tally], words: Words) -> str:
    done = done_of(outcomes)
    if state == RunState.SUCCEEDED:
        nothing = f"Nothing was due, and nothing was {words.acted}."
        freed = (
            f", freed {human_bytes(tally_of(outcomes, Outcome.DELETED).bytes)}" if words.frees_apart else ""
        )
        return f"{words.did} {words.amount(done)}{freed}." if due.objects else nothing
    planned = words.items(due.objects, "planned")
    freed = f"{words.did} {human_bytes(done.bytes)}, {count(done.objects)} of {planned}"
    left = sum(tally_of(outcomes, outcome).objects for outcome in Outcome if not outcome.is_final)
    if state == RunState.FAILED:
        rest = f"{words.items(left)} could not be {words.acted}" if left else "it stopped before the end"
        return f"{freed}; {rest}."
    return f"{freed}, so far."


def _before(state: str, summary: Summary, words: Words) -> str:
    if state == RunState.ABANDONED:
        return f"Planning stopped before there was a plan. Nothing was {words.acted}."
    if not summary.due.objects:
        return f"Nothing is due: applying this plan would {words.change} nothing."
    return f"Applying this plan would {words.intent(summary)}. Nothing has been {words.acted} yet."


def next_steps(manifest: Manifest, state: str, *, path: str | None) -> tuple[Step, ...]:
    """Return the next commands; names are quoted, because users paste them into shells."""
    run = manifest.run_id
    target = printable(shlex.quote(manifest.target))
    explain = Step(
        f"ebb explain {target} {printable(shlex.quote(path or 'PATH'))}",
        f"why one {words_of(manifest).item} goes, went, or is still here",
    )
    apply = f"ebb apply {run}{' --override-breaker' if manifest.breaker else ''}"
    # Nothing references the objects of a deleted repository, so there is nothing to explain.
    is_deleted = manifest.collector == DELETED_REPOSITORY
    why = () if is_deleted else (explain,)
    if state == RunState.SUCCEEDED and manifest.recycling:
        days = manifest.recycling.days
        return Step(f"ebb restore {run}", f"undo it, while the bin keeps it: for {days} days"), *why
    if state in {RunState.FAILED, RunState.APPLYING}:
        return Step(apply, "finish the run; what is done is not done twice"), *why
    if state in {RunState.PLANNED, RunState.APPROVED} and manifest.summary.due.objects:
        caution = "only if the breaker's reason is understood and right: " if manifest.breaker else ""
        has_references = words_of(manifest).has_references
        verb = "set this aside" if manifest.recycling else "delete this"
        purpose = f"{verb}, after checking again that nothing needs it"
        purpose = (
            purpose if has_references else "do this, after checking again that each item is as it was planned"
        )
        delete = Step(apply, caution + purpose)
        return Step(f"ebb plan show {run} --all", "every row of this plan"), *why, delete
    return *why, Step(f"ebb plan {target}{' --deleted' if is_deleted else ''}", "see what is due by now")


def done_of(outcomes: Mapping[str, Tally]) -> Tally:
    """Return how much a run did as planned: deleted, hidden, moved or set aside."""
    parts = [tally_of(outcomes, outcome) for outcome in Outcome if outcome.is_done]
    return Tally("done", sum(part.objects for part in parts), sum(part.bytes for part in parts))


def tally_of(outcomes: Mapping[str, Tally], outcome: str) -> Tally:
    """Return the numbers of an outcome; zero if it did not happen."""
    return outcomes.get(outcome, Tally(outcome, 0, 0))


_RARE = {Outcome.RECYCLED, Outcome.HIDDEN, Outcome.MOVED, Outcome.RESTORED, Outcome.TAKEN}
"""Outcomes that most runs cannot have: shown only if they happened."""
_OUTCOME_TONES: Mapping[str, str] = {
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
    """One outcome: how many items, how many bytes, and what it means."""

    label: str
    objects: str
    size: str
    meaning: str
    tone: str
    is_none: bool


@dataclass(frozen=True)
class Results:
    """All outcomes, and whether they add up to the plan."""

    rows: tuple[OutcomeRow, ...]
    sum_text: str
    sum_tone: str
    attention: int


def results(state: str, due: Tally, outcomes: Mapping[str, Tally], words: Words) -> Results:
    """Return the outcomes in their usual order; unknown ones come last and are never left out."""
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
        tone=_OUTCOME_TONES.get(label, "plan") if tally.objects else "none",
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
    more = f"may have {words.acted} more than is shown here"
    caution = f"Outcomes are recorded per batch: an interrupted batch {more}."
    return f"{text}: {missing} no outcome yet. {caution}", "busy"
