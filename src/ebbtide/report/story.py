"""What a run's state means in words: the badge, the first sentence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.ledger.runs import RunState
from ebbtide.plan.decision import Outcome
from ebbtide.plan.manifest import Manifest, Tally
from ebbtide.report.format import human_bytes, plural, printable

_NOT_ATTEMPTED = {RunState.PLANNING, RunState.PLANNED, RunState.APPROVED, RunState.ABANDONED}
_TONES = {RunState.SUCCEEDED: "good", RunState.FAILED: "bad", RunState.APPLYING: "busy"}


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
    tone = "plan" if state in _NOT_ATTEMPTED else _TONES.get(RunState(state), "plan")
    return Headline(state, tone, _sentence(state, due, outcomes, attempted=attempted), attempted)


def _sentence(state: str, due: Tally, outcomes: Mapping[str, Tally], *, attempted: bool) -> str:
    planned = _amount(due)
    if not attempted:
        return _before(state, due)
    freed = _amount(tally_of(outcomes, Outcome.DELETED))
    left = sum(tally_of(outcomes, outcome).objects for outcome in Outcome if not outcome.is_final)
    if state == RunState.SUCCEEDED:
        return f"Freed {freed}." if due.objects else "Nothing was due, and nothing was deleted."
    if state == RunState.FAILED and left:
        return f"Freed {freed} of {planned}; {plural(left, 'object')} could not be deleted."
    if state == RunState.FAILED:
        return f"Stopped before the end: {freed} on record as freed, of {planned} planned."
    return f"Freed {freed} so far, of {planned} planned."


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
    if state in {RunState.PLANNED, RunState.APPROVED} and manifest.summary.due.objects:
        override = " --override-breaker" if manifest.breaker else ""
        purpose = "delete what this page shows, after checking again that nothing needs it"
        return Step(f"ebb apply {run}{override}", purpose), explain
    if state in {RunState.FAILED, RunState.APPLYING}:
        again = Step(f"ebb apply {run}", "finish the run; what is done is not done twice")
        return again, Step(f"ebb plan show {run} --outcomes", "every item's outcome and its reason"), explain
    return explain, Step(f"ebb plan {target}", "see what is due by now")


def tally_of(outcomes: Mapping[str, Tally], outcome: str) -> Tally:
    """Give an outcome's numbers; what did not happen is zero."""
    return outcomes.get(outcome, Tally(outcome, 0, 0))


def _amount(tally: Tally) -> str:
    return f"{human_bytes(tally.bytes)} in {plural(tally.objects, 'object')}"
