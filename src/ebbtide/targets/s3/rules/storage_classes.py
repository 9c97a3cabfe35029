"""Storage classes: the transitions that S3 allows, its order of preference, and minimum sizes."""

from __future__ import annotations

from ebbtide.targets.s3.rules.configuration import MinimumSize

STANDARD = "STANDARD"

CHEAPEST_FIRST = (
    "DEEP_ARCHIVE",
    "GLACIER",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "ONEZONE_IA",
    "STANDARD_IA",
)
"""
The order of preference if several transitions are due.

S3 chooses the cheapest class, and Intelligent-Tiering over all but Glacier and Deep Archive.
"""

_DOWNHILL = {
    "STANDARD_IA": {"INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"},
    "INTELLIGENT_TIERING": {"ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"},
    "ONEZONE_IA": {"GLACIER", "DEEP_ARCHIVE"},
    "GLACIER_IR": {"GLACIER", "DEEP_ARCHIVE"},
    "GLACIER": {"DEEP_ARCHIVE"},
    "DEEP_ARCHIVE": set[str](),
}

SMALL = 128 * 1024
"""The default minimum size of a transition, in bytes."""

_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Objects here cannot be read until they are restored. They may be small with `varies_by_storage_class`."""


def may_go(source: str, target: str) -> bool:
    """
    Return True if a transition is allowed: never to the same class, never to a more expensive one.

    A target that is not a storage class is a location of ours, which takes every object that can be read.
    """
    if target not in CHEAPEST_FIRST:
        return source not in _ARCHIVES
    # From STANDARD and unknown classes (REDUCED_REDUNDANCY, a store's own names) every transition is allowed.
    return source != target and target in _DOWNHILL.get(source, CHEAPEST_FIRST)


def preference(target: str) -> tuple[int, str]:
    """Return the sort key of transitions that are due: the cheapest class first, locations last, by name."""
    known = target in CHEAPEST_FIRST
    return (CHEAPEST_FIRST.index(target) if known else len(CHEAPEST_FIRST)), target


def least_size(target: str, minimum: MinimumSize, *, own_size_filter: bool) -> int:
    """Return the smallest size that may move to a class; a size filter in the rule replaces the default."""
    if own_size_filter or (minimum is MinimumSize.VARIES and target in _ARCHIVES):
        return 0
    return SMALL
