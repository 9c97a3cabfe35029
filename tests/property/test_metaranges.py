"""Metaranges: whatever the history, content alone decides the ranges."""

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import NotFound, Refused
from ebbtide.storage.store import ObjectInfo
from ebbtide.targets.lake.catalog.merge import differences, three_way
from ebbtide.targets.lake.catalog.range_writer import CHANGES, apply_changes
from ebbtide.targets.lake.catalog.ranges import read_range, write_metarange
from ebbtide.targets.repository.model import COMMITTED

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)

KEYS = st.text(alphabet="ab/é\U00010000", min_size=1, max_size=3)
VERSION = st.dictionaries(KEYS, st.integers(0, 3), max_size=40)
CHANGE = st.dictionaries(KEYS, st.none() | st.integers(0, 3), max_size=30)
RANGE_KEYS = st.integers(1, 8)
PAGE = st.integers(1, 10)


class MemoryStore:
    """A store in a dictionary, which counts what is read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads = 0

    def stat(self, key):
        """Describe one object."""
        return ObjectInfo(key, len(self._find(key)), MOMENT)

    def read(self, key):
        """Read one object, and count."""
        self.reads += 1
        return self._find(key)

    def write(self, key, data):
        """Keep one object."""
        self.objects[key] = data
        return self.stat(key)

    def _find(self, key):
        """Find an object."""
        if key not in self.objects:
            raise NotFound(key)
        return self.objects[key]


def _changes(change, page):
    """Write a dictionary as pages of changes; None deletes."""
    rows = sorted(change.items())
    for start in range(0, len(rows), page):
        yield pa.Table.from_pylist(
            [
                {
                    "key": key,
                    "tombstone": value is None,
                    "address": None if value is None else f"repos/{value}",
                    "created": None if value is None else MOMENT,
                    "size": value,
                    "checksum": None if value is None else "",
                }
                for key, value in rows[start : start + page]
            ],
            schema=CHANGES,
        )


def _write(store, version, range_keys, page=1000):
    """Write a version from nothing."""
    return apply_changes(store, [], _changes(version, page), range_keys=range_keys)


def _content(store, ranges):
    """Read ranges into a dictionary."""
    tables = [read_range(store, COMMITTED, info) for info in ranges]
    return {row["key"]: row["size"] for table in tables for row in table.to_pylist()}


def _applied(version, change):
    """Apply changes to a dictionary."""
    return {k: v for k, v in (version | change).items() if v is not None}


@given(VERSION, st.lists(CHANGE, max_size=4), RANGE_KEYS, PAGE)
def test_changes_give_what_a_fresh_write_gives(version, changes, range_keys, page):
    """After any changes the content is that of a dictionary, and the metarange that of a fresh write."""
    store = MemoryStore()
    ranges = _write(store, version, range_keys, page)
    for change in changes:
        ranges = apply_changes(store, ranges, _changes(change, page), range_keys=range_keys)
        version = _applied(version, change)

    fresh = _write(store, version, range_keys)

    assert version == _content(store, ranges)
    assert fresh == ranges
    assert write_metarange(store, COMMITTED, fresh) == write_metarange(store, COMMITTED, ranges)


@given(VERSION, VERSION, RANGE_KEYS)
def test_differences_are_those_of_dictionaries(left, right, range_keys):
    """A difference has each differing key once, in order, with what was there before."""
    store = MemoryStore()
    pages = differences(store, _write(store, left, range_keys), _write(store, right, range_keys))

    found = [(r["key"], r["was_size"], r["size"]) for page in pages for r in page.to_pylist()]

    assert found == [
        (key, left.get(key), right.get(key))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


@given(VERSION, CHANGE, CHANGE, RANGE_KEYS)
def test_a_three_way_merge_is_that_of_dictionaries(base, theirs, ours, range_keys):
    """Merging takes what one side changed, and refuses exactly when both changed a key differently."""
    store = MemoryStore()
    source, target = _applied(base, theirs), _applied(base, ours)
    keys = base.keys() | source.keys() | target.keys()
    conflicts = {k for k in keys if base.get(k) != source.get(k) != target.get(k) != base.get(k)}
    expected = {k: source.get(k) if target.get(k) == base.get(k) else target.get(k) for k in keys}
    versions = [_write(store, version, range_keys) for version in (base, source, target)]

    def merge():
        changes = three_way(store, *versions)
        return apply_changes(store, versions[2], changes, range_keys=range_keys)

    if conflicts:
        with pytest.raises(Refused, match=re.escape(repr(min(conflicts)))):
            merge()
        return
    merged = merge()

    assert _applied({}, expected) == _content(store, merged)
    assert _write(store, _applied({}, expected), range_keys) == merged


@given(st.integers(0, 999), st.sampled_from(["change", "remove", "add"]))
def test_one_change_reads_and_writes_at_most_two_ranges(place, kind):
    """Of a thousand keys in some fifty ranges one change touches its own range, or two at a boundary."""
    store = MemoryStore()
    before = _write(store, {f"k{i:04d}": 0 for i in range(1000)}, 20)
    store.reads = 0
    key = f"k{place:04d}" + ("x" if kind == "add" else "")

    after = apply_changes(store, before, _changes({key: None if kind == "remove" else 1}, 1), range_keys=20)

    assert store.reads <= 2
    assert len(set(after) - set(before)) <= 2
