"""Step 1: the policy table over all runs, and the current rules with their last deleted dates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from ebbtide.targets.repository.policy import LakePolicy


@dataclass(frozen=True)
class PolicyRun:
    """A run as the policy table sees it: when it was and what the policy said then."""

    run_id: int
    now: datetime
    policy: LakePolicy
    succeeded: bool
    """Only a run that succeeded has deleted what its policy said; a dry or failed one has not."""


@dataclass(frozen=True, order=True)
class PolicyRow:
    """A row of the policy table; an empty branch means every branch that is not named."""

    run_id: int
    rule_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date


@dataclass(frozen=True)
class CurrentRule:
    """What this run is to delete for a prefix and branch, and up to which date a run has done so before."""

    prefix: str
    branch: str
    date_to_be_deleted: date
    last_deleted: date | None


def policy_table(runs: Iterable[PolicyRun]) -> list[PolicyRow]:
    """Write down, for every run, the date up to which each rule meant to delete."""
    return sorted(
        PolicyRow(run.run_id, row.rule_id, row.prefix, row.branch, row.date_to_be_deleted)
        for run in runs
        for row in run.policy.dates(run.now)
    )


def current_rules(table: Iterable[PolicyRow], run_id: int, succeeded: Iterable[int]) -> list[CurrentRule]:
    """
    Give this run's dates by prefix and branch with the last date that a succeeded run reached.

    Two rules for one prefix and branch count as the one that deletes more: the later date.
    """
    rows = list(table)
    done = set(succeeded) - {run_id}
    current: dict[tuple[str, str], date] = {}
    last: dict[tuple[str, str], date] = {}
    for row in rows:
        place = (row.prefix, row.branch)
        if row.run_id == run_id:
            current[place] = max(current.get(place, date.min), row.date_to_be_deleted)
        elif row.run_id in done:
            last[place] = max(last.get(place, date.min), row.date_to_be_deleted)
    return [
        CurrentRule(prefix, branch, day, last.get((prefix, branch)))
        for (prefix, branch), day in sorted(current.items())
    ]


def policy_warnings(policy: LakePolicy) -> tuple[str, ...]:
    """Say what a careful reader of the policy would stop at."""
    return tuple(f"rule {rule.id!r} matches everything" for rule in policy.enabled if rule.prefix == "")
