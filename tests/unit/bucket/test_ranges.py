"""Ranges of keys: they share nothing and leave nothing out, however they are cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.targets.s3.inventory.ranges import Range, around, between, cut, missing, rest_of, split

KEYS = st.text(st.sampled_from("ab/.-~é\U0001f600\x01 z0"), min_size=1, max_size=6)


@dataclass(frozen=True)
class Keys:
    """The keys of a bucket, and how a server answers questions about them."""

    all: tuple[str, ...]

    def next_key(self, prefix: str, after: str) -> str | None:
        """Give the first key behind a place."""
        return min((key for key in self.all if key.startswith(prefix) and key > after), default=None)

    def folders(self, prefix: str, after: str) -> list[str]:
        """Give the folders one step below a prefix with keys behind a place."""
        start = len(prefix)
        found = [key for key in self.all if key.startswith(prefix) and key > after and "/" in key[start:]]
        return sorted({key[: key.index("/", start) + 1] for key in found})

    def of(self, part: Range) -> list[str]:
        """Give what a listing of a range gives."""
        return [
            key
            for key in sorted(self.all)
            if key.startswith(part.prefix) and key > part.after and (not part.up_to or key <= part.up_to)
        ]

    def split(self, whole: Range, wanted: int) -> list[Range]:
        """Split a range of these keys."""
        return split(whole, self.folders, self.next_key, wanted)


@given(st.sets(KEYS, max_size=30), st.sampled_from(["", "a", "a/", "~"]), st.integers(1, 9), KEYS, KEYS)
def test_parts_make_the_whole(keys, prefix, wanted, after, up_to):
    """Every key of a range is in exactly one of its parts, in order."""
    bucket = Keys(tuple(keys))
    for whole in (Range(prefix), Range(prefix, after=after), Range(prefix, after=after, up_to=after + up_to)):
        parts = bucket.split(whole, wanted)

        assert bucket.of(whole) == [key for part in parts for key in bucket.of(part)]
        assert len(parts) <= wanted


@given(KEYS, KEYS)
def test_what_is_between_lies_between(one, other):
    """A text between two others is larger than one and smaller than the other, and can be sent as UTF-8."""
    low, high = sorted((one, other))
    middle = between(low, high)

    assert middle is None or low < middle < high
    assert middle is None or middle.encode()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("a", "c", "b"),
        ("logs/a", "logs/y", "logs/m"),
        ("a", "b", "aO"),
        ("a", "a", None),
        ("a", "a ", None),
        ("a", "a\x01", None),
        ("0", "\U0010ffff", "W"),
        ("\ud7ff", "\ue000", "\ud7ffO"),
        ("\u8000", "\uffff", "\ubfff"),
    ],
)
def test_between_is_about_the_middle(low, high, expected):
    """Keys are mostly ASCII, so the middle is looked for there."""
    assert expected == between(low, high)


def test_a_flat_folder_is_cut_evenly():
    """Keys without folders that share their beginning are cut where they differ."""
    bucket = Keys(tuple(f"logs/part-{number:05}" for number in range(1000)))
    sizes = [len(bucket.of(part)) for part in bucket.split(Range("logs/"), 8)]

    assert (1000, True) == (sum(sizes), max(sizes) <= 400)


def test_folders_are_cut_at_the_top():
    """Where there are folders enough, a part is some of them, whatever lies inside."""
    bucket = Keys(tuple(f"{folder}/{number}" for folder in "abcdefgh" for number in range(5)))
    parts = bucket.split(Range(""), 4)

    assert ["", "c/", "e/", "g/"] == [part.after for part in parts]
    assert [10, 10, 10, 10] == [len(bucket.of(part)) for part in parts]


def test_the_rest_of_a_long_range_is_cut_at_the_folders_that_follow():
    """A task that stopped in a deep folder hands back a rest that others can share."""
    days = [f"y=1/m={month}/d={day}/x" for month in (1, 2) for day in range(1, 5)]
    bucket = Keys(tuple(days))
    parts = bucket.split(Range("", after="y=1/m=1/d=1/x"), 3)

    assert ["y=1/m=1/d=1/x", "y=1/m=1/d=4/", "y=1/m=2/"] == [part.after for part in parts]


@pytest.mark.parametrize("keys", [(), ("b/1", "b/2")])
def test_an_empty_range_is_not_split(keys):
    """Where there is nothing to share, one task looks and finds nothing."""
    assert [Range("a/")] == Keys(keys).split(Range("a/"), 8)


def test_uploads_are_not_split():
    """Uploads are few, and some servers list them in no order."""
    assert [Range("", uploads=True)] == Keys(("a", "b")).split(Range("", uploads=True), 8)


def test_a_cut_belongs_to_the_part_before_it():
    """A key that is a cut is in one part only."""
    assert [Range("", "", "b"), Range("", "b", "")] == cut(Range(""), ["b"])
    assert [Range("", "b", "d")] == cut(Range("", "b", "d"), ["a", "b", "d", "e"])


@given(st.lists(st.tuples(KEYS, KEYS), max_size=5), st.sets(KEYS, max_size=20))
def test_what_is_missing_and_what_is_done_make_the_whole(spans, keys):
    """Whatever was finished, in whatever parts, the rest is exactly what is missing."""
    bucket = Keys(tuple(keys))
    done = [Range("", *sorted(span)) for span in spans if span[0] != span[1]]
    known = {key for part in done for key in bucket.of(part)}
    planned = [Range("", up_to="b"), Range("", after="b")]
    left = [key for part in missing(planned, done) for key in bucket.of(part)]

    assert sorted(set(keys) - known) == sorted(left)


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ([], [Range("p", "a", "m")]),
        ([Range("p", "a", "m")], []),
        ([Range("p", "a", "c"), Range("p", "f", "m")], [Range("p", "c", "f")]),
        ([Range("p", "b", "c")], [Range("p", "a", "b"), Range("p", "c", "m")]),
        ([Range("p", "", "")], []),
        ([Range("q", "a", "m")], [Range("p", "a", "m")]),
        ([Range("p", uploads=True)], [Range("p", "a", "m")]),
    ],
    ids=["nothing", "all", "a gap", "both ends", "more than asked", "another prefix", "uploads"],
)
def test_what_is_missing(done, expected):
    """Only files about the same prefix and the same kind count."""
    assert expected == missing([Range("p", "a", "m")], done)


def test_names_differ_as_ranges_do():
    """A range that is listed again takes the place of its file, and no other range does."""
    part = Range("p", "a", "m")
    others = [Range("p", "b", "m"), Range("q", "a", "m"), Range("p", "a", "n"), Range("p", "a", "m", True)]

    assert part.name == Range("p", "a", "m").name
    assert 5 == len({part.name, *(other.name for other in others)})


@pytest.mark.parametrize(
    ("last", "expected"), [("b", Range("p", "b", "m")), ("m", None), ("n", None), ("", Range("p", "", "m"))]
)
def test_a_rest_ends_where_its_range_does(last, expected):
    """A range that stopped at its very end has no rest, which would be a second range of no keys."""
    assert expected == rest_of(Range("p", "", "m"), last)
    assert Range("p", "z") == rest_of(Range("p"), "z")


@given(st.sets(KEYS, max_size=40), st.sampled_from(["", "a", "a/"]), st.sets(KEYS, max_size=4))
def test_going_around_prefixes_lists_all_else_once(keys, prefix, left_out):
    """What lies below a prefix that is left out is not listed, and every other key is, just once."""
    bucket = Keys(tuple(keys))
    found = [key for part in around(Range(prefix), left_out) for key in bucket.of(part)]
    inside = tuple(one for one in left_out if one.startswith(prefix))
    # A key that is such a prefix itself may be listed or not.
    either = keys & left_out

    assert len(found) == len(set(found))
    assert {key for key in bucket.of(Range(prefix)) if not key.startswith(inside)} - either == {
        *found
    } - either


@given(st.sets(KEYS, max_size=40), st.integers(1, 4), st.integers(1, 5))
def test_handing_back_the_rest_lists_every_key_once(keys, most, wanted):
    """Tasks that stop after so many keys, and others that take over what is left, make one whole listing."""
    bucket = Keys(tuple(keys))
    files: dict[str, list[str]] = {}
    covered: list[Range] = []
    left = bucket.split(Range(""), wanted)
    while left:
        rests = []
        for part in left:
            found = bucket.of(part)[:most]
            rest = rest_of(part, found[-1]) if len(found) == most else None
            files[part.name] = found
            covered.append(replace(part, up_to=rest.after) if rest else part)
            rests += [rest] if rest else []
        left = [part for rest in rests for part in bucket.split(rest, wanted)]

    assert sorted(keys) == sorted(key for found in files.values() for key in found)
    assert [] == missing([Range("")], covered)
