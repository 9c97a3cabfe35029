"""
What S3 refuses in a lifecycle configuration beyond the types of its fields, with S3's error codes.

botocore's model knows which fields exist and which type each has (see `service_model`). S3's servers check
more, and this module repeats it: first the form of each rule, while it is a plain mapping (MalformedXML);
then its values, mostly of the typed `Rule` (InvalidArgument and InvalidRequest).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from ebbtide.core.documents import MOST_DAYS, nearest
from ebbtide.core.errors import LifecycleError
from ebbtide.core.instant import last_midnight
from ebbtide.targets.s3.rules.configuration import Filter, NoncurrentTransition, Rule, Transition
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST

MALFORMED = "MalformedXML"
ARGUMENT = "InvalidArgument"
REQUEST = "InvalidRequest"

MOST_RULES = 1000
MOST_NEWER = 100
LONGEST_ID = 255
LONGEST_PREFIX = 1024
LONGEST_TAG_KEY = 128
LONGEST_TAG_VALUE = 256
LARGEST_SIZE = 1_099_511_627_776_000
"""The end of the range that AWS documents for both object sizes."""

_SCHEMA = "The XML you provided was not well-formed or did not validate against our published schema"
_LONGEST_SHOWN = 60
_DAYS = ("Days", "NoncurrentDays", "DaysAfterInitiation")

# Python accepts more forms of ISO 8601 than S3 does, such as 20300101. Zeros may follow the microseconds.
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6}0*)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


# Errors


def malformed(found: str, *, why: str = "", fix: str = "") -> LifecycleError:
    """Make the error for a document that does not have the form of a configuration."""
    detail = f"{found}; {why}" if why else found
    return LifecycleError(MALFORMED, f"{_SCHEMA} ({detail})", found, why=why, fix=fix)


def invalid_argument(found: str, sentence: str, *, fix: str) -> LifecycleError:
    """Make the error for a value outside the range of its field; `sentence` is S3's own."""
    return LifecycleError(ARGUMENT, f"{sentence} ({found})", found, why=sentence, fix=fix)


def invalid_request(found: str, sentence: str, *, fix: str) -> LifecycleError:
    """Make the error for values that cannot be combined or exceed a limit; `sentence` is S3's own."""
    return LifecycleError(REQUEST, f"{sentence} ({found})", found, why=sentence, fix=fix)


def rule_label(number: int, rule_id: Any) -> str:
    """Name a rule in a message by its ID, or by its number if it has none."""
    return f"rule {shown(rule_id)}" if isinstance(rule_id, str) and rule_id else f"rule {number}"


def shown(value: Any) -> str:
    """Format a value for a message: mappings and lists by their type, long strings cut."""
    types = {dict: "a mapping", list: "a list", type(None): "empty", bool: str(value).lower()}
    if type(value) in types:
        return types[type(value)]
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        return f"{value[:_LONGEST_SHOWN]!r}... ({len(value)} characters)"
    return repr(value)


# The form of a rule: MalformedXML


def check_rule_list(rules: Any) -> None:
    """Check that there is a list of 1 to 1000 rules."""
    if not isinstance(rules, list):
        raise malformed(f"Rules is {shown(rules)}", fix='write {"Rules": [{...}]}')
    if not rules:
        raise malformed("there is no rule", fix="write at least one, or delete the configuration")
    if len(rules) > MOST_RULES:
        raise malformed(f"there are {len(rules)} rules", why=f"{MOST_RULES} are allowed", fix="merge some")


def check_form(name: str, rule: Mapping[str, Any], locations: Collection[str]) -> None:
    """Check which fields a rule combines; `locations` are allowed where a storage class is."""
    if rule["Status"] not in ("Enabled", "Disabled"):
        raise malformed(f"{name}: Status is {shown(rule['Status'])}", fix="write 'Enabled' or 'Disabled'")
    _check_scope(name, rule)
    for part in _parts(rule, "Expiration"):
        _check_one_of(f"{name}: Expiration", part, ("Days", "Date", "ExpiredObjectDeleteMarker"))
    for part in _parts(rule, "Transitions"):
        _check_one_of(f"{name}: Transition", part, ("Days", "Date"))
    for action in ("NoncurrentVersionTransitions", "NoncurrentVersionExpiration"):
        for part in _parts(rule, action):
            _check_given(f"{name}: {action.removesuffix('s')}", part, "NoncurrentDays")
    for part in _parts(rule, "AbortIncompleteMultipartUpload"):
        _check_given(f"{name}: AbortIncompleteMultipartUpload", part, "DaysAfterInitiation")
    for action in ("Transitions", "NoncurrentVersionTransitions"):
        for part in _parts(rule, action):
            _check_class(f"{name}: {action.removesuffix('s')}", part, locations)
    _check_most_days(name, rule)


def _parts(rule: Mapping[str, Any], action: str) -> list[Mapping[str, Any]]:
    given = rule.get(action, [])
    return given if isinstance(given, list) else [given]


def _check_scope(name: str, rule: Mapping[str, Any]) -> None:
    if "Filter" in rule and "Prefix" in rule:
        raise malformed(f"{name}: it has a Filter and a Prefix", fix="move the Prefix into the Filter")
    if "Filter" not in rule and "Prefix" not in rule:
        raise malformed(
            f"{name}: it has neither Filter nor Prefix",
            why="a rule for every object must say so",
            fix='write "Filter": {} for every object',
        )
    given = rule.get("Filter", {})
    if len(given) > 1:
        raise malformed(
            f"{name}: Filter has {' and '.join(given)} side by side",
            why="it takes one predicate",
            fix="put them into And",
        )
    if "And" in given:
        _check_and(f"{name}: Filter.And", given["And"])


def _check_and(place: str, given: Mapping[str, Any]) -> None:
    tags = given.get("Tags")
    if tags == []:
        raise malformed(f"{place}.Tags is empty", fix="leave it out")
    # An empty prefix counts as a predicate here, as on AWS.
    predicates = len(given) - ("Tags" in given) + len(tags or ())
    if predicates < 2:
        raise malformed(
            f"{place} has {predicates or 'no'} predicate",
            why="it joins two or more",
            fix="remove And, or add another predicate",
        )


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


def _check_most_days(name: str, rule: Mapping[str, Any]) -> None:
    for action in rule:
        for part in _parts(rule, action):
            for days in _DAYS:
                if isinstance(part, dict) and part.get(days, 0) > MOST_DAYS:
                    place = f"{name}: {action.removesuffix('s')}.{days}"
                    raise malformed(f"{place} is {part[days]}, which is too many", fix=f"use {MOST_DAYS}")


# The values of a rule: InvalidArgument and InvalidRequest


def checked_date(place: str, given: Mapping[str, Any]) -> datetime | None:
    """Return the Date of an action as an instant, which must be midnight UTC; None if there is no Date."""
    if "Date" not in given:
        return None
    found = f"{place}.Date is {shown(str(given['Date']))}"
    instant = _instant(given["Date"])
    fix = "write it as 2030-01-01T00:00:00Z"
    if instant is None:
        raise invalid_argument(found, "'Date' must be in ISO 8601 format", fix=fix)
    if instant != last_midnight(instant):
        raise invalid_argument(found, "'Date' must be at midnight GMT", fix=fix)
    return instant


def _instant(value: str | date) -> datetime | None:
    """Parse a date; without a time zone it is UTC."""
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


def checked_newer(place: str, given: Mapping[str, Any]) -> int:
    """Return how many newer noncurrent versions an action keeps: 1 to 100, or 0 if it does not say."""
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


def check_ids(names: Sequence[str], rules: Sequence[Rule]) -> None:
    """Refuse an ID that is too long or used twice. Rules without an ID get one later."""
    seen = set()
    for name, rule in zip(names, rules, strict=True):
        if len(rule.id) > LONGEST_ID:
            sentence = f"ID length should not exceed allowed limit of {LONGEST_ID}"
            raise invalid_argument(f"{name}: ID has {len(rule.id)} characters", sentence, fix="shorten it")
        if rule.id and rule.id in seen:
            sentence = "Rule ID must be unique. Found same ID for more than one rule"
            raise invalid_argument(f"{name}: its ID is given twice", sentence, fix="rename one of the two")
        seen.add(rule.id)


def check_values(name: str, rule: Rule) -> None:
    """Refuse values outside S3's limits, and actions and filters that S3 does not combine."""
    _check_filter(f"{name}: Filter", rule.filter)
    _check_days(name, rule)
    _check_actions(name, rule)
    _check_combination(name, rule)


def _check_filter(place: str, given: Filter) -> None:
    length = len(given.prefix.encode())
    if length > LONGEST_PREFIX:
        sentence = f"The maximum size of a prefix is {LONGEST_PREFIX}"
        raise invalid_request(f"{place}.Prefix has {length} bytes", sentence, fix="shorten it")
    for key, value in given.tags:
        _check_length(f"{place}: the key of a tag", key, 1, LONGEST_TAG_KEY, "Key")
        _check_length(f"{place}: the value of tag {shown(key)}", value, 0, LONGEST_TAG_VALUE, "Value")
    for key, times in Counter(key for key, _ in given.tags).items():
        if times > 1:
            sentence = "Duplicate Tag Keys are not allowed."
            raise invalid_request(f"{place} has tag {shown(key)} {times} times", sentence, fix="keep one")
    _check_size(place, "ObjectSizeGreaterThan", given.larger_than, 0)
    _check_size(place, "ObjectSizeLessThan", given.smaller_than, 1)
    larger, smaller = given.larger_than, given.smaller_than
    if larger is not None and smaller is not None and smaller <= larger:
        sentence = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'."
        found = f"{place} asks for more than {larger} and less than {smaller}"
        raise invalid_request(found, sentence, fix="swap them")


def _check_length(place: str, text: str, least: int, most: int, part: str) -> None:
    if not least <= len(text) <= most:
        sentence = f"A Tag's {part} must be a length between {least} and {most}."
        raise invalid_request(f"{place} has {len(text)} characters", sentence, fix="change its length")


def _check_size(place: str, field: str, size: int | None, least: int) -> None:
    if size is not None and not least <= size <= LARGEST_SIZE:
        sentence = f"'{field}' should be between {least} and {LARGEST_SIZE}."
        raise invalid_request(f"{place}.{field} is {size}", sentence, fix="write a size in bytes")


def _check_days(name: str, rule: Rule) -> None:
    if rule.expiration is not None:
        _check_positive(name, "Expiration", "Days", rule.expiration.days)
    if rule.noncurrent_expiration is not None:
        days = rule.noncurrent_expiration.days
        _check_positive(name, "NoncurrentVersionExpiration", "NoncurrentDays", days)
    _check_positive(name, "AbortIncompleteMultipartUpload", "DaysAfterInitiation", rule.abort_days)
    for transition in rule.transitions:
        _check_nonnegative(name, "Transition", "Days", transition.days)
    for noncurrent in rule.noncurrent_transitions:
        _check_nonnegative(name, "NoncurrentVersionTransition", "NoncurrentDays", noncurrent.days)


def _check_positive(name: str, action: str, field: str, days: int | None) -> None:
    if days is not None and days <= 0:
        sentence = f"'{field}' for {action} action must be a positive integer"
        fix = "use 1 or more; to stop a rule set Status to Disabled"
        raise invalid_argument(f"{name}: {action}.{field} is {days}", sentence, fix=fix)


def _check_nonnegative(name: str, action: str, field: str, days: int | None) -> None:
    if days is not None and days < 0:
        sentence = f"'{field}' in {action} action must be nonnegative"
        raise invalid_argument(f"{name}: {action}.{field} is {days}", sentence, fix="use 0 or more")


def _check_actions(name: str, rule: Rule) -> None:
    actions = (rule.expiration, rule.noncurrent_expiration, rule.abort_days)
    if all(action is None for action in actions) and not rule.transitions + rule.noncurrent_transitions:
        sentence = "At least one action needs to be specified in a rule"
        raise invalid_request(f"{name}: it has no action", sentence, fix="add one, or remove the rule")
    _check_transitions(name, "Transition", "Days", rule.transitions)
    _check_transitions(name, "NoncurrentVersionTransition", "NoncurrentDays", rule.noncurrent_transitions)
    timed: list[Any] = [*rule.transitions, *([rule.expiration] if rule.expiration else [])]
    if any(part.days is not None for part in timed) and any(part.date is not None for part in timed):
        sentence = "Found mixed 'Date' and 'Days' based Expiration and Transition actions in lifecycle rule"
        found = f"{name}: it has both Days and Date"
        raise invalid_request(found, sentence, fix="split it into two rules")


def _check_transitions(
    name: str, action: str, field: str, transitions: Sequence[Transition] | Sequence[NoncurrentTransition]
) -> None:
    for storage_class, count in Counter(part.storage_class for part in transitions).items():
        if count > 1:
            sentence = f"'StorageClass' must be different for '{action}' actions in same 'Rule'"
            found = f"{name}: {action} to {storage_class} is given {count} times"
            raise invalid_request(found, sentence, fix="keep one of them")
    # Days are whole and dates are midnights, so two that are less than a day apart are equal.
    times = Counter(getattr(part, "date", None) or part.days for part in transitions)
    if any(count > 1 for count in times.values()):
        sentence = f"'{field}' of '{action}' actions in same 'Rule' must be at least one day apart"
        found = f"{name}: {action}: two are due at the same time"
        raise invalid_argument(found, sentence, fix="change the time of one of them")


def _check_combination(name: str, rule: Rule) -> None:
    # ExpiredObjectDeleteMarker counts even if it is false: S3 checks whether it is written.
    marker = rule.expiration is not None and rule.expiration.only_marker
    aborts = rule.abort_days is not None
    for given, action in ((marker, "ExpiredObjectDeleteMarker"), (aborts, "AbortIncompleteMultipartUpload")):
        if given and rule.filter.tags:
            sentence = f"{action} cannot be specified with Tags."
            raise invalid_request(f"{name}: {action} with tags", sentence, fix="split it into two rules")
    if aborts and rule.filter.has_size:
        sentence = "AbortIncompleteMultipartUpload cannot be specified with Object Size."
        found = f"{name}: AbortIncompleteMultipartUpload with a size"
        raise invalid_request(found, sentence, fix="split it into two rules")
