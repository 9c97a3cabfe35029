"""What must be true of a repository at every moment, found by another way than the pipeline's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from tests.machine.operations import Operation
from tests.machine.repository import Repository

from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import AlreadyExists, Busy, LiveObjectMissing, NotFound, ObjectGone, Refused
from ebbtide.storage.address import is_inside
from ebbtide.targets.repository.oracle import _lapse, _lapses, _references
from ebbtide.targets.repository.policy import LakePolicy
from ebbtide.targets.repository.retention_rules import RetentionRules
from ebbtide.targets.repository.rules import RepositoryRules
from ebbtide.targets.repository.world_document import WorldDocument


def perform(repo: Repository, operation: Operation) -> str:
    """Let a writer do something and say how it ended; whoever refers to what is there waits for the gate."""
    closed, gone = repo.is_closed, ""
    try:
        operation.on(repo)
    except Busy:
        ended = "waits for the gate"
    except ObjectGone as found:
        ended, gone = "object is gone", found.address
    except LiveObjectMissing:
        ended = "object is gone, unrecorded"
    except (NotFound, AlreadyExists, Refused):
        ended = "refused"
    else:
        ended = "done"
    assert ended != "waits for the gate" or (closed and operation.gated), operation
    assert ended != "done" or not (closed and operation.gated), operation
    assert not gone or gone in repo.buried, operation
    # Deleted by a run that was interrupted before it could say so: it will when it is resumed.
    assert ended != "object is gone, unrecorded" or repo.gone - repo.buried, operation
    return ended


def needed(document: WorldDocument, policy: LakePolicy, now: datetime) -> Mapping[str, frozenset[str]]:
    """Give each address that a reference which has not lapsed keeps, with the kinds of such references."""
    judged = replace(document, policy=policy)
    found: dict[str, set[str]] = {}
    for reference in _references(judged):
        lapse = _lapse(reference, judged)
        if lapse is None or lapse > now:
            found.setdefault(reference.entry.address, set()).add(reference.kind)
    return {address: frozenset(kinds) for address, kinds in found.items()}


def retained(document: WorldDocument, rules: RetentionRules, now: datetime) -> Mapping[str, frozenset[str]]:
    """Give each address that a commit keeps at this time, or staging, with the commits that do."""
    lapses = _lapses(replace(document, retention=rules))
    found: dict[str, set[str]] = {}
    for commit in document.commits:
        for entry in commit.entries.values() if lapses[commit.id] > now else ():
            found.setdefault(entry.address, set()).add(commit.id)
    for entries in document.staged.values():
        for entry in entries.values():
            found.setdefault(entry.address, set()).add("staging")
    return {address: frozenset(keepers) for address, keepers in found.items()}


def kept(
    document: WorldDocument, rules: RepositoryRules, now: datetime
) -> Mapping[CollectorName, Mapping[str, frozenset[str]]]:
    """Say, for each collector of a run, which addresses it must leave alone, and what keeps each."""
    return {
        CollectorName.LIFECYCLE: needed(document, rules.policy, now),
        CollectorName.UNCOMMITTED: dict.fromkeys(reached(document), frozenset({"reference"})),
        CollectorName.RETENTION: retained(document, rules.retention, now) if rules.retention else {},
    }


def reached(document: WorldDocument) -> set[str]:
    """Give the repository's own addresses that anything refers to, lapsed or not."""
    found = {reference.entry.address for reference in _references(document)}
    return {address for address in found if is_inside(address)}


def check_readable(repo: Repository, document: WorldDocument) -> None:
    """Everything that anything refers to is in the store as it was written, but for what runs deleted."""
    for address in reached(document) - repo.gone:
        assert repo.contents[address] == repo.store.read(address), address


def check_heads(repo: Repository) -> None:
    """Through the catalog keys of every branch read as they were written, or say which run deleted them."""
    for branch in repo.catalog.branches(repo.name):
        entries = [entry for entry in repo.catalog.ls(repo.name, branch) if is_inside(entry.address)]
        # To read like this is slow, so only a few keys are, and first those of deleted objects.
        for entry in sorted(entries, key=lambda entry: entry.address not in repo.gone)[:2]:
            assert _expected(repo, entry.address) == _read(repo, branch, entry.key), entry


def _expected(repo: Repository, address: str) -> bytes | str:
    if address in repo.buried:
        return "gone"
    return "missing" if address in repo.gone else repo.contents[address]


def _read(repo: Repository, branch: str, key: str) -> bytes | str:
    try:
        return repo.catalog.read(repo.name, branch, key)
    except ObjectGone:
        return "gone"
    except LiveObjectMissing:
        return "missing"
