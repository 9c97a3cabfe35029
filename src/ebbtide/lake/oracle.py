"""
The oracle: what a lifecycle policy means, in plain Python sets and loops.

This is the executable specification. It shares nothing with the Spark pipeline but the data classes, it looks
at every reference one by one, and the pipeline must agree with it on every world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from ebbtide.lake.world_document import WorldDocument, WrittenEntry
from ebbtide.rules.lake_policy import LakeRule

_FOR_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Judgement:
    """What is due, and what holds the rest of what a rule touches."""

    due: frozenset[str]
    held: Mapping[str, frozenset[str]]
    """Address to the references that have not lapsed, each as 'key <- referrer'."""
    deadlines: Mapping[str, datetime]


@dataclass(frozen=True)
class _Reference:
    key: str
    entry: WrittenEntry
    kind: str
    name: str


def judge_world(world: WorldDocument, now: datetime) -> Judgement:
    """Say what may be deleted at this time."""
    by_address: dict[str, list[_Reference]] = {}
    for reference in _references(world):
        by_address.setdefault(reference.entry.address, []).append(reference)
    due, held, deadlines = set(), {}, {}
    for address, references in by_address.items():
        lapses = {reference: _lapse(reference, world) for reference in references}
        if all(lapse is None for lapse in lapses.values()):
            continue
        ends = [_FOR_EVER if lapse is None else lapse for lapse in lapses.values()]
        deadlines[address] = max(ends)
        if deadlines[address] <= now:
            due.add(address)
        else:
            held[address] = frozenset(
                f"{reference.key} <- {reference.kind} {reference.name}"
                for reference, lapse in lapses.items()
                if lapse is None or lapse > now
            )
    return Judgement(frozenset(due), held, deadlines)


def _references(world: WorldDocument) -> Iterator[_Reference]:
    """Name every way to reach an object: through branches, tags, dangling commits and staging."""
    commits = {commit.id: commit for commit in world.commits}
    reached: set[str] = set()
    for kind, refs in (("branch", world.branches), ("tag", world.tags)):
        for name, head in refs.items():
            for commit_id in _ancestors(world, head):
                reached.add(commit_id)
                for key, entry in commits[commit_id].entries.items():
                    yield _Reference(key, entry, kind, name)
    for commit in world.commits:
        if commit.id not in reached:
            for key, entry in commit.entries.items():
                yield _Reference(key, entry, "dangling", commit.id)
    for branch, entries in world.staged.items():
        for key, entry in entries.items():
            yield _Reference(key, entry, "staging", branch)


def _ancestors(world: WorldDocument, head: str) -> set[str]:
    parents = {commit.id: commit.parents for commit in world.commits}
    found, waiting = set(), [head]
    while waiting:
        commit_id = waiting.pop()
        if commit_id not in found:
            found.add(commit_id)
            waiting.extend(parents[commit_id])
    return found


def _lapse(reference: _Reference, world: WorldDocument) -> datetime | None:
    """Give the earliest moment over the rules that match, None if none does."""
    moments = []
    for rule in world.policy.rules:
        days = _days(rule, reference)
        if rule.enabled and reference.key.startswith(rule.prefix) and days is not None:
            moments.append(_after(reference.entry.created, days))
    return min(moments, default=None)


def _days(rule: LakeRule, reference: _Reference) -> int | None:
    if reference.kind == "tag":
        return rule.tag_days
    if reference.kind != "dangling" and reference.name in rule.branch_days:
        return rule.branch_days[reference.name]
    return rule.days


def _after(created: datetime, days: int) -> datetime:
    """Count days from the first midnight UTC at or after the entry was written."""
    midnight = datetime.combine(created.astimezone(UTC).date(), time.min, UTC)
    try:
        return midnight + timedelta(days=days + (midnight != created))
    except OverflowError:
        return _FOR_EVER
