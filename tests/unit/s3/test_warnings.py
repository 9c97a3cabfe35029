"""Warnings: what AWS refuses and others take, and what does not do what it seems to."""

from datetime import UTC, datetime

import pytest
from tests.unit.s3.refused import move, rule

from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.rules.warnings import configuration_warnings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COLD = {"StorageClass": "STANDARD_IA"}


def old(prefix, **changes):
    """Make a rule of S3's first API."""
    return rule(Filter=None, Prefix=prefix, **changes)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([rule(Expiration=None, Transitions=[COLD | {"Days": 29}])], "AWS refuses fewer than 30"),
        (
            [rule(NoncurrentVersionTransitions=[{"NoncurrentDays": 0, "StorageClass": "ONEZONE_IA"}])],
            "ONEZONE_IA after 0 days",
        ),
        ([rule(Expiration={"Days": 5}, Transitions=[move(Days=5)])], "not before its Expiration"),
        (
            [rule(Expiration={"Date": "2030-01-01"}, Transitions=[move(Date="2030-01-02")])],
            "not before its Expiration",
        ),
        (
            [
                rule(
                    NoncurrentVersionExpiration={"NoncurrentDays": 5},
                    NoncurrentVersionTransitions=[move(NoncurrentDays=9)],
                )
            ],
            "not before its NoncurrentVersionExpiration",
        ),
        (
            [rule(Filter={"And": {"ObjectSizeGreaterThan": 5, "ObjectSizeLessThan": 6}})],
            "can never act: no size is above 5 and below 6",
        ),
        (
            [rule(Filter={"ObjectSizeLessThan": 99}, Expiration=None, Transitions=[move(Days=1)])],
            "moves objects below 128 KB too",
        ),
        (
            [rule(Filter={"ObjectSizeLessThan": 9}, Expiration={"ExpiredObjectDeleteMarker": True})],
            "ExpiredObjectDeleteMarker with a size",
        ),
        ([rule(Expiration={"ExpiredObjectDeleteMarker": False})], "which does nothing"),
        ([rule(Expiration={"Date": "2026-01-01"})], "past date 2026-01-01T00:00:00Z"),
        ([rule(Expiration=None, Transitions=[move(Date="2020-01-01")])], "past date 2020-01-01"),
        ([rule(Filter={"Prefix": "/logs"})], "the slash counts"),
        ([rule(Status="Disabled")], "no rule is enabled"),
        ([rule(), old("a")], "AWS refuses the two together"),
        (
            [old("", NoncurrentVersionExpiration={"NoncurrentDays": 1, "NewerNoncurrentVersions": 1})],
            "counts newer versions and has no Filter",
        ),
        ([old("a/b"), old("b"), old("a/", ID="x")], "'x' and 'rule-1-"),
    ],
)
def test_warnings(rules, words):
    """Each surprise is told once, with the rule's ID where it is about one."""
    found = configuration_warnings(read_configuration(rules), now=NOW)

    assert 1 == len([warning for warning in found if words in warning])


@pytest.mark.parametrize(
    "rules",
    [
        [rule()],
        [rule(), rule(Status="Disabled", Filter={"Prefix": "a/"})],
        [rule(Expiration={"Days": 31}, Transitions=[COLD | {"Days": 30}])],
        [rule(Expiration={"Date": "2026-01-02"})],
        [rule(Filter={"And": {"ObjectSizeGreaterThan": 5, "ObjectSizeLessThan": 7}})],
        [rule(Filter={"ObjectSizeGreaterThan": 131071}, Expiration=None, Transitions=[move(Days=1)])],
        [rule(Expiration={"ExpiredObjectDeleteMarker": True}, Transitions=[move(Days=5)])],
        [old("a"), old("b"), old("a/", Expiration=None, Transitions=[move(Days=1)])],
    ],
)
def test_no_warnings(rules):
    """What does as it says and AWS takes is not warned of."""
    assert [] == configuration_warnings(read_configuration(rules), now=NOW)


def test_without_a_clock_no_date_is_past():
    """Whoever does not say what time it is is told nothing of past dates."""
    assert [] == configuration_warnings(read_configuration([rule(Expiration={"Date": "1999-01-01"})]))
