"""The versions of a key, over the pages of a listing: together, whole, and newest first."""

from __future__ import annotations

from itertools import chain

import pytest

from ebbtide.core.errors import StoreError
from ebbtide.storage.s3_versions import VersionRow, grouped, newest_first, numbered


def row(key: str, version: str = "v", *, latest: bool = True, micros: int = 0) -> VersionRow:
    """Make a version."""
    return VersionRow(key, version, latest, False, 1, micros, None, "STANDARD")


def listed(*pages: str, **more: str) -> list[str]:
    """Group pages of keys of one letter each, and give them as they come out."""
    found = grouped(([row(key) for key in page] for page in pages), **more)
    return ["".join(one.key for one in rows) for rows in found]


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ((), []),
        (("", ""), []),
        (("abc",), ["ab", "c"]),
        (("ab", "bb", "bc"), ["a", "bbbb", "c"]),
        (("ab", "", "c"), ["a", "b", "c"]),
        (("aa", "bb"), ["aa", "bb"]),
    ],
)
def test_a_key_that_ends_a_page_waits_for_the_next(pages, expected):
    """Whoever stops between two lists has every version of the keys so far."""
    assert expected == listed(*pages)


@pytest.mark.parametrize(
    ("up_to", "expected"), [("b", ["a", "bbb"]), ("a", ["a"]), ("z", ["a", "bbb", "c"]), ("bb", ["a", "bbb"])]
)
def test_a_range_ends_with_its_last_key(up_to, expected):
    """All versions of the last key belong to the range, and nothing behind it."""
    assert "".join(expected) == "".join(listed("ab", "bbc", up_to=up_to))


def test_a_range_leaves_out_the_key_that_it_begins_behind():
    """Some servers begin with the marker, which belongs to the range before."""
    assert ["b", "c"] == listed("aab", "c", after="a")


@pytest.mark.parametrize("pages", [("ba",), ("b", "a"), ("aca",)])
def test_keys_that_go_back_raise(pages):
    """Without key order a range would miss some."""
    with pytest.raises(StoreError, match="ordered=no"):
        listed(*pages)


def test_what_the_server_orders_stays():
    """The time of a large object is when its upload began, so times do not say which version is newer."""
    rows = [row("a", "2", micros=1), row("a", "1", latest=False, micros=5), row("b", "3")]

    assert rows == list(chain.from_iterable(grouped([rows])))


def test_a_latest_version_that_does_not_come_first_is_put_there():
    """Then the others are ordered by time, and those of the same second as they came."""
    rows = [
        row("a", "3", latest=False, micros=2),
        row("a", "1", latest=False, micros=1),
        row("a", "2", latest=False, micros=1),
        row("a", "null", micros=2),
    ]

    assert ["null", "3", "1", "2"] == [one.version_id for one in chain.from_iterable(grouped([rows]))]
    assert ["null", "3", "1", "2"] == [one.version_id for one in newest_first(rows)]


def test_positions_begin_anew_with_each_key():
    """The newest version of each key is number 0."""
    assert [0, 1, 2, 0, 0, 1] == numbered([row(key) for key in "aaabcc"])
