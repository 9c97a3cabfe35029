"""Storage classes: which there are, which way objects may go between them, and which is preferred."""

from __future__ import annotations

from ebbtide.rules.s3.configuration import MinimumSize

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
Which of several transitions that are due is made.

S3 takes the cheapest class, and Intelligent-Tiering before any but Glacier and Deep Archive.
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
_TAKE_SMALL = frozenset({"GLACIER", "DEEP_ARCHIVE"})


_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Their objects cannot be read, and so not be copied to a location."""


def may_go(source: str, target: str) -> bool:
    """
    Tell whether an object goes from one class to another: never to the same, never back up.

    What is no class of S3 is one of our locations, to which whatever can be read may go.
    """
    if target not in CHEAPEST_FIRST:
        return source not in _ARCHIVES
    # From STANDARD and the like (REDUCED_REDUNDANCY, a store's own names) every way is down.
    return source != target and target in _DOWNHILL.get(source, CHEAPEST_FIRST)


def preference(target: str) -> tuple[int, str]:
    """Order transitions that are due: the cheapest class first, and our locations, by name, after them."""
    known = target in CHEAPEST_FIRST
    return (CHEAPEST_FIRST.index(target) if known else len(CHEAPEST_FIRST)), target


def least_size(target: str, minimum: MinimumSize, *, own_size_filter: bool) -> int:
    """Give the size from which objects go to a class; a rule that asks for a size itself sets its own."""
    if own_size_filter or (minimum is MinimumSize.VARIES and target in _TAKE_SMALL):
        return 0
    return SMALL
