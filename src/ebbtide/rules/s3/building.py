"""From plain data of the right form to rules, and an ID for each rule that came without one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

from ebbtide.rules.instant import last_midnight
from ebbtide.rules.s3.configuration import (
    Expiration,
    Filter,
    NoncurrentExpiration,
    NoncurrentTransition,
    Rule,
    Transition,
)
from ebbtide.rules.s3.refusals import invalid_argument, shown
from ebbtide.rules.s3.writing import plain_rule

MOST_NEWER = 100

# Python reads more than this as ISO 8601, and S3 less: 20300101 is refused. Zeros may follow microseconds.
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6}0*)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def build_rule(name: str, plain: Mapping[str, Any]) -> Rule:
    """Make a rule of plain data that has been checked for its form; the ID is empty if none was given."""
    return Rule(
        id=plain.get("ID", ""),
        enabled=plain["Status"] == "Enabled",
        filter=_filter(plain),
        expiration=_expiration(f"{name}: Expiration", plain.get("Expiration")),
        noncurrent_expiration=_noncurrent_expiration(
            f"{name}: NoncurrentVersionExpiration", plain.get("NoncurrentVersionExpiration")
        ),
        transitions=tuple(_transition(f"{name}: Transition", part) for part in plain.get("Transitions", ())),
        noncurrent_transitions=tuple(
            _noncurrent_transition(f"{name}: NoncurrentVersionTransition", part)
            for part in plain.get("NoncurrentVersionTransitions", ())
        ),
        abort_days=plain.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation"),
        legacy_prefix="Prefix" in plain,
    )


def with_ids(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """
    Give every rule without an ID one made of its place and a hash of what it says.

    The same document therefore gets the same IDs each time, whether it is JSON or XML.
    """
    taken = {rule.id for rule in rules}
    named = []
    for number, rule in enumerate(rules, start=1):
        rule_id = rule.id or _free(f"rule-{number}-{_digest(rule)}", taken)
        taken.add(rule_id)
        named.append(replace(rule, id=rule_id))
    return tuple(named)


def _digest(rule: Rule) -> str:
    return hashlib.sha256(json.dumps(plain_rule(rule), sort_keys=True).encode()).hexdigest()[:12]


def _free(wanted: str, taken: set[str]) -> str:
    name, suffix = wanted, 1
    while name in taken:
        suffix += 1
        name = f"{wanted}-{suffix}"
    return name


def _filter(plain: Mapping[str, Any]) -> Filter:
    if "Prefix" in plain:
        return Filter(plain["Prefix"])
    given = plain["Filter"]
    parts = given.get("And", given)
    tags = parts.get("Tags", [parts["Tag"]] if "Tag" in parts else [])
    return Filter(
        parts.get("Prefix", ""),
        tuple(sorted((tag["Key"], tag["Value"]) for tag in tags)),
        parts.get("ObjectSizeGreaterThan"),
        parts.get("ObjectSizeLessThan"),
    )


def _expiration(place: str, given: Mapping[str, Any] | None) -> Expiration | None:
    if given is None:
        return None
    return Expiration(given.get("Days"), _date(place, given), given.get("ExpiredObjectDeleteMarker", False))


def _noncurrent_expiration(place: str, given: Mapping[str, Any] | None) -> NoncurrentExpiration | None:
    return None if given is None else NoncurrentExpiration(given["NoncurrentDays"], _newer(place, given))


def _transition(place: str, given: Mapping[str, Any]) -> Transition:
    return Transition(given["StorageClass"], given.get("Days"), _date(place, given))


def _noncurrent_transition(place: str, given: Mapping[str, Any]) -> NoncurrentTransition:
    return NoncurrentTransition(given["StorageClass"], given["NoncurrentDays"], _newer(place, given))


def _newer(place: str, given: Mapping[str, Any]) -> int:
    if "NewerNoncurrentVersions" not in given:
        return 0
    newer: int = given["NewerNoncurrentVersions"]
    if not 1 <= newer <= MOST_NEWER:
        raise invalid_argument(
            f"{place}.NewerNoncurrentVersions is {newer}",
            f"'NewerNoncurrentVersions' must be between 1 and {MOST_NEWER}",
            fix="leave it out to keep none",
        )
    return newer


def _date(place: str, given: Mapping[str, Any]) -> datetime | None:
    if "Date" not in given:
        return None
    value = given["Date"]
    found = f"{place}.Date is {shown(str(value))}"
    moment = _moment(value)
    fix = "write it as 2030-01-01T00:00:00Z"
    if moment is None:
        raise invalid_argument(found, "'Date' must be in ISO 8601 format", fix=fix)
    if moment != last_midnight(moment):
        raise invalid_argument(found, "'Date' must be at midnight GMT", fix=fix)
    return moment


def _moment(value: str | date) -> datetime | None:
    """Read a date; without a zone it is UTC."""
    try:
        if isinstance(value, str):
            if not _DATE.fullmatch(value):
                return None
            value = datetime.fromisoformat(value)
        elif not isinstance(value, datetime):
            value = datetime.combine(value, time.min)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
