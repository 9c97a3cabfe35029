"""What retention means: every branch and every dangling leaf is walked by itself, commit by commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from ebbtide.targets.lake.oracle_addresses import address_of, is_doubtful, with_guards
from ebbtide.targets.lake.world_document import WorldDocument, WrittenCommit
from ebbtide.targets.repository.retention_rules import RetentionRules

_FOR_EVER = datetime.max.replace(tzinfo=UTC)


def retention_keepers(world: WorldDocument) -> Mapping[str, Mapping[str, datetime]]:
    """Give each address of which some reference lapses one day all of its references, and when each does."""
    keepers: dict[str, dict[str, datetime]] = {}
    touched = set()
    lapses = _lapses(world)
    for commit in world.commits:
        for key, entry in commit.entries.items():
            address = address_of(entry, world)
            if lapses[commit.id] < _FOR_EVER:
                touched.add(address)
            until = _FOR_EVER if is_doubtful(entry, world) else lapses[commit.id]
            keepers.setdefault(address, {})[f"{key} <- commit {commit.id}"] = until
    for branch, entries in world.staged.items():
        for key, entry in entries.items():
            keepers.setdefault(address_of(entry, world), {})[f"{key} <- staging {branch}"] = _FOR_EVER
    return with_guards({address: known for address, known in keepers.items() if address in touched})


def _lapses(world: WorldDocument) -> dict[str, datetime]:
    """Give each commit the last moment that any of its reasons to be kept gives."""
    moments: dict[str, list[datetime]] = {commit.id: [] for commit in world.commits}
    for commit_id, moment in _moments(world, world.retention or RetentionRules()):
        moments[commit_id].append(moment)
    return {commit_id: max(found) for commit_id, found in moments.items()}


def _moments(world: WorldDocument, rules: RetentionRules) -> Iterator[tuple[str, datetime]]:
    """Name every reason to keep a commit: it is a head, is tagged, was a head, or is on a dangling walk."""
    commits = {commit.id: commit for commit in world.commits}
    for branch, head in world.branches.items():
        yield head, _FOR_EVER
        yield from _replaced(_chain(commits, head), rules.branch_days.get(branch, rules.default_days))
    if rules.tags_protect:
        for tagged in world.tags.values():
            yield tagged, _FOR_EVER
    followed = {commit.parents[0] for commit in world.commits if commit.parents}
    for commit in world.commits:
        if commit.id not in followed and commit.id not in world.branches.values():
            yield commit.id, _after(commit.created, rules.default_days)
            yield from _replaced(_chain(commits, commit.id), rules.default_days)


def _chain(commits: Mapping[str, WrittenCommit], start: str) -> list[WrittenCommit]:
    """List a commit, its first parent, the first parent of that, and so on to the beginning."""
    chain = [commits[start]]
    while chain[-1].parents:
        chain.append(commits[chain[-1].parents[0]])
    return chain


def _replaced(chain: list[WrittenCommit], days: int | None) -> Iterator[tuple[str, datetime]]:
    """Keep each commit of a chain for the days since the one before it in the list took its place."""
    for child, commit in pairwise(chain):
        yield commit.id, _after(child.created, days)


def _after(moment: datetime, days: int | None) -> datetime:
    try:
        return _FOR_EVER if days is None else moment + timedelta(days=days)
    except OverflowError:
        return _FOR_EVER
