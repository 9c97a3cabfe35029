"""Locations inside a bucket: which there are, and which rules are for what lies there."""

from __future__ import annotations

import pytest

from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.nested import NestedLocation, excluded_locations, location_around, nested_locations
from ebbtide.targets.s3.rules.configuration import Configuration, Expiration, Filter, Rule

OURS = {"endpoint": "http://one", "allow_http": "yes"}
BUCKET = StoreSpec("s3://b", OURS)
OLD, OLDEST = NestedLocation("near", "old/"), NestedLocation("nearest", "old/est/")


def rules(*prefixes: str, enabled: bool = True) -> Configuration:
    """Make a configuration with a rule for each prefix, which is named after it."""
    days = Expiration(days=1)
    return Configuration(tuple(Rule(prefix, enabled, Filter(prefix), days) for prefix in prefixes))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (StoreSpec("s3://b/old", OURS), "old/"),
        (StoreSpec("s3://b/old/", {"endpoint": "http://one/"}), "old/"),
        (StoreSpec("s3a://b/very/old", OURS), "very/old/"),
        (StoreSpec("s3://b", OURS), None),
        (StoreSpec("s3://bb/old", OURS), None),
        (StoreSpec("s3://b/old", {"endpoint": "http://two"}), None),
        (StoreSpec("file:///b/old"), None),
    ],
)
def test_which_locations_lie_in_a_bucket(location, expected):
    """A location is enclosed if it is a prefix of the same bucket of the same server, not all of it."""
    found = nested_locations(BUCKET, {"near": location})

    assert (() if expected is None else (NestedLocation("near", expected),)) == found


def test_the_deepest_location_comes_first():
    """Of two locations, one inside the other, a key belongs to the inner one."""
    found = nested_locations(
        BUCKET, {"near": StoreSpec("s3://b/old", OURS), "nearest": StoreSpec("s3://b/old/est", OURS)}
    )

    assert (OLDEST, OLD) == found
    assert [OLDEST, OLD, OLD, None, None] == [
        location_around(found, key) for key in ("old/est/x", "old/est", "old/", "old", "x/old/")
    ]


@pytest.mark.parametrize(
    ("prefix", "is_meant"),
    [("", False), ("o", False), ("old", False), ("old/", True), ("old/x", True), ("older/", False)],
)
def test_only_rules_that_name_a_location_are_for_it(prefix, is_meant):
    """A rule is for what lies in a location if its prefix leads there, and not if it is about more."""
    configuration = rules("other/", prefix)

    assert ([prefix] if is_meant else []) == [rule.id for rule in OLD.rules_of(configuration).rules]
    assert (() if is_meant else (OLD,)) == excluded_locations([OLD], configuration)


def test_a_disabled_rule_brings_nobody_to_a_location():
    """What only a disabled rule names need not be looked at."""
    assert (OLD,) == excluded_locations([OLD], rules("old/", enabled=False))
