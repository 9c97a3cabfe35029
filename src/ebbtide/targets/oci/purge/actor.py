"""
Applies a batch of a registry's plan on an executor: manifest by manifest, with an outcome for every row.

Each tag is read again directly before: one that stands for another manifest now is left alone. An image to be
recycled is complete in the bin before anything of it is removed. A manifest is deleted by its digest, with
all its tags, so all tags of its repository are rechecked before; a tag whose manifest stays is deleted by
itself, if the registry supports that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from threading import Event, Lock
from typing import Any

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import (
    Denied,
    EbbtideError,
    MetadataError,
    NotFound,
    Refused,
    SafetyStop,
    StalePlan,
    Unsupported,
)
from ebbtide.core.instant import format_instant
from ebbtide.engine.actor import Attempt, settle
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.oci.bin.entry import BinEntry, KeptTag
from ebbtide.targets.oci.bin.moves import set_aside
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec, open_registry, untag
from ebbtide.targets.oci.inventory.snapshots import scanned_tags
from ebbtide.targets.oci.policies.policy import Policy
from ebbtide.targets.oci.purge.recheck import TagRecheck

_READ = ["address", "version", "action", "condition", "rules", "created", "kept_because"]


class Action(StrEnum):
    """What is done with a tag or a manifest."""

    RECYCLE = "recycle"
    """It is set aside in the bin, and then removed from where it is."""
    DELETE = "delete"
    EMPTY = "empty"
    """It is removed from the bin."""


@dataclass(frozen=True)
class PlannedItem:
    """A tag or, without one, a manifest that is to go."""

    number: int
    """Its position among the rows of the task."""
    repository: str
    digest: str
    tag: str
    action: str
    policy: str
    siblings: tuple[str, ...]
    """The other tags of the manifest, which stays: the registry must not delete them with this one."""
    created: datetime | None
    kept: str | None
    """Why it must not be touched."""

    @property
    def name(self) -> str:
        """Its name as people write it."""
        return f"{self.repository}:{self.tag}" if self.tag else f"{self.repository}@{self.digest}"

    @property
    def address(self) -> tuple[str, str]:
        """What all rows of one manifest share."""
        return self.repository, self.digest


def planned_items(batches: Iterable[Any]) -> Iterator[PlannedItem]:
    """Yield the rows of a task, numbered from 0."""
    number = 0
    for batch in batches:
        for row in batch.select(_READ).to_pylist():
            repository, _, digest = row["address"].partition("@")
            yield PlannedItem(
                number,
                repository,
                digest,
                row["version"] or "",
                row["action"],
                (row["rules"] or [""])[0],
                tuple((row["condition"] or {}).get("siblings") or ()),
                row["created"],
                row["kept_because"],
            )
            number += 1


def by_manifest(items: Iterable[PlannedItem]) -> list[list[PlannedItem]]:
    """Group the rows by manifest."""
    ordered = sorted(items, key=lambda item: (item.address, item.number))
    return [list(group) for _, group in groupby(ordered, key=lambda item: item.address)]


Results = dict[int, DeleteResult]

_AT_ONCE = 8
_FAILURES_IN_A_ROW = 3
"""After this many failures in a row the registry is taken to be down: each was retried."""


@dataclass(frozen=True)
class ImageActor:
    """Does what the rows of one task ask for; it is sent to executors."""

    spec: RegistrySpec
    attempt: Attempt
    bin_policy: Policy
    run_id: int
    now: datetime
    """When the batch began: everything it sets aside stays in the bin for the same time."""
    scanned: Path
    """The folder of the scan that the batch was verified by."""
    reason: str = ""
    """What the entries of the bin say in addition."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Act on all rows, and yield their outcomes."""
        return acted(self.attempt, batches, self._do)

    def _do(self, items: Sequence[PlannedItem]) -> Results:
        try:
            scanned = scanned_tags(self.scanned, {item.repository for item in items})
            registry = open_registry(self.spec)
        except EbbtideError as broken:
            return {item.number: refused(item, broken) for item in items}
        try:
            recheck, again = TagRecheck(registry, scanned), self.attempt.is_repeated()
            return act_on_all(by_manifest(items), Remover(registry, recheck, self._entry, again=again).remove)
        finally:
            registry.close()

    def _entry(self, group: Sequence[PlannedItem]) -> BinEntry:
        """Return the entry of the bin: an image and those of its names that go."""
        return replace(bin_entry(group, self.bin_policy, self.run_id, self.now), reason=self.reason)


def acted(
    attempt: Attempt, batches: Iterable[Any], act: Callable[[Sequence[PlannedItem]], Results]
) -> Iterator[Any]:
    """Act on all rows of a task together, and yield the outcomes batch by batch."""
    gathered = list(batches)
    items = list(planned_items(gathered))
    results = act(items) if items else {}
    first = 0
    for batch in gathered:
        numbers = range(first, first + batch.num_rows)
        first += batch.num_rows
        yield attempt.outcomes(batch, [results[number] for number in numbers])


def bin_entry(group: Sequence[PlannedItem], policy: Policy, run_id: int, now: datetime) -> BinEntry:
    """Return the entry of the bin for some rows of a manifest; the bin's policy gives its expiry."""
    first = group[0]
    return BinEntry(
        repository=first.repository,
        digest=first.digest,
        tags=tuple(KeptTag(item.tag, item.created) for item in group if item.tag),
        recycled_at=now,
        expires_at=policy.expires(now),
        policy=first.policy,
        run_id=run_id,
    )


def act_on_all(
    groups: Sequence[Sequence[PlannedItem]], act: Callable[[Sequence[PlannedItem]], Results]
) -> Results:
    """
    Act on all groups, several at once; refused ones get a second try at the end.

    Some registries do not delete a manifest as long as an index lists it, and the index may come later. If
    the registry keeps failing the rest is not tried, and reported as such.
    """
    watch = _OutageGuard(act)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        results = _merged(threads.map(watch.act, groups))
        open_groups = [
            group for group in groups if any(results[i.number].outcome is Outcome.DENIED for i in group)
        ]
        if open_groups and len(open_groups) < len(groups) and not watch.is_down:
            results |= _merged(threads.map(watch.act, open_groups))
    return results


def _merged(parts: Iterable[Results]) -> Results:
    return {number: result for part in parts for number, result in part.items()}


class _OutageGuard:
    """Counts how often in a row the registry failed."""

    def __init__(self, act: Callable[[Sequence[PlannedItem]], Results]) -> None:
        self._act, self._failures, self._lock = act, 0, Lock()

    @property
    def is_down(self) -> bool:
        """Return True if the registry is taken to be down."""
        return self._failures >= _FAILURES_IN_A_ROW

    def act(self, group: Sequence[PlannedItem]) -> Results:
        """Act on a group, unless the registry is taken to be down."""
        if self.is_down:
            down = "the registry failed at all that was asked before, so this was not tried"
            return {item.number: DeleteResult(item.name, Outcome.NOT_REACHED, down) for item in group}
        try:
            results, failed = self._act(group), False
        except EbbtideError as broken:
            # A registry that refuses one manifest may accept others.
            results = {item.number: refused(item, broken) for item in group}
            failed = not isinstance(broken, Unsupported | Refused)
        with self._lock:
            self._failures = self._failures + 1 if failed else 0
        return results


@dataclass(frozen=True)
class Remover:
    """Removes manifests and tags from a registry, one manifest at a time."""

    registry: Registry
    recheck: TagRecheck
    make_entry: Callable[[Sequence[PlannedItem]], BinEntry]
    again: bool
    """An earlier attempt was interrupted: what is gone may be its work."""
    takes_manifests: Event = field(default_factory=Event)
    """The registry was seen to delete a manifest when asked to delete a tag."""

    def remove(self, group: Sequence[PlannedItem]) -> Results:
        """Do what the rows of one manifest ask for, each with a result; raise if nothing could be done."""
        kept = next((item.kept for item in group if item.kept is not None), None)
        if kept is not None:
            return {item.number: DeleteResult(item.name, Outcome.CHANGED, kept) for item in group}
        by_itself = all(item.tag for item in group)
        results = self._remove_tags(group) if by_itself else self._remove_manifest(group)
        aside = {item.number for item in group if _is_kept(group if not by_itself else [item])}
        return {
            number: _named(settle(result, again=self.again), aside=number in aside)
            for number, result in results.items()
        }

    def _remove_tags(self, group: Sequence[PlannedItem]) -> Results:
        """Remove tags from a manifest that stays; raise if not even the first can be removed."""
        results: Results = {}
        for item in group:
            try:
                results[item.number] = self._remove_tag(item)
            except EbbtideError as broken:
                if not results:
                    raise
                results[item.number] = refused(item, broken)
        return results

    def _remove_manifest(self, group: Sequence[PlannedItem]) -> Results:
        """Set a manifest aside if asked to, and delete it with all its tags, unless a new tag needs it."""
        moved = {item.number: result for item in group if item.tag and (result := self._moved(item))}
        here = [item for item in group if item.number not in moved]
        try:
            self.registry.resolve(group[0].repository, group[0].digest)
        except NotFound:
            return moved | {item.number: DeleteResult(item.name, Outcome.ABSENT) for item in here}
        kept, where = self._newly_needed(group), ""
        if not kept and _is_kept(here):
            where = self._set_aside(here)
            # A copy takes its time, so look again: nothing but the delete comes after this.
            kept = self._newly_needed(group)
        if kept:
            return moved | {item.number: DeleteResult(item.name, Outcome.CHANGED, kept) for item in here}
        done = self.registry.delete_manifest(group[0].repository, group[0].digest)
        outcome = Outcome.DELETED if done else Outcome.ABSENT
        return moved | {item.number: DeleteResult(item.name, outcome, where) for item in here}

    def _newly_needed(self, group: Sequence[PlannedItem]) -> str:
        """Return why a manifest has to stay because of a tag that is new or moved; empty if it may go."""
        tags = [item.tag for item in group if item.tag]
        return self.recheck.reason_to_keep(group[0].repository, group[0].digest, tags)

    def _remove_tag(self, item: PlannedItem) -> DeleteResult:
        """Remove a tag from a manifest that stays."""
        if self.takes_manifests.is_set():
            why = "the registry takes the delete of a tag for one of its manifest, so no other was tried"
            return DeleteResult(item.name, Outcome.NOT_REACHED, why)
        moved = self._moved(item)
        if moved is not None:
            return moved
        where = self._set_aside([item])
        try:
            done = untag(self.registry, item.repository, item.tag, item.digest, item.siblings)
        except StalePlan as late:
            return DeleteResult(item.name, Outcome.CHANGED, late.what)
        except MetadataError:
            raise
        except SafetyStop as harmful:
            self.takes_manifests.set()
            return DeleteResult(item.name, Outcome.FAILED, str(harmful))
        return DeleteResult(item.name, Outcome.DELETED if done else Outcome.ABSENT, where)

    def _moved(self, item: PlannedItem) -> DeleteResult | None:
        """Read a tag again; return a result if it no longer stands for what was planned."""
        try:
            now = self.registry.resolve(item.repository, item.tag).digest
        except NotFound:
            return DeleteResult(item.name, Outcome.ABSENT)
        if now == item.digest:
            return None
        return DeleteResult(item.name, Outcome.CHANGED, f"the tag stands for {now} now")

    def _set_aside(self, items: Sequence[PlannedItem]) -> str:
        """Copy what is to be recycled into the bin, and return until when it can be restored."""
        if not _is_kept(items):
            return ""
        entry = set_aside(self.registry, self.make_entry(items))
        return f"can be restored until {format_instant(entry.expires_at)}"


def _is_kept(items: Sequence[PlannedItem]) -> bool:
    """Return True if what goes together goes into the bin: one row that asks for it is enough."""
    return any(item.action == Action.RECYCLE for item in items)


def _named(result: DeleteResult, *, aside: bool) -> DeleteResult:
    """Report as recycled what is gone from its place and is in the bin."""
    done = aside and result.outcome is Outcome.DELETED
    return replace(result, outcome=Outcome.RECYCLED) if done else result


def refused(item: PlannedItem, broken: EbbtideError) -> DeleteResult:
    """Return the result of an item that the registry did not do."""
    outcome = Outcome.DENIED if isinstance(broken, Denied | Unsupported | Refused) else Outcome.FAILED
    return DeleteResult(item.name, outcome, str(broken))
