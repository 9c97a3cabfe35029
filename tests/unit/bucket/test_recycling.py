"""The bin of a bucket: which rules of the bucket's own reach it, and who is kept out."""

from __future__ import annotations

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.targets.s3.actions.deleter import _refuse
from ebbtide.targets.s3.actions.requests import PlannedItem
from ebbtide.targets.s3.bin import _reaches_bin, _refused
from ebbtide.targets.s3.model import BIN_ROOT, Action

ENDS = {"Status": "Enabled", "Expiration": {"Days": 1}}


@pytest.mark.parametrize(
    ("rule", "reaches"),
    [
        ({"Filter": {}}, True),
        ({}, True),
        ({"Prefix": "ebb"}, True),
        ({"Filter": {"Prefix": BIN_ROOT + "000001"}}, True),
        ({"Filter": {"And": {"Prefix": "", "Tags": []}}}, True),
        ({"Filter": {"And": {"Prefix": "logs/", "Tags": []}}}, False),
        ({"Filter": {"Prefix": "logs/"}}, False),
        ({"Filter": {}, "Status": "Disabled"}, False),
    ],
)
def test_rules_that_reach_the_bin_are_known(rule, reaches):
    """A rule reaches the bin if its prefix leads to it or lies in it, and it is on."""
    assert reaches == _reaches_bin(ENDS | rule)


def test_a_rule_that_ends_nothing_is_no_danger():
    """Who only aborts uploads takes nothing from the bin."""
    assert not _reaches_bin({"Status": "Enabled", "AbortIncompleteMultipartUpload": {}})


@pytest.mark.parametrize("action", [Action.EXPIRE, Action.DELETE_VERSION, Action.REMOVE_DELETE_MARKER])
def test_no_plan_of_the_bucket_reaches_into_the_bin(action):
    """A row that names an object in the bin is denied by whoever deletes and by whoever sets aside."""
    item = PlannedItem(0, BIN_ROOT + "000001-x/items/a", action, "null", "etag")
    refused = [_refuse(item, again=False), _refused(item)]

    assert [Outcome.DENIED] * 2 == [result.outcome for result in refused if result]


def test_an_object_of_unknown_content_is_not_set_aside():
    """Without an etag nobody can tell whether it is what was planned."""
    refused = _refused(PlannedItem(0, "a", Action.EXPIRE, "null", None))

    assert refused
    assert Outcome.DENIED == refused.outcome
