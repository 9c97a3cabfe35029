"""What a run's state means in words: the badge, the first sentence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.ledger.runs import RunState
from ebbtide.plan.decision import DELETED_REPOSITORY, Outcome
from ebbtide.plan.manifest import Manifest, Tally
from ebbtide.report.format import count, human_bytes, plural, printable

_NOT_ATTEMPTED = {RunState.PLANNING, RunState.PLANNED, RunState.APPROVED, RunState.ABANDONED}
_TONES: Mapping[str, str] = {RunState.SUCCEEDED: "good", RunState.FAILED: "bad", RunState.APPLYING: "busy"}


@dataclass(frozen=True)
class Headline:
    """The first thing that is read."""

    badge: str
    tone: str
    sentence: str
    attempted: bool


@dataclass(frozen=True)
class Step:
    """Something to type, and what it is for."""

    command: str
    purpose: str


def headline(state: str, due: Tally, outcomes: Mapping[str, Tally]) -> Headline:
    """Say in one sentence what happened or would happen."""
    attempted = state not in _NOT_ATTEMPTED or bool(outcomes)
    sentence = _sentence(state, due, outcomes, attempted=attempted)
    return Headline(printable(state), _TONES.get(state, "plan"), sentence, attempted)


def _sentence(state: str, due: Tally, outcomes: Mapping[str, Tally], *, attempted: bool) -> str:
    if not attempted:
        return _before(state, due)
    deleted = tally_of(outcomes, Outcome.DELETED)
    if state == RunState.SUCCEEDED:
        return f"Freed {_amount(deleted)}." if due.objects else "Nothing was due, and nothing was deleted."
    freed = (
        f"{human_bytes(deleted.bytes)}, {count(deleted.objects)} of {plural(due.objects, 'planned object')}"
    )
    left = sum(tally_of(outcomes, outcome).objects for outcome in Outcome if not outcome.is_final)
    if state == RunState.FAILED:
        rest = f"{plural(left, 'object')} could not be deleted" if left else "it stopped before the end"
        return f"Freed {freed}; {rest}."
    return f"Freed {freed}, so far."


def _before(state: str, due: Tally) -> str:
    if state == RunState.ABANDONED:
        return "Planning stopped before there was a plan. Nothing was deleted."
    if not due.objects:
        return "Nothing is due: applying this plan would delete nothing."
    return f"Applying this plan would free {_amount(due)}. Nothing has been deleted yet."


def next_steps(manifest: Manifest, state: str, *, path: str | None) -> tuple[Step, ...]:
    """Say how to go on; names are quoted, for these lines are pasted into shells."""
    run = manifest.run_id
    target = printable(shlex.quote(manifest.target))
    explain = Step(
        f"ebb explain {target} {printable(shlex.quote(path or 'PATH'))}",
        "why one object goes, went, or is still here",
    )
    apply = f"ebb apply {run}{' --override-breaker' if manifest.breaker else ''}"
    # Of a deleted repository nothing refers to an object, so there is nothing to explain.
    is_deleted = manifest.collector == DELETED_REPOSITORY
    why = () if is_deleted else (explain,)
    if state in {RunState.FAILED, RunState.APPLYING}:
        return Step(apply, "finish the run; what is done is not done twice"), *why
    if state in {RunState.PLANNED, RunState.APPROVED} and manifest.summary.due.objects:
        caution = "only if the breaker's reason is understood and right: " if manifest.breaker else ""
        delete = Step(apply, f"{caution}delete this, after checking again that nothing needs it")
        return Step(f"ebb plan show {run} --all", "every row of this plan"), *why, delete
    return *why, Step(f"ebb plan {target}{' --deleted' if is_deleted else ''}", "see what is due by now")


def tally_of(outcomes: Mapping[str, Tally], outcome: str) -> Tally:
    """Give an outcome's numbers; what did not happen is zero."""
    return outcomes.get(outcome, Tally(outcome, 0, 0))


def _amount(tally: Tally) -> str:
    return f"{human_bytes(tally.bytes)} in {plural(tally.objects, 'object')}"
