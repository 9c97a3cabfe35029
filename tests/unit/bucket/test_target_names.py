"""Names at a location: readable where every store can hold them, and never two versions under one."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ebbtide.storage.store import key_problem
from ebbtide.targets.s3.transition.locations import VersionIdentity, target_name

NOON = datetime(2026, 1, 2, 12, 30, 5, tzinfo=UTC)
ONE = VersionIdentity("b", "logs/app.log", "null", "0123abcd", NOON)

PIECES = st.sampled_from(
    ["a", "b", "/", "//", "ü", "u\u0308", ".", "null", "_hashed", "_about", "v1", "-", "\n"]
)
KEYS = st.one_of(
    st.lists(PIECES, min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.integers(100, 1024).map(lambda length: "x/" * (length // 2)),
)
VERSIONS = st.one_of(
    st.just("null"),
    st.sampled_from(["v1", "v2", "b/v1", "null-20260102T123005Z-e1", "v.1", "..", "a+b", "x" * 300]),
    st.text("abc./", min_size=1, max_size=4),
)
IDENTITIES = st.builds(
    VersionIdentity,
    bucket=st.just("b"),
    key=KEYS,
    version=VERSIONS,
    etag=st.sampled_from(["e1", "e2", "0123-4", "odd/etag"]),
    modified=st.sampled_from([NOON, NOON.replace(hour=13)]),
)


def told_apart(identity):
    """Say what tells a version from others: its id alone, or for a null version also its time and etag."""
    if identity.version != "null":
        return (identity.key, identity.version)
    return (identity.key, identity.version, identity.etag, identity.modified)


@given(one=IDENTITIES, other=IDENTITIES)
def test_no_two_versions_share_a_name(one, other):
    """Different keys, versions, or objects that one key had in turn never have the same name."""
    assume(told_apart(one) != told_apart(other))

    assert target_name(one) != target_name(other)


@given(identity=IDENTITIES, root=st.sampled_from(["", "archive/", "x" * 900 + "/"]))
def test_every_store_can_hold_every_name(identity, root):
    """A name has no empty, dotted or overlong part and no control character, and fits behind its root."""
    name = target_name(identity, root)
    parts = name.split("/")

    assert "" == key_problem(name)
    assert "" not in parts
    assert 255 >= max(len(part.encode()) for part in parts)
    assert 1024 >= len((root + name).encode())
    assert "\n" not in name


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (ONE, "logs/app.log/null-20260102T123005Z-0123abcd"),
        (replace(ONE, version="3HL4kqtJlcpXrof3"), "logs/app.log/3HL4kqtJlcpXrof3"),
        (replace(ONE, key="a b+ü%?#"), "a b+ü%?#/null-20260102T123005Z-0123abcd"),
    ],
)
def test_ordinary_versions_have_readable_names(identity, expected):
    """The key comes first and the version behind it, so that a listing of the location can be read."""
    assert expected == target_name(identity)


@pytest.mark.parametrize(
    "change",
    [
        {"key": "folder/"},
        {"key": "/rooted"},
        {"key": "a/../b"},
        {"key": "u\u0308"},
        {"key": "tab\there"},
        {"key": "_hashed/x"},
        {"key": "_about/x"},
        {"key": ".ebbtide-tmp/x"},
        {"key": "y" * 201},
        {"version": "null-and-void"},
        {"version": "a/b"},
        {"etag": "odd etag"},
    ],
)
def test_awkward_versions_are_named_by_a_hash(change):
    """What some store could not hold, or could take for something else, has a hash for a name."""
    assert target_name(replace(ONE, **change)).startswith("_hashed/")


def test_a_mark_tells_versions_apart():
    """A copy's mark names the bucket, the key, the version, the etag and the time of its original."""
    changes = [
        {},
        {"bucket": "c"},
        {"key": "k"},
        {"version": "v"},
        {"etag": "e"},
        {"modified": NOON.replace(hour=1)},
    ]
    marks = {replace(ONE, **change).mark for change in changes}

    assert len(changes) == len(marks)
    assert all(mark.isascii() for mark in marks)
