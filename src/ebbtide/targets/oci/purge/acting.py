"""
Doing a batch of a registry's plan on an executor: manifest by manifest, with an outcome for every row.

Each tag is read again directly before: one that stands for another manifest now is left alone. What is to be
recycled is whole in the bin before anything of it is removed. A manifest goes by its digest, and with it all
its tags; a tag whose manifest stays goes by itself, where the registry can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
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
from ebbtide.targets.oci.policies.policy import Policy
from ebbtide.targets.oci.purge.planned import Action, Planned, by_manifest, planned_items

Results = dict[int, DeleteResult]

_AT_ONCE = 8
_HOPELESS = 3
"""After so many manifests in a row that the registry failed at, it is taken to be down: each was retried."""


@dataclass(frozen=True)
class ImageActor:
    """Does what the rows of one task ask for; it crosses to executors."""

    spec: RegistrySpec
    attempt: Attempt
    bin_policy: Policy
    run_id: int
    now: datetime
    """When the batch began: all that it sets aside stays in the bin for the same time."""
    reason: str = ""
    """What the bin says besides of what it is given."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Do all rows, and give their outcomes."""
        return acted(self.attempt, batches, self._do)

    def _do(self, items: Sequence[Planned]) -> Results:
        try:
            registry = open_registry(self.spec)
        except EbbtideError as broken:
            return {item.number: refused(item, broken) for item in items}
        try:
            remover = Remover(registry, self._entry, again=self.attempt.is_repeated())
            return act_on_all(by_manifest(items), remover.remove)
        finally:
            registry.close()

    def _entry(self, group: Sequence[Planned]) -> BinEntry:
        """Describe what is set aside: an image and those of its names that go."""
        return replace(bin_entry(group, self.bin_policy, self.run_id, self.now), reason=self.reason)


def acted(
    attempt: Attempt, batches: Iterable[Any], act: Callable[[Sequence[Planned]], Results]
) -> Iterator[Any]:
    """Act on all rows of a task together, and give the outcomes batch by batch."""
    gathered = list(batches)
    items = list(planned_items(gathered))
    results = act(items) if items else {}
    first = 0
    for batch in gathered:
        numbers = range(first, first + batch.num_rows)
        first += batch.num_rows
        yield attempt.outcomes(batch, [results[number] for number in numbers])


def bin_entry(group: Sequence[Planned], policy: Policy, run_id: int, now: datetime) -> BinEntry:
    """Make the bin's entry for some rows of a manifest; the bin's policy says how long it stays there."""
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


def act_on_all(groups: Sequence[Sequence[Planned]], act: Callable[[Sequence[Planned]], Results]) -> Results:
    """
    Act on all groups, several at once; what a registry refused gets a second try at the end.

    Some registries do not delete a manifest as long as an index lists it, and the index may come later. When
    the registry fails again and again the rest is not tried, and said to be so.
    """
    watch = _Watch(act)
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


class _Watch:
    """Counts how often in a row the registry failed."""

    def __init__(self, act: Callable[[Sequence[Planned]], Results]) -> None:
        self._act, self._failures, self._lock = act, 0, Lock()

    @property
    def is_down(self) -> bool:
        """Tell whether the registry is taken to be down."""
        return self._failures >= _HOPELESS

    def act(self, group: Sequence[Planned]) -> Results:
        """Act on a group, unless the registry is taken to be down."""
        if self.is_down:
            down = "the registry failed at all that was asked before, so this was not tried"
            return {item.number: DeleteResult(item.name, Outcome.NOT_REACHED, down) for item in group}
        try:
            results, failed = self._act(group), False
        except EbbtideError as broken:
            # What a registry cannot do with one manifest says nothing of others.
            results = {item.number: refused(item, broken) for item in group}
            failed = not isinstance(broken, Unsupported | Refused)
        with self._lock:
            self._failures = self._failures + 1 if failed else 0
        return results


@dataclass(frozen=True)
class Remover:
    """Removes manifests and tags from a registry, one manifest at a time."""

    registry: Registry
    make_entry: Callable[[Sequence[Planned]], BinEntry]
    again: bool
    """An earlier attempt was interrupted: what is gone may be its doing."""
    takes_manifests: Event = field(default_factory=Event)
    """The registry was seen to delete a manifest when asked for a tag."""

    def remove(self, group: Sequence[Planned]) -> Results:
        """Do what the rows of one manifest ask for, each with a result; raises if nothing could be done."""
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

    def _remove_tags(self, group: Sequence[Planned]) -> Results:
        """Take names from a manifest that stays; raises if not even the first can be."""
        results: Results = {}
        for item in group:
            try:
                results[item.number] = self._remove_tag(item)
            except EbbtideError as broken:
                if not results:
                    raise
                results[item.number] = refused(item, broken)
        return results

    def _remove_manifest(self, group: Sequence[Planned]) -> Results:
        """Set a manifest aside if that is wanted, and delete it with all its tags."""
        moved = {item.number: result for item in group if item.tag and (result := self._moved(item))}
        here = [item for item in group if item.number not in moved]
        try:
            self.registry.resolve(group[0].repository, group[0].digest)
        except NotFound:
            return moved | {item.number: DeleteResult(item.name, Outcome.ABSENT) for item in here}
        where = self._set_aside(here)
        done = self.registry.delete_manifest(group[0].repository, group[0].digest)
        outcome = Outcome.DELETED if done else Outcome.ABSENT
        return moved | {item.number: DeleteResult(item.name, outcome, where) for item in here}

    def _remove_tag(self, item: Planned) -> DeleteResult:
        """Take a name from a manifest that stays."""
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

    def _moved(self, item: Planned) -> DeleteResult | None:
        """Read a tag again; a result if it no longer stands for what was planned."""
        try:
            now = self.registry.resolve(item.repository, item.tag).digest
        except NotFound:
            return DeleteResult(item.name, Outcome.ABSENT)
        if now == item.digest:
            return None
        return DeleteResult(item.name, Outcome.CHANGED, f"the tag stands for {now} now")

    def _set_aside(self, items: Sequence[Planned]) -> str:
        """Bring what is to be recycled into the bin, and say until when it can be restored."""
        if not _is_kept(items):
            return ""
        entry = set_aside(self.registry, self.make_entry(items))
        return f"can be restored until {format_instant(entry.expires_at)}"


def _is_kept(items: Sequence[Planned]) -> bool:
    """Tell whether what goes together goes into the bin: one row that asks for it is enough."""
    return any(item.action == Action.RECYCLE for item in items)


def _named(result: DeleteResult, *, aside: bool) -> DeleteResult:
    """Call what is gone from its place and lies in the bin recycled."""
    done = aside and result.outcome is Outcome.DELETED
    return replace(result, outcome=Outcome.RECYCLED) if done else result


def refused(item: Planned, broken: EbbtideError) -> DeleteResult:
    """Give the result of an item that the registry did not do."""
    outcome = Outcome.DENIED if isinstance(broken, Denied | Unsupported | Refused) else Outcome.FAILED
    return DeleteResult(item.name, outcome, str(broken))
