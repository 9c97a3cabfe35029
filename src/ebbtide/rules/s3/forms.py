"""The form of a rule: what must be there, and what cannot stand together. All of it S3 calls MalformedXML."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ebbtide.rules.documents import MOST_DAYS, nearest
from ebbtide.rules.s3.refusals import malformed, shown
from ebbtide.rules.s3.storage_classes import CHEAPEST_FIRST

_DAYS = ("Days", "NoncurrentDays", "DaysAfterInitiation")


def check_form(name: str, rule: Mapping[str, Any], locations: Collection[str]) -> None:
    """Refuse a rule that S3's schema has no place for; `locations` may be named like storage classes."""
    if rule.get("Status") not in ("Enabled", "Disabled"):
        found = f"Status is {shown(rule['Status'])}" if "Status" in rule else "it has no Status"
        raise malformed(f"{name}: {found}", fix="write 'Enabled' or 'Disabled'")
    _check_scope(name, rule)
    if "Expiration" in rule:
        _check_expiration(f"{name}: Expiration", rule["Expiration"])
    for transition in rule.get("Transitions", ()):
        _check_one_of(f"{name}: Transition", transition, ("Days", "Date"))
    for action in ("NoncurrentVersionTransitions", "NoncurrentVersionExpiration"):
        for part in _parts(rule, action):
            _check_given(f"{name}: {action.removesuffix('s')}", part, "NoncurrentDays")
    for part in _parts(rule, "AbortIncompleteMultipartUpload"):
        _check_given(f"{name}: AbortIncompleteMultipartUpload", part, "DaysAfterInitiation")
    for action in ("Transitions", "NoncurrentVersionTransitions"):
        for part in _parts(rule, action):
            _check_class(f"{name}: {action.removesuffix('s')}", part, locations)
    _check_days(name, rule)


def _parts(rule: Mapping[str, Any], action: str) -> list[Mapping[str, Any]]:
    given = rule.get(action, [])
    return given if isinstance(given, list) else [given]


def _check_scope(name: str, rule: Mapping[str, Any]) -> None:
    if "Filter" in rule and "Prefix" in rule:
        raise malformed(f"{name}: it has a Filter and a Prefix", fix="move the Prefix into the Filter")
    if "Filter" not in rule and "Prefix" not in rule:
        raise malformed(
            f"{name}: it has neither Filter nor Prefix",
            why="it would match everything, and nobody said so",
            fix='write "Filter": {} for everything',
        )
    given = rule.get("Filter", {})
    if len(given) > 1:
        raise malformed(
            f"{name}: Filter has {' and '.join(given)} side by side",
            why="it takes one predicate",
            fix="put them into And",
        )
    if "Tag" in given:
        _check_tag(f"{name}: Filter.Tag", given["Tag"])
    if "And" in given:
        _check_and(f"{name}: Filter.And", given["And"])


def _check_and(place: str, given: Mapping[str, Any]) -> None:
    tags = given.get("Tags")
    if tags == []:
        raise malformed(f"{place}.Tags is empty", fix="leave it out")
    for tag in tags or ():
        _check_tag(f"{place}.Tags", tag)
    # An empty prefix counts here, as on AWS.
    predicates = len(given) - ("Tags" in given) + len(tags or ())
    if predicates < 2:
        raise malformed(
            f"{place} has {predicates or 'no'} predicate",
            why="it joins two or more",
            fix="leave And out, or add another",
        )


def _check_tag(place: str, tag: Mapping[str, Any]) -> None:
    for part in ("Key", "Value"):
        _check_given(place, tag, part)


def _check_expiration(place: str, given: Mapping[str, Any]) -> None:
    _check_one_of(place, given, ("Days", "Date", "ExpiredObjectDeleteMarker"))


def _check_one_of(place: str, given: Mapping[str, Any], choices: tuple[str, ...]) -> None:
    found = [choice for choice in choices if choice in given]
    if len(found) != 1:
        listed = " and ".join(found) or f"neither {' nor '.join(choices)}"
        raise malformed(f"{place} has {listed}", why="it takes exactly one", fix=f"keep {choices[0]}")


def _check_given(place: str, given: Mapping[str, Any], name: str) -> None:
    if name not in given:
        raise malformed(f"{place} has no {name}", fix="add it")


def _check_class(place: str, given: Mapping[str, Any], locations: Collection[str]) -> None:
    _check_given(place, given, "StorageClass")
    known = (*CHEAPEST_FIRST, *locations)
    if given["StorageClass"] not in known:
        found = given["StorageClass"]
        raise malformed(f"{place}.StorageClass is {shown(found)}", fix=nearest(found, known))


def _check_days(name: str, rule: Mapping[str, Any]) -> None:
    for action in rule:
        for part in _parts(rule, action):
            for days in _DAYS:
                if isinstance(part, dict) and part.get(days, 0) > MOST_DAYS:
                    place = f"{name}: {action.removesuffix('s')}.{days}"
                    raise malformed(f"{place} is {part[days]}, which is too many", fix=f"use {MOST_DAYS}")
