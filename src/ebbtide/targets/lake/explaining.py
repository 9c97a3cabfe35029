"""
Explaining one object: every reference to it, when each lapses, and so why it goes or stays.

This is the deadline algebra in plain Python, on the driver. It reads the rows of ranges that can contain the
key; of the others it looks at the hashes of their addresses alone, because another key may share the object.
The answer must be that of a plan, row by row, which the tests compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.deadline import due
from ebbtide.core.decision import DELETED_REPOSITORY, EMPTY_BIN, CollectorName, Decision, HoldReason
from ebbtide.core.errors import AddressError
from ebbtide.core.instant import NEVER, format_instant, to_micros
from ebbtide.engine.burials import RestoredItem
from ebbtide.engine.removed_items import held_by_restore
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.storage.address import canonical, is_inside
from ebbtide.targets.lake.catalog.model import RemovedItem
from ebbtide.targets.lake.catalog.ranges import METADATA
from ebbtide.targets.lake.lifecycle.segments import hold_reason, holder_text, judge
from ebbtide.targets.lake.metadata.reached import ReachedRange, reached_ranges
from ebbtide.targets.lake.metadata.world import World
from ebbtide.targets.repository.policy import lapses_after

MOST_ADDRESSES = 20
MOST_REFERENCES = 200
KEPT = "kept"
"""The decision on what no plan has a row for: no rule touches it."""
ABSENT = "absent"
"""The decision on what a run has taken away."""
_LAPSED = {
    str(CollectorName.LIFECYCLE): "every reference has lapsed",
    str(CollectorName.RETENTION): "no commit keeps it any longer",
    str(CollectorName.UNCOMMITTED): "nothing references it, and its grace period is over",
    DELETED_REPOSITORY: "its repository was deleted, and the grace period is over",
    EMPTY_BIN: "its days in the recycle bin are over",
}


@dataclass(frozen=True)
class ExplainedReference:
    """One reference: a key in a range, for all who reach it."""

    key: str
    created: datetime
    size: int
    lapse: datetime
    rules: tuple[str, ...]
    touched: bool
    """A rule matches it for at least one of those who reach it."""
    holder: str
    """Who of them keeps it longest."""
    reached: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class ExplainedTerm:
    """Until when a commit or staging keeps a key, by the retention rules."""

    key: str
    keeper: str
    until: datetime
    created: datetime
    size: int
    touched: bool
    why: str


@dataclass(frozen=True)
class ItemVerdict:
    """What one collector, or a run that asks several, says of an address."""

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
    """Everything that speaks for and against one address."""

    address: str
    size: int
    decision: str
    """due, held, kept or absent: what a run says that asks all collectors."""
    deadline: datetime
    reason: str
    holder: str
    rules: tuple[str, ...]
    collector: str
    verdicts: tuple[ItemVerdict, ...]
    """What each collector says by itself."""
    references: tuple[ExplainedReference, ...] = ()
    """The one that lives longest comes first."""
    terms: tuple[ExplainedTerm, ...] = ()
    """What retention says of them, if the repository has such rules; the latest first."""
    burial: RemovedItem | None = None


_Judged = TypeVar("_Judged", ItemVerdict, ObjectExplanation)


def explain(world: World, *keys_or_addresses: str) -> list[ObjectExplanation]:
    """Find the addresses that the keys ever had, and those that are given as such, and explain each."""
    ranges = reached_ranges(world)
    named = {_address(world, text) for text in keys_or_addresses}
    for one in ranges:
        keys = [key for key in keys_or_addresses if one.can_contain(key)]
        named.update(_addresses_of(world, one, keys) if keys else ())
    found = _rows(world, ranges, named)
    return [_explanation(world, address, found[address]) for address in sorted(found)[:MOST_ADDRESSES]]


def taken_away(explanation: ObjectExplanation, burial: RemovedItem | None) -> ObjectExplanation:
    """Say of an object that a run has taken away that it is not there, whatever refers to it."""
    if burial is None:
        return explanation
    how = "set it aside" if burial.until else "deleted it"
    reason = f"run {burial.run_id} {how} at {format_instant(burial.since)}"
    return replace(explanation, decision=ABSENT, reason=reason, burial=burial)


def held_since_restore(
    explanation: ObjectExplanation, restored: RestoredItem | None, now: datetime
) -> ObjectExplanation:
    """Hold what was restored from the recycle bin, unless it is held for longer or no rule touches it."""
    if restored is None or restored.until is None:
        return explanation
    verdicts = tuple(held_until(one, restored, now) for one in explanation.verdicts)
    return replace(held_until(explanation, restored, now), verdicts=verdicts)


def held_until(one: _Judged, restored: RestoredItem, now: datetime) -> _Judged:
    """Move a deadline to the end of the hold of a restored item, if that is later."""
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


def together(verdicts: Iterable[ItemVerdict]) -> ItemVerdict:
    """Give what a run says that asks several collectors: the earliest deadline counts, then their order."""
    asked = list(verdicts)
    touching = [one for one in asked if one.decision != KEPT]
    # The bin and deleted repositories are planned by themselves.
    order = [*map(str, CollectorName), EMPTY_BIN, DELETED_REPOSITORY]
    first = min(touching or asked, key=lambda one: (one.deadline, order.index(one.collector)))
    return replace(first, paths=tuple(sorted({path for one in touching for path in one.paths})))


def _addresses_of(world: World, one: ReachedRange, keys: Sequence[str]) -> list[str]:
    rows = world.files.rows(one.folder, one.info)
    chosen = rows.filter(pc.is_in(rows.column("key"), value_set=pa.array(keys, pa.string())))
    return [str(address) for address in chosen.column("address").to_pylist()]


_Row = tuple[ReachedRange, dict[str, Any]]


def _rows(world: World, ranges: Sequence[ReachedRange], addresses: set[str]) -> dict[str, list[_Row]]:
    """Find every entry that names one of the addresses, whatever its key, by the hashes of the ranges."""
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
    """Put together what the collectors say of an address."""
    all_of_them = together(verdicts)
    return ObjectExplanation(
        address,
        size,
        all_of_them.decision,
        all_of_them.deadline,
        all_of_them.reason,
        all_of_them.holder,
        all_of_them.rules,
        all_of_them.collector,
        tuple(verdicts),
    )


def _reference(world: World, one: ReachedRange, row: dict[str, Any]) -> ExplainedReference:
    """Judge one entry for all who reach its range: the latest lapse counts."""
    rules = world.policy.enabled
    matched = [place for place, rule in enumerate(rules) if rule.matches(row["key"])]
    verdict = judge(matched, one.ties)
    for_ever = verdict.days is None or row["doubtful"]
    return ExplainedReference(
        row["key"],
        row["created"],
        row["size"],
        NEVER if for_ever else lapses_after(row["created"], verdict.days or 0),
        tuple(rules[place].id for place in verdict.rules),
        verdict.touched,
        holder_text(verdict.holder),
        tuple(sorted({holder_text(tie) for tie in one.ties})),
        str(HoldReason.SPELLING if row["doubtful"] else hold_reason(verdict, matched)),
    )


def _term(one: ReachedRange, row: dict[str, Any]) -> ExplainedTerm:
    """Say until when retention keeps one entry: as long as its range."""
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
    standing = _standing(address, keepers, latest)
    rules = tuple(sorted({rule for reference in touching for rule in reference.rules}))
    if not touching:
        return ItemVerdict(str(CollectorName.LIFECYCLE), KEPT, *standing)
    return decided(str(CollectorName.LIFECYCLE), standing, rules, {r.key for r in touching}, now)


def _by_retention(
    address: str, rows: Sequence[_Row], terms: Sequence[ExplainedTerm], now: datetime
) -> ItemVerdict:
    heads = sorted(
        (row["key"], one.term.keeper)
        for one, row in rows
        if one.term is not None and one.term.why == HoldReason.HEAD
    )
    if heads:
        # A run leaves out what a head needs: it cannot become due.
        holder = " ".join(heads[0])
        return ItemVerdict(str(CollectorName.RETENTION), KEPT, NEVER, str(HoldReason.HEAD), holder)
    touching = [term for term in terms if term.touched]
    keepers = sorted((t.key, t.keeper, t.why) for t in terms if not t.touched)
    latest = [(-to_micros(t.until), t.key, t.keeper, t.why, t.until) for t in touching]
    standing = _standing(address, keepers, latest)
    if not touching:
        return ItemVerdict(str(CollectorName.RETENTION), KEPT, *standing)
    rules = (str(CollectorName.RETENTION),)
    return decided(str(CollectorName.RETENTION), standing, rules, {t.key for t in touching}, now)


def _standing(
    address: str,
    keepers: Sequence[tuple[str, str, str]],
    latest: Iterable[tuple[int, str, str, str, datetime]],
) -> tuple[datetime, str, str]:
    """Give the deadline, the reason to be held until then, and the holder, as a plan names them."""
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
    standing: tuple[datetime, str, str],
    rules: tuple[str, ...],
    paths: Iterable[str],
    now: datetime,
) -> ItemVerdict:
    """Decide at a moment on a standing: its deadline, the reason to be held until then, and the holder."""
    until, reason, holder = standing
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
