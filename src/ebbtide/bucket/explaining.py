"""Explaining one key of a bucket: what the rules say of each of its versions and uploads, as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ebbtide.bucket.enclosed import enclosing
from ebbtide.bucket.inventory.scope import needs_tags
from ebbtide.bucket.model import Action, Hold, Upload, Verdict, Version, Versioning
from ebbtide.bucket.oracle import evaluate
from ebbtide.bucket.sources import Sourced
from ebbtide.rules.instant import format_instant, from_micros
from ebbtide.rules.s3.storage_classes import STANDARD
from ebbtide.store.s3_objects import NULL
from ebbtide.store.s3_version_pages import VersionRow
from ebbtide.store.s3_versions import VersionedBucket

_REPLACES = "its delete marker is the null version, and takes the place of the one that lies behind it"


@dataclass(frozen=True)
class Explained:
    """One version or upload of a key, and what the rules say of it."""

    item: Version | Upload
    verdict: Verdict
    notes: tuple[str, ...] = ()
    """What else would happen with it."""


def explain_key(bucket: VersionedBucket, key: str, rules: Sourced, now: datetime) -> list[Explained]:
    """
    Ask the bucket about one key, and the oracle what the rules make of it.

    A single key needs no Spark: the oracle says the same, for that is how the evaluation is tested.
    """
    location = enclosing(rules.enclosed, key)
    inside = replace(rules, configuration=location.rules_of(rules.configuration)) if location else rules
    rows = [row for rows in bucket.version_rows(key, up_to=key) for row in rows if row.key == key]
    versions = _judged([_version(bucket, row, inside) for row in rows], inside, now)
    if rules.versioning is Versioning.SUSPENDED:
        versions = with_replaced_null(versions, now)
    # Uploads below a location are what an interrupted move left there, and no business of the location.
    return [*versions, *_judged(_uploads(bucket, key), rules, now)]


def with_replaced_null(versions: Sequence[Explained], now: datetime) -> list[Explained]:
    """
    Say of an expiration that its marker replaces a null version, or hold it if that one is locked.

    This is what :mod:`ebbtide.bucket.replaced` does with a whole bucket whose versioning is suspended.
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
        why, hold = f", which is locked until {format_instant(null.retain_until)}", Hold.RETENTION
    else:
        why, hold = "", None
    verdict = Verdict(rule_id=one.verdict.rule_id, due=one.verdict.due, held_by=hold) if hold else one.verdict
    return Explained(one.item, verdict, (f"{_REPLACES}{why}",))


def _has_null_content(version: Version) -> bool:
    return version.version_id == NULL and not version.is_delete_marker


def _judged(items: Sequence[Version | Upload], rules: Sourced, now: datetime) -> list[Explained]:
    verdicts = evaluate(rules.configuration, items, now, rules.versioning)
    return [Explained(*pair) for pair in zip(items, verdicts, strict=True)]


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
