"""
The oracle: what policy, retention and grace period mean, in plain Python sets and loops.

This is the executable specification. It shares no code with the Spark pipeline except the policy types, the
world documents and the canonical form of addresses. It looks at every reference one by one, and the pipeline
must agree with it on every world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

from ebbtide.core.decision import CollectorName
from ebbtide.storage.address import canonical
from ebbtide.targets.repository.policy import LakeRule
from ebbtide.targets.repository.retention_rules import RetentionRules
from ebbtide.targets.repository.world_document import WorldDocument, WrittenCommit, WrittenEntry

_FOR_EVER = datetime.max.replace(tzinfo=UTC)
_METADATA = "_lakefs/"


def address_of(entry: WrittenEntry, world: WorldDocument) -> str:
    """Return the canonical address of an entry, which all spellings of it share."""
    return canonical(entry.address, world.namespace)


def is_doubtful(entry: WrittenEntry, world: WorldDocument) -> bool:
    """Return True if an entry is spelled so that it may name another object than its canonical form."""
    address = address_of(entry, world)
    return entry.address != address and not entry.address.endswith("/" + address)


def is_listed(address: str) -> bool:
    """Return True if a listing of the namespace can have this canonical address as a data object."""
    return "://" not in address and not address.startswith(_METADATA)


def with_guards(keepers: Mapping[str, Mapping[str, datetime]]) -> dict[str, Mapping[str, datetime]]:
    """Add a keeper that never lapses to addresses that are outside the namespace or metadata."""
    return {
        address: known if is_listed(address) else {**known, f"{address} <- {_guard(address)}": _FOR_EVER}
        for address, known in keepers.items()
    }


def _guard(address: str) -> str:
    return "metadata" if address.startswith(_METADATA) else "outside"


@dataclass(frozen=True)
class _Reference:
    key: str
    entry: WrittenEntry
    kind: str
    name: str


def lifecycle_keepers(world: WorldDocument) -> Mapping[str, Mapping[str, datetime]]:
    """Return, for each address that a rule matches, its references as 'key <- referrer' and their lapses."""
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
    """Return every way to reach an object: through branches, tags, dangling commits and staged entries."""
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
    """Return the earliest moment over the rules that match; None if none does."""
    moments = []
    for rule in world.policy.rules:
        days = _days(rule, reference)
        if rule.enabled and reference.key.startswith(rule.prefix) and days is not None:
            moments.append(_days_after_midnight(reference.entry.created, days))
    return min(moments, default=None)


def _days(rule: LakeRule, reference: _Reference) -> int | None:
    if reference.kind == "tag":
        return rule.tag_days
    if reference.kind != "dangling" and reference.name in rule.branch_days:
        return rule.branch_days[reference.name]
    return rule.days


def _days_after_midnight(created: datetime, days: int) -> datetime:
    """Return the first midnight UTC at or after the entry was written, plus days."""
    midnight = datetime.combine(created.astimezone(UTC).date(), time.min, UTC)
    try:
        return midnight + timedelta(days=days + (midnight != created))
    except OverflowError:
        return _FOR_EVER


def retention_keepers(world: WorldDocument) -> Mapping[str, Mapping[str, datetime]]:
    """Return, for each address with a reference that lapses, all its references and their lapses."""
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
    """Return the latest moment over all reasons to keep each commit."""
    moments: dict[str, list[datetime]] = {commit.id: [] for commit in world.commits}
    for commit_id, moment in _moments(world, world.retention or RetentionRules()):
        moments[commit_id].append(moment)
    return {commit_id: max(found) for commit_id, found in moments.items()}


def _moments(world: WorldDocument, rules: RetentionRules) -> Iterator[tuple[str, datetime]]:
    """Return every reason to keep a commit: it is a head, tagged, was a head, or is dangling."""
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
    """Return a commit, its first parent, the first parent of that, and so on to the first commit."""
    chain = [commits[start]]
    while chain[-1].parents:
        chain.append(commits[chain[-1].parents[0]])
    return chain


def _replaced(chain: list[WrittenCommit], days: int | None) -> Iterator[tuple[str, datetime]]:
    """Keep each commit of a chain for days after the commit before it in the list replaced it."""
    for child, commit in pairwise(chain):
        yield commit.id, _after(child.created, days)


def _after(moment: datetime, days: int | None) -> datetime:
    try:
        return _FOR_EVER if days is None else moment + timedelta(days=days)
    except OverflowError:
        return _FOR_EVER


def uncommitted_keepers(world: WorldDocument) -> Mapping[str, Mapping[str, datetime]]:
    """Return, for each listed address that nothing references, the end of its grace period."""
    named = _named(world)
    keepers = {}
    for address, found in world.objects.items():
        spelled = canonical(address, world.namespace)
        if spelled not in named and is_listed(spelled):
            try:
                ends = found.last_modified + world.grace
            except OverflowError:
                ends = _FOR_EVER
            keepers[spelled] = {"last modified <- grace": ends}
    return keepers


def _named(world: WorldDocument) -> set[str]:
    """Return the canonical addresses of all entries of all commits and all staged entries."""
    named = set()
    for commit in world.commits:
        for entry in commit.entries.values():
            named.add(address_of(entry, world))
    for entries in world.staged.values():
        for entry in entries.values():
            named.add(address_of(entry, world))
    return named


_KEEPERS = {
    CollectorName.LIFECYCLE: lifecycle_keepers,
    CollectorName.UNCOMMITTED: uncommitted_keepers,
    CollectorName.RETENTION: retention_keepers,
}
"""The addresses that each collector matches, with what keeps each, in words, and until when."""


@dataclass(frozen=True)
class Judgement:
    """What is due, and what holds the other addresses that a collector matches."""

    due: frozenset[str]
    held: Mapping[str, frozenset[str]]
    """Address to the references that have not lapsed, each as 'key <- referrer'."""
    deadlines: Mapping[str, datetime]
    collectors: Mapping[str, CollectorName]
    """Due address to the collector that found it."""


def judge_world(world: WorldDocument, now: datetime) -> Judgement:
    """Return what may be deleted at this time: everything that one of the world's collectors finds alone."""
    deadlines: dict[str, datetime] = {}
    finders: dict[str, CollectorName] = {}
    keepers: dict[str, Mapping[str, datetime]] = {}
    for collector in CollectorName:
        if collector not in world.collect:
            continue
        for address, found in _KEEPERS[collector](world).items():
            deadline = max(found.values())
            if address not in deadlines or deadline < deadlines[address]:
                deadlines[address], finders[address], keepers[address] = deadline, collector, found
    for address, until in world.restored.items():
        if address in deadlines and until > deadlines[address]:
            deadlines[address], keepers[address] = until, {f"{address} <- restored": until}
    due = frozenset(address for address, deadline in deadlines.items() if deadline <= now)
    held = {
        address: frozenset(words for words, until in found.items() if until > now)
        for address, found in keepers.items()
        if address not in due
    }
    return Judgement(due, held, deadlines, {address: finders[address] for address in sorted(due)})
