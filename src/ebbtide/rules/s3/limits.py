"""What S3 refuses in rules of the right form: values outside their limits, parts that do not go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ebbtide.rules.s3.configuration import Filter, NoncurrentTransition, Rule, Transition
from ebbtide.rules.s3.refusals import invalid_argument, invalid_request, shown

LONGEST_ID = 255
LONGEST_PREFIX = 1024
LONGEST_TAG_KEY = 128
LONGEST_TAG_VALUE = 256
LARGEST_SIZE = 1_099_511_627_776_000
"""What AWS names as the end of the range for both sizes."""


def check_ids(names: Sequence[str], rules: Sequence[Rule]) -> None:
    """Refuse an ID that is too long or given twice; rules without one get their own later."""
    seen = set()
    for name, rule in zip(names, rules, strict=True):
        if len(rule.id) > LONGEST_ID:
            sentence = f"ID length should not exceed allowed limit of {LONGEST_ID}"
            raise invalid_argument(f"{name}: ID has {len(rule.id)} characters", sentence, fix="shorten it")
        if rule.id and rule.id in seen:
            sentence = "Rule ID must be unique. Found same ID for more than one rule"
            raise invalid_argument(f"{name}: its ID is given twice", sentence, fix="rename one of the two")
        seen.add(rule.id)


def check_limits(name: str, rule: Rule) -> None:
    """Refuse a rule that says what S3 does not take."""
    _check_filter(f"{name}: Filter", rule.filter)
    _check_numbers(name, rule)
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
    _check_size(f"{place}.ObjectSizeGreaterThan", "ObjectSizeGreaterThan", given.larger_than, 0)
    _check_size(f"{place}.ObjectSizeLessThan", "ObjectSizeLessThan", given.smaller_than, 1)
    larger, smaller = given.larger_than, given.smaller_than
    if larger is not None and smaller is not None and smaller <= larger:
        sentence = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'."
        raise invalid_request(
            f"{place} asks for more than {larger} and less than {smaller}", sentence, fix="swap them"
        )


def _check_length(place: str, text: str, least: int, most: int, part: str) -> None:
    if not least <= len(text) <= most:
        sentence = f"A Tag's {part} must be a length between {least} and {most}."
        raise invalid_request(f"{place} has {len(text)} characters", sentence, fix="change its length")


def _check_size(place: str, name: str, size: int | None, least: int) -> None:
    if size is not None and not least <= size <= LARGEST_SIZE:
        sentence = f"'{name}' should be between {least} and {LARGEST_SIZE}."
        raise invalid_request(f"{place} is {size}", sentence, fix="write a size in bytes")


def _check_numbers(name: str, rule: Rule) -> None:
    if rule.expiration is not None:
        _check_positive(f"{name}: Expiration", "Days", rule.expiration.days)
    if rule.noncurrent_expiration is not None:
        place = f"{name}: NoncurrentVersionExpiration"
        _check_positive(place, "NoncurrentDays", rule.noncurrent_expiration.days)
    _check_positive(f"{name}: AbortIncompleteMultipartUpload", "DaysAfterInitiation", rule.abort_days)
    for transition in rule.transitions:
        _check_nonnegative(f"{name}: Transition", "Days", transition.days)
    for noncurrent in rule.noncurrent_transitions:
        _check_nonnegative(f"{name}: NoncurrentVersionTransition", "NoncurrentDays", noncurrent.days)


def _check_positive(place: str, field: str, days: int | None) -> None:
    if days is not None and days <= 0:
        action = place.rpartition(": ")[2]
        sentence = f"'{field}' for {action} action must be a positive integer"
        fix = "use 1 or more; to stop a rule set Status to Disabled"
        raise invalid_argument(f"{place}.{field} is {days}", sentence, fix=fix)


def _check_nonnegative(place: str, field: str, days: int | None) -> None:
    if days is not None and days < 0:
        action = place.rpartition(": ")[2]
        sentence = f"'{field}' in {action} action must be nonnegative"
        raise invalid_argument(f"{place}.{field} is {days}", sentence, fix="use 0 or more")


def _check_actions(name: str, rule: Rule) -> None:
    actions = (rule.expiration, rule.noncurrent_expiration, rule.abort_days)
    if all(action is None for action in actions) and not rule.transitions + rule.noncurrent_transitions:
        sentence = "At least one action needs to be specified in a rule"
        raise invalid_request(f"{name}: it has no action", sentence, fix="add one, or remove the rule")
    _check_transitions(f"{name}: Transition", "Days", rule.transitions)
    _check_transitions(f"{name}: NoncurrentVersionTransition", "NoncurrentDays", rule.noncurrent_transitions)
    timed: list[Any] = [*rule.transitions, *([rule.expiration] if rule.expiration else [])]
    if any(part.days is not None for part in timed) and any(part.date is not None for part in timed):
        sentence = "Found mixed 'Date' and 'Days' based Expiration and Transition actions in lifecycle rule"
        raise invalid_request(
            f"{name}: it counts in Days and has a Date", sentence, fix="make two rules of it"
        )


def _check_transitions(
    place: str, field: str, transitions: Sequence[Transition] | Sequence[NoncurrentTransition]
) -> None:
    action = place.rpartition(": ")[2]
    for storage_class, count in Counter(part.storage_class for part in transitions).items():
        if count > 1:
            sentence = f"'StorageClass' must be different for '{action}' actions in same 'Rule'"
            found = f"{place} to {storage_class} is given {count} times"
            raise invalid_request(found, sentence, fix="keep one of them")
    # Days are whole and dates are midnights: what is less than a day apart is the same.
    times = Counter(getattr(part, "date", None) or part.days for part in transitions)
    if any(count > 1 for count in times.values()):
        sentence = f"'{field}' of '{action}' actions in same 'Rule' must be at least one day apart"
        raise invalid_argument(f"{place}: two come at the same time", sentence, fix="move one of them")


def _check_combination(name: str, rule: Rule) -> None:
    expiration = rule.expiration
    # Even a false ExpiredObjectDeleteMarker is one: S3 looks at what is written.
    marker = expiration is not None and expiration.days is None and expiration.date is None
    aborts = rule.abort_days is not None
    for given, action in ((marker, "ExpiredObjectDeleteMarker"), (aborts, "AbortIncompleteMultipartUpload")):
        if given and rule.filter.tags:
            sentence = f"{action} cannot be specified with Tags."
            raise invalid_request(f"{name}: {action} with tags", sentence, fix="make two rules of it")
    if aborts and rule.filter.has_size:
        sentence = "AbortIncompleteMultipartUpload cannot be specified with Object Size."
        raise invalid_request(
            f"{name}: AbortIncompleteMultipartUpload with a size", sentence, fix="make two rules of it"
        )
