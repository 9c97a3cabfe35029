"""What a lifecycle policy means: every reference is looked at one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from ebbtide.targets.lake.oracle_addresses import address_of, is_doubtful, with_guards
from ebbtide.targets.lake.world_document import WorldDocument, WrittenEntry
from ebbtide.targets.repository.policy import LakeRule

_FOR_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Reference:
    key: str
    entry: WrittenEntry
    kind: str
    name: str


def lifecycle_keepers(world: WorldDocument) -> Mapping[str, Mapping[str, datetime]]:
    """Give each address that a rule touches its references, as 'key <- referrer', and when each lapses."""
    keepers: dict[str, dict[str, datetime]] = {}
    touched = set()
    for reference in _references(world):
        lapse = _lapse(reference, world)
        address = address_of(reference.entry, world)
        if lapse is not None:
            touched.add(address)
        until = _FOR_EVER if lapse is None or is_doubtful(reference.entry, world) else lapse
        words = f"{reference.key} <- {reference.kind} {reference.name}"
        known = keepers.setdefault(address, {})
        known[words] = max(known.get(words, until), until)
    return with_guards({address: known for address, known in keepers.items() if address in touched})


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
