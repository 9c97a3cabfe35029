"""
Explaining one key of a bucket: what the rules say of each of its versions and uploads, as it is now.

An answer has the words of a plan: decision, deadline, reason, holder and rules are those of the plan's row.
Of what no rule touches, for which a plan has no row, it says why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.instant import NEVER, format_second, from_micros
from ebbtide.storage.s3_bucket import VersionedBucket
from ebbtide.storage.s3_objects import NULL
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.targets.s3.bin import restored_until
from ebbtide.targets.s3.bin_place import BIN_ROOT
from ebbtide.targets.s3.enclosed import enclosing
from ebbtide.targets.s3.inventory.scope import needs_tags
from ebbtide.targets.s3.model import Action, Hold, Upload, Verdict, Version, Versioning
from ebbtide.targets.s3.oracle import evaluate
from ebbtide.targets.s3.oracle_places import find_places
from ebbtide.targets.s3.protected import lakes_around, together
from ebbtide.targets.s3.rules.storage_classes import STANDARD
from ebbtide.targets.s3.sources import Sourced
from ebbtide.targets.s3.untouched import why_untouched

_REPLACES = "its delete marker is the null version, and takes the place of the one that lies behind it"


KEPT = "kept"
"""The decision on what no plan has a row for: no rule touches it."""


@dataclass(frozen=True)
class Explained:
    """One version or upload of a key, and what the rules say of it."""

    item: Version | Upload
    verdict: Verdict
    notes: tuple[str, ...] = ()
    """What else would happen with it."""
    kept_because: str = ""
    """Why no rule touches it, if none does."""
    current: bool = True
    """It is the current version of its key, or an upload."""
    locked_until: datetime | None = None
    """Until when another version is locked or held that would go with this one."""
    lake: str = ""
    """The lake in which it lies, if it does."""

    @property
    def decision(self) -> str:
        """What a plan decides: due or held; kept is what it has no row for."""
        if self.verdict.action is not Action.NONE:
            return str(Decision.DUE)
        is_touched = self.verdict.held_by is not None or self.verdict.due is not None
        return str(Decision.HELD) if is_touched else KEPT

    @property
    def deadline(self) -> datetime:
        """From when on something is done with it; of all holds only that of a restore has a known end."""
        if self.verdict.held_by is Hold.RESTORED:
            return self.restored_until or NEVER
        return NEVER if self.verdict.held_by is not None else self.verdict.due or NEVER

    @property
    def reason(self) -> str:
        """Why it goes or stays."""
        if self.decision == Decision.DUE:
            return f"rule {self.verdict.rule_id} asks for it since {format_second(self.deadline)}"
        if self.decision == KEPT:
            return self.kept_because
        return str(self.verdict.held_by or HoldReason.NOT_YET)

    @property
    def holder(self) -> str:
        """What keeps it from going: a hold, or the rule that will end it."""
        verdict = self.verdict
        if self.decision != Decision.HELD:
            return ""
        if verdict.held_by is None:
            return f"rule {verdict.rule_id} from {_second(self.deadline)} on"
        until = self.locked_until or getattr(self.item, "retain_until", None)
        if verdict.held_by is Hold.RETENTION and until is not None:
            return f"{verdict.held_by} until {_second(until)}"
        if verdict.held_by is Hold.RESTORED:
            return f"{verdict.held_by} until {_second(self.deadline)}"
        if verdict.held_by is Hold.LAKE:
            return self.lake
        return str(verdict.held_by)

    @property
    def restored_until(self) -> datetime | None:
        """Until when it is held because it, or what would go with it, was restored from the bin."""
        return self.locked_until or getattr(self.item, "restored_until", None)

    @property
    def rules(self) -> tuple[str, ...]:
        """Which rule says so."""
        return (self.verdict.rule_id,) if self.verdict.rule_id is not None else ()


def _second(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def explain_key(
    bucket: VersionedBucket,
    key: str,
    rules: Sourced,
    now: datetime,
    restored: Mapping[str, datetime] = MappingProxyType({}),
) -> list[Explained]:
    """
    Ask the bucket about one key, and the oracle what the rules make of it.

    A single key needs no Spark: the oracle says the same, for that is how the evaluation is tested. What came
    back from the recycle bin is held until the times in `restored`.
    """
    rules = replace(rules, protected=together(rules.protected, lakes_around(bucket.spec, [key])))
    rows = [row for rows in bucket.version_rows(key, up_to=key) for row in rows if row.key == key]
    inside = rules_for(rules, key)
    found = [_version(bucket, row, inside) for row in rows]
    held = [replace(one, restored_until=restored_until(restored, one.version_id)) for one in found]
    return explain_items([*held, *_uploads(bucket, key)], rules, now)


def explain_items(items: Sequence[Version | Upload], rules: Sourced, now: datetime) -> list[Explained]:
    """Explain all versions and uploads of some keys."""
    found: list[Explained] = []
    for key in dict.fromkeys(item.key for item in items):
        versions = [item for item in items if item.key == key and isinstance(item, Version)]
        judged = _judged(versions, rules_for(rules, key), now)
        if rules.versioning is Versioning.SUSPENDED:
            judged = with_replaced_null(judged, now)
        # Uploads below a location are what an interrupted move left there, and no business of the location.
        uploads = [item for item in items if item.key == key and isinstance(item, Upload)]
        found += [*judged, *_judged(uploads, rules, now)]
    return found


def rules_for(rules: Sourced, key: str) -> Sourced:
    """Give the rules that count for the versions of a key; the recycle bin is out of every rule's reach."""
    if key.startswith(BIN_ROOT):
        return replace(rules, configuration=replace(rules.configuration, rules=()))
    location = enclosing(rules.enclosed, key)
    return replace(rules, configuration=location.rules_of(rules.configuration)) if location else rules


def with_replaced_null(versions: Sequence[Explained], now: datetime) -> list[Explained]:
    """
    Say of an expiration that its marker replaces a null version, or hold it if that one is locked.

    This is what :mod:`ebbtide.targets.s3.replaced` does with a whole bucket whose versioning is suspended.
    """
    for one in versions:
        item, action = one.item, one.verdict.action
        if isinstance(item, Version) and _has_null_content(item) and action is not Action.DELETE_VERSION:
            return [_replacing(other, item, now) if other is not one else one for other in versions]
    return list(versions)


def _replacing(one: Explained, null: Version, now: datetime) -> Explained:
    if one.verdict.action is not Action.EXPIRE:
        return one
    if null.legal_hold:
        why, hold = ", which is under a legal hold", Hold.LEGAL_HOLD
    elif null.retain_until is not None and null.retain_until > now:
        why, hold = f", which is locked until {format_second(null.retain_until)}", Hold.RETENTION
    elif null.restored_until is not None and null.restored_until > now:
        why = f", which was restored and is held until {format_second(null.restored_until)}"
        hold = Hold.RESTORED
    else:
        why, hold = "", None
    until = null.restored_until if hold is Hold.RESTORED else null.retain_until
    verdict = Verdict(rule_id=one.verdict.rule_id, due=one.verdict.due, held_by=hold) if hold else one.verdict
    return replace(one, verdict=verdict, notes=(f"{_REPLACES}{why}",), locked_until=until)


def _has_null_content(version: Version) -> bool:
    return version.version_id == NULL and not version.is_delete_marker


def _judged(items: Sequence[Version | Upload], rules: Sourced, now: datetime) -> list[Explained]:
    verdicts = evaluate(rules.configuration, items, now, rules.versioning, rules.protected)
    places = find_places(items)
    return [
        Explained(
            item,
            verdict,
            kept_because=why_untouched(rules.configuration, item, places.get(number)),
            current=number not in places or places[number].current,
            lake=next((one.holder for one in rules.protected if item.key.startswith(one.prefix)), ""),
        )
        for number, (item, verdict) in enumerate(zip(items, verdicts, strict=True))
    ]


def _version(bucket: VersionedBucket, row: VersionRow, rules: Sourced) -> Version:
    lock = None if row.is_delete_marker else bucket.lock(row.key, row.version_id)
    asks = needs_tags(rules.configuration) and not row.is_delete_marker
    return Version(
        row.key,
        row.version_id,
        from_micros(row.micros),
        row.is_latest,
        row.is_delete_marker,
        row.size,
        row.storage_class or STANDARD,
        bucket.tags(row.key, row.version_id) if asks else None,
        row.etag,
        legal_hold=lock is not None and lock.legal_hold,
        retain_until=lock.retain_until if lock else None,
        replication_status=lock.replication_status if lock else None,
        restoring=lock is not None and lock.restoring,
    )


def _uploads(bucket: VersionedBucket, key: str) -> Sequence[Upload]:
    return [
        Upload(row["key"], row["upload_id"], row["initiated"])
        for batch in bucket.uploads(key)
        for row in batch.to_pylist()
        if row["key"] == key
    ]
