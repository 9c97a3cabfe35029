"""
Explanations of single objects: every reference to it, when each lapses, and so why it is due or held.

`explain` is the deadline algebra in plain Python, on the driver. It reads the rows of ranges that can contain
the key; of all other ranges it looks only at the hashes of their addresses, because another key may share the
object. The answer must be that of a plan, row by row, which the tests compare.

`explain_stored` and `explain_deleted` explain objects that nothing references: garbage, items of the recycle
bin, what a deleted repository left. Each answer is that of the plan which would find the object: with
--uncommitted, --bin or --deleted.

`explained` puts them together for `ebb explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.bin_label import items_of
from ebbtide.core.deadline import due
from ebbtide.core.decision import DELETED_REPOSITORY, EMPTY_BIN, CollectorName, Decision, HoldReason
from ebbtide.core.display import Block, Explanation, Heading, Table
from ebbtide.core.errors import AddressError, EbbtideError, NotFound
from ebbtide.core.format import human_bytes
from ebbtide.core.instant import NEVER, format_instant, format_second, to_micros
from ebbtide.engine.collector import Context
from ebbtide.engine.object_bin import StoreBin
from ebbtide.engine.removed_items import held_by_restore
from ebbtide.engine.removed_table import RestoredItem
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.storage.address import canonical, is_inside
from ebbtide.storage.store import ObjectInfo, Store
from ebbtide.targets.repository.deleted_repository import own_folders
from ebbtide.targets.repository.memory import Memory
from ebbtide.targets.repository.model import METADATA, RemovedObject
from ebbtide.targets.repository.policy import lapses_after
from ebbtide.targets.repository.protocol import DeletedNamespace, VersionedRepository
from ebbtide.targets.repository.ranges import ReachedRange, reached_ranges
from ebbtide.targets.repository.removed_objects import RemovedObjects
from ebbtide.targets.repository.rules import every_rule
from ebbtide.targets.repository.segments import hold_reason, holder_text, lifetime_of
from ebbtide.targets.repository.world import World, world_of

MOST_ADDRESSES = 20
MOST_REFERENCES = 200
KEPT = "kept"
"""The decision on an object that no plan has a row for, because no rule matches it."""
ABSENT = "absent"
"""The decision on an object that a run has removed."""
_LAPSED = {
    str(CollectorName.LIFECYCLE): "every reference has lapsed",
    str(CollectorName.RETENTION): "no commit keeps it any longer",
    str(CollectorName.UNCOMMITTED): "nothing references it, and its grace period is over",
    DELETED_REPOSITORY: "its repository was deleted, and the grace period is over",
    EMPTY_BIN: "its days in the recycle bin are over",
}


@dataclass(frozen=True)
class ExplainedReference:
    """One reference: a key in a range, for all referrers of the range."""

    key: str
    created: datetime
    size: int
    lapse: datetime
    rules: tuple[str, ...]
    touched: bool
    """A rule matches it for at least one referrer."""
    holder: str
    """The referrer that keeps it longest."""
    reached: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class ExplainedTerm:
    """Until when a commit or staged entries keep a key, by the retention rules."""

    key: str
    keeper: str
    until: datetime
    created: datetime
    size: int
    touched: bool
    why: str


@dataclass(frozen=True)
class ItemVerdict:
    """The verdict of one collector, or of a run with several, on an address."""

    collector: str
    decision: str
    """due, held or kept."""
    deadline: datetime
    reason: str
    holder: str
    rules: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObjectExplanation:
    """Everything that holds one address or makes it due."""

    address: str
    size: int
    decision: str
    """due, held, kept or absent: the decision of a run with all collectors."""
    deadline: datetime
    reason: str
    holder: str
    rules: tuple[str, ...]
    collector: str
    verdicts: tuple[ItemVerdict, ...]
    """The verdict of each collector by itself."""
    references: tuple[ExplainedReference, ...] = ()
    """The one that lives longest is the first."""
    terms: tuple[ExplainedTerm, ...] = ()
    """Their terms, if the repository has retention rules; the latest first."""
    removal: RemovedObject | None = None


_Decided = TypeVar("_Decided", ItemVerdict, ObjectExplanation)


def explain(world: World, *keys_or_addresses: str) -> list[ObjectExplanation]:
    """Explain all addresses that the keys ever had, and the addresses that are given."""
    ranges = reached_ranges(world)
    named = {_address(world, text) for text in keys_or_addresses}
    for one in ranges:
        keys = [key for key in keys_or_addresses if one.can_contain(key)]
        named.update(_addresses_of(world, one, keys) if keys else ())
    found = _rows(world, ranges, named)
    return [_explanation(world, address, found[address]) for address in sorted(found)[:MOST_ADDRESSES]]


def with_removal(explanation: ObjectExplanation, removal: RemovedObject | None) -> ObjectExplanation:
    """Return the explanation of an object that a run removed: it is absent, whatever refers to it."""
    if removal is None:
        return explanation
    how = "set it aside" if removal.until else "deleted it"
    reason = f"run {removal.run_id} {how} at {format_instant(removal.since)}"
    return replace(explanation, decision=ABSENT, reason=reason, removal=removal)


def held_since_restore(
    explanation: ObjectExplanation, restored: RestoredItem | None, now: datetime
) -> ObjectExplanation:
    """Hold an object that was restored, unless it is held for longer or no rule matches it."""
    if restored is None or restored.until is None:
        return explanation
    verdicts = tuple(held_until(one, restored, now) for one in explanation.verdicts)
    return replace(held_until(explanation, restored, now), verdicts=verdicts)


def held_until(one: _Decided, restored: RestoredItem, now: datetime) -> _Decided:
    """Move a deadline to the end of the hold on a restored item, if that is later."""
    until = restored.until
    if until is None or until <= one.deadline or one.decision not in (Decision.DUE, Decision.HELD):
        return one
    if until <= now:
        return replace(one, deadline=until)
    return replace(
        one,
        decision=str(Decision.HELD),
        deadline=until,
        reason=str(HoldReason.RESTORED),
        holder=held_by_restore(restored.run_id),
    )


def combined_verdict(verdicts: Iterable[ItemVerdict]) -> ItemVerdict:
    """Return the verdict of a run with several collectors: the earliest deadline counts, then their order."""
    asked = list(verdicts)
    touching = [one for one in asked if one.decision != KEPT]
    # The bin and deleted repositories have plans of their own.
    order = [*map(str, CollectorName), EMPTY_BIN, DELETED_REPOSITORY]
    first = min(touching or asked, key=lambda one: (one.deadline, order.index(one.collector)))
    return replace(first, paths=tuple(sorted({path for one in touching for path in one.paths})))


def _addresses_of(world: World, one: ReachedRange, keys: Sequence[str]) -> list[str]:
    rows = world.files.rows(one.folder, one.info)
    chosen = rows.filter(pc.is_in(rows.column("key"), value_set=pa.array(keys, pa.string())))
    return [str(address) for address in chosen.column("address").to_pylist()]


_Row = tuple[ReachedRange, dict[str, Any]]


def _rows(world: World, ranges: Sequence[ReachedRange], addresses: set[str]) -> dict[str, list[_Row]]:
    """Return every entry that names one of the addresses, whatever its key."""
    wanted = hash_addresses(sorted(addresses))
    found: dict[str, list[_Row]] = {}
    for one in ranges:
        if np.isin(world.files.hashes(one.folder, one.info), wanted).any():
            rows = world.files.rows(one.folder, one.info)
            for row in rows.filter(pa.array(np.isin(np.asarray(rows.column("hash")), wanted))).to_pylist():
                found.setdefault(row["address"], []).append((one, row))
    return found


def _explanation(world: World, address: str, rows: Sequence[_Row]) -> ObjectExplanation:
    references = sorted(
        {_reference(world, one, row) for one, row in rows},
        key=lambda r: (-to_micros(r.lapse), r.key, r.holder),
    )
    verdicts = [_by_lifecycle(address, references, world.now)]
    terms: list[ExplainedTerm] = []
    if world.retention:
        terms = sorted(
            {_term(one, row) for one, row in rows}, key=lambda t: (-to_micros(t.until), t.key, t.keeper)
        )
        verdicts.append(_by_retention(address, rows, terms, world.now))
    size = max(reference.size for reference in references)
    found = explanation_of(address, size, verdicts)
    return replace(
        found, references=tuple(references[:MOST_REFERENCES]), terms=tuple(terms[:MOST_REFERENCES])
    )


def explanation_of(address: str, size: int, verdicts: Sequence[ItemVerdict]) -> ObjectExplanation:
    """Combine the verdicts of the collectors on an address."""
    combined = combined_verdict(verdicts)
    return ObjectExplanation(
        address,
        size,
        combined.decision,
        combined.deadline,
        combined.reason,
        combined.holder,
        combined.rules,
        combined.collector,
        tuple(verdicts),
    )


def _reference(world: World, one: ReachedRange, row: dict[str, Any]) -> ExplainedReference:
    """Evaluate one entry for all referrers of its range: the latest lapse counts."""
    rules = world.policy.enabled
    matched = [place for place, rule in enumerate(rules) if rule.matches(row["key"])]
    verdict = lifetime_of(matched, one.referrers)
    for_ever = verdict.days is None or row["doubtful"]
    return ExplainedReference(
        row["key"],
        row["created"],
        row["size"],
        NEVER if for_ever else lapses_after(row["created"], verdict.days or 0),
        tuple(rules[place].id for place in verdict.rules),
        verdict.touched,
        holder_text(verdict.holder),
        tuple(sorted({holder_text(referrer) for referrer in one.referrers})),
        str(HoldReason.SPELLING if row["doubtful"] else hold_reason(verdict, matched)),
    )


def _term(one: ReachedRange, row: dict[str, Any]) -> ExplainedTerm:
    """Return until when retention keeps one entry: as long as its range."""
    if one.term is None:
        raise ValueError("a range of a world with retention has a term")
    until, why = one.term.until, one.term.why
    if row["doubtful"]:
        until, why = NEVER, HoldReason.SPELLING
    return ExplainedTerm(
        row["key"], one.term.keeper, until, row["created"], row["size"], one.lapses, str(why)
    )


def _by_lifecycle(address: str, references: Sequence[ExplainedReference], now: datetime) -> ItemVerdict:
    touching = [reference for reference in references if reference.touched]
    keepers = sorted((r.key, r.holder, r.why) for r in references if not r.touched)
    latest = [(-to_micros(r.lapse), r.key, r.holder, r.why, r.lapse) for r in touching]
    hold = _deadline(address, keepers, latest)
    rules = tuple(sorted({rule for reference in touching for rule in reference.rules}))
    if not touching:
        return ItemVerdict(str(CollectorName.LIFECYCLE), KEPT, *hold)
    return decided(str(CollectorName.LIFECYCLE), hold, rules, {r.key for r in touching}, now)


def _by_retention(
    address: str, rows: Sequence[_Row], terms: Sequence[ExplainedTerm], now: datetime
) -> ItemVerdict:
    heads = sorted(
        (row["key"], one.term.keeper)
        for one, row in rows
        if one.term is not None and one.term.why == HoldReason.HEAD
    )
    if heads:
        # A run leaves out what a head needs, because it cannot become due.
        holder = " ".join(heads[0])
        return ItemVerdict(str(CollectorName.RETENTION), KEPT, NEVER, str(HoldReason.HEAD), holder)
    touching = [term for term in terms if term.touched]
    keepers = sorted((t.key, t.keeper, t.why) for t in terms if not t.touched)
    latest = [(-to_micros(t.until), t.key, t.keeper, t.why, t.until) for t in touching]
    hold = _deadline(address, keepers, latest)
    if not touching:
        return ItemVerdict(str(CollectorName.RETENTION), KEPT, *hold)
    rules = (str(CollectorName.RETENTION),)
    return decided(str(CollectorName.RETENTION), hold, rules, {t.key for t in touching}, now)


def _deadline(
    address: str,
    keepers: Sequence[tuple[str, str, str]],
    latest: Iterable[tuple[int, str, str, str, datetime]],
) -> tuple[datetime, str, str]:
    """Return the deadline, the reason to be held until then, and the holder, as a plan names them."""
    if not is_inside(address):
        return NEVER, str(HoldReason.OUTSIDE), address
    if address.startswith(METADATA):
        return NEVER, str(HoldReason.METADATA), address
    if keepers:
        key, holder, why = keepers[0]
        return NEVER, why, f"{key} {holder}"
    _, key, holder, why, until = min(latest)
    return until, why, f"{key} {holder}"


def decided(
    collector: str,
    hold: tuple[datetime, str, str],
    rules: tuple[str, ...],
    paths: Iterable[str],
    now: datetime,
) -> ItemVerdict:
    """Return the verdict at a moment, from the deadline, the reason to be held until then, and the holder."""
    until, reason, holder = hold
    if due(until, now) and until < NEVER:
        return ItemVerdict(
            collector, str(Decision.DUE), until, _LAPSED[collector], "", rules, tuple(sorted(paths))
        )
    return ItemVerdict(collector, str(Decision.HELD), until, reason, holder, rules, tuple(sorted(paths)))


def _address(world: World, text: str) -> str:
    try:
        return canonical(text, world.namespace)
    except AddressError:
        return text


def explain_stored(
    repository: VersionedRepository, text: str, grace: timedelta, now: datetime
) -> ObjectExplanation | None:
    """Explain a stored object that nothing references; None if there is no object with this address."""
    info = _find(repository.store(), text)
    if info is None:
        return None
    contents = repository.bin()
    if info.key.startswith(contents.root):
        verdict = _in_bin(contents, info.key, now)
    elif re.match(repository.layout.object_pattern, info.key):
        opened = list(_open_uploads(repository, info.key))
        verdict = _garbage(info, opened, grace, now)
    else:
        guard = HoldReason.METADATA if info.key.startswith(METADATA) else HoldReason.FOREIGN
        verdict = ItemVerdict(str(CollectorName.UNCOMMITTED), KEPT, NEVER, str(guard), info.key)
    return explanation_of(info.key, info.size, [verdict])


def explain_deleted(
    namespace: DeletedNamespace, text: str, grace: timedelta, now: datetime
) -> ObjectExplanation | None:
    """Explain an object in the namespace of a deleted repository; None if there is none of this address."""
    store, gone = namespace.store(), namespace.repository
    info = _find(store, text)
    if info is None:
        return None
    rules = (DELETED_REPOSITORY,)
    if not (info.key.startswith(own_folders(namespace)) and _is_spelled_canonically(store, info.key)):
        hold = NEVER, str(HoldReason.FOREIGN), "it is not the repository's"
    else:
        later = info.last_modified > gone.deleted
        since = _written(info) if later else f"deleted {format_instant(gone.deleted)}"
        hold = max(info.last_modified, gone.deleted) + grace, str(HoldReason.NOT_YET), since
    verdict = decided(DELETED_REPOSITORY, hold, rules, (), now)
    return explanation_of(info.key, info.size, [verdict])


def _find(store: Store, text: str) -> ObjectInfo | None:
    """Look for an object by its exact key, and then by the canonical form of an address."""
    with suppress(AddressError, NotFound):
        return store.stat(text)
    with suppress(AddressError, NotFound):
        return store.stat(canonical(text, store.spec.url))
    return None


def _is_spelled_canonically(store: Store, key: str) -> bool:
    try:
        return canonical(key, store.spec.url) == key
    except AddressError:
        return False


def _garbage(info: ObjectInfo, opened: list[datetime], grace: timedelta, now: datetime) -> ItemVerdict:
    ripe = info.last_modified + grace
    until = max([ripe, *opened])
    reason = HoldReason.UPLOADING if until > ripe else HoldReason.NOT_YET
    hold = until, str(reason), _written(info)
    return decided(str(CollectorName.UNCOMMITTED), hold, (str(CollectorName.UNCOMMITTED),), (), now)


def _in_bin(contents: StoreBin, key: str, now: datetime) -> ItemVerdict:
    """Return until when the bin keeps an item; an item without a readable label is left alone."""

    def ignore(_broken: EbbtideError) -> None:
        """Ignore damage; `ebb recycle ls` reports it."""

    for label in contents.labels(ignore):
        place = items_of(contents.root, label.folder)
        if key.startswith(place):
            held_by = f"set aside {format_second(label.set_aside)} for {label.days} days"
            hold = label.expires, str(HoldReason.NOT_YET), held_by
            return decided(EMPTY_BIN, hold, (f"recycled by run {label.run}",), (key[len(place) :],), now)
    return ItemVerdict(EMPTY_BIN, KEPT, NEVER, str(HoldReason.METADATA), key)


def _open_uploads(repository: VersionedRepository, address: str) -> Iterator[datetime]:
    """Return until when an address may still be linked."""
    for page in repository.open_uploads():
        yield from page.filter(pc.equal(page.column("address"), address)).column("expires").to_pylist()


def _written(info: ObjectInfo) -> str:
    return f"last written {info.last_modified:%Y-%m-%dT%H:%M:%SZ}"


def explained(
    context: Context, repository: VersionedRepository, item: str, grace: timedelta, now: datetime
) -> Explanation:
    """Explain a key or an address of a repository; NotFound if it has no such item."""
    found = _found(context, repository, item, grace, now)
    if not found:
        raise _unknown(repository.url, item, f"{repository.command} ls")
    return Explanation(tuple(block for one in found for block in blocks(one)), found)


def explained_deleted(namespace: DeletedNamespace, item: str, grace: timedelta, now: datetime) -> Explanation:
    """Explain a key or an address of a deleted repository; NotFound if it left no such object."""
    found = explain_deleted(namespace, item, grace, now)
    if found is None:
        raise _unknown(namespace.url, item, "ebb lake ls")
    return Explanation(tuple(blocks(found)), [found])


def _unknown(url: str, item: str, command: str) -> NotFound:
    return NotFound(
        f"nothing in {url} references {item!r}",
        why="no branch, tag, commit or staging area names it",
        fix=f"check the spelling with '{command}'",
    )


def _found(
    context: Context, repository: VersionedRepository, item: str, grace: timedelta, now: datetime
) -> list[ObjectExplanation]:
    """Explain an item by all rules of the repository."""
    rules, snapshot = every_rule(repository), repository.snapshot()
    info = snapshot.repository
    memory = Memory.of(context.root, info.uid, info.namespace)
    world = world_of(repository, snapshot, rules.policy, now, rules.retention)
    found = explain(replace(world, reference_folder=memory.references), item)
    if not found:
        stored = explain_stored(repository, item, grace, now)
        found = [stored] if stored else []
    removed = RemovedObjects(
        context.root, context.ledger, repository.bin().root, repository.store_spec().options
    )
    return [
        with_removal(
            held_since_restore(one, removed.restored(repository.url, one.address), now),
            removed.find(repository.url, one.address),
        )
        for one in found
    ]


def blocks(e: ObjectExplanation) -> Iterator[Block]:
    """Return one explanation as blocks to show."""
    yield Heading(e.address, human_bytes(e.size))
    if e.removal:
        b = e.removal
        how = f"set aside until {format_second(b.until)}" if b.until else "for good"
        back = f"; ebb restore {b.run_id} {e.address}" if b.until else ""
        done = "took" if b.until else "deleted"
        by = ", ".join(b.rules)
        yield f"GONE since {format_second(b.since)}: run {b.run_id} {done} it by {by}; {how}{back}"
    yield from map(_sentence, e.verdicts)
    if not e.references:
        return
    rows = [
        (
            r.key,
            ", ".join(r.reached),
            format_second(r.created),
            format_second(r.lapse),
            ", ".join(r.rules) or "no rule",
        )
        for r in e.references
    ]
    yield Table("", ("key", "reached", "written", "lapses", "rules"), rows)
    terms = dict.fromkeys((t.key, t.keeper, format_second(t.until)) for t in e.terms)
    if terms:
        yield Table("By retention", ("key", "kept", "until"), list(terms))


def _sentence(verdict: ItemVerdict) -> str:
    """Return the verdict of a collector as one sentence."""
    until = format_second(verdict.deadline)
    if verdict.decision == Decision.DUE:
        by = f" (rules: {', '.join(verdict.rules)})" if verdict.rules else ""
        return f"DUE by {verdict.collector} since {until}: {verdict.reason}{by}"
    if verdict.decision == Decision.HELD:
        return f"HELD from {verdict.collector} (until {until}): {verdict.reason}: {verdict.holder}"
    return f"KEPT by {verdict.collector}: {verdict.reason}: {verdict.holder}"
