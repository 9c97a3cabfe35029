"""The order of a purge is kept in the plan word for word, and stops what is not to be trusted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ebbtide.core.errors import MetadataError, PolicyError, SafetyStop
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.model import RunningImages, RunningReference
from ebbtide.targets.oci.policies.document import parse_policies
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.purge.policy import DeleteRequest, PurgePolicy, RequestedImage, read_purge_policy

NOW = parse_instant("2026-01-06")
DIGEST = f"sha256:{'a' * 64}"
POLICIES = parse_policies('{"assign": [{"repository": "*", "tag": "v.*", "policy": "Released"}]}')


@pytest.mark.parametrize(
    "order",
    [
        PurgePolicy(Policies()),
        PurgePolicy(POLICIES, RunningImages((), NOW)),
        PurgePolicy(
            POLICIES,
            RunningImages(
                (
                    RunningReference("a", "v1"),
                    RunningReference("b", None, DIGEST),
                    RunningReference(None, None, DIGEST),
                ),
                NOW,
            ),
            timedelta(hours=3),
            DeleteRequest(
                (RequestedImage("a", "v1"), RequestedImage("b", "", DIGEST)),
                3600,
                "team/*",
                "v.*",
                untagged=True,
            ),
        ),
    ],
)
def test_an_order_is_read_back_as_it_was(order):
    """What a plan keeps of its order says the same again."""
    found = read_purge_policy(order.to_json())

    assert order.hash == found.hash
    assert order.running == found.running or set(order.running.references) == set(found.running.references)
    assert (order.oldest_scan, order.request) == (found.oldest_scan, found.request)


def test_other_policies_are_another_order():
    """A change of the policies is seen by the hash."""
    assert PurgePolicy(Policies()).hash != PurgePolicy(POLICIES).hash


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"policies": 1, "running": null, "wanted": null}'])
def test_an_order_that_cannot_be_read_stops(text):
    """A damaged order is an error and never an empty one."""
    with pytest.raises(MetadataError):
        read_purge_policy(text)


@pytest.mark.parametrize(
    ("running", "hours"), [(RunningImages((), NOW, "the API was down"), 0), (RunningImages((), NOW), 25)]
)
def test_a_running_scan_that_failed_or_is_too_old_stops_the_purge(running, hours):
    """Not to know what runs is not to know that nothing does."""
    with pytest.raises(SafetyStop, match="running scan"):
        PurgePolicy(POLICIES, running).check_running(NOW + timedelta(hours=hours))


def test_a_running_scan_without_a_time_is_of_the_time_of_the_plan():
    """A list that says no time was made for this plan, and is too old a day later as any other."""
    order = PurgePolicy(POLICIES, RunningImages()).dated(NOW)

    order.check_running(NOW + timedelta(hours=24))
    with pytest.raises(SafetyStop):
        order.check_running(NOW + timedelta(hours=24, microseconds=1))


def test_a_pattern_that_is_none_is_refused():
    """A bad pattern is found before anything is asked of the registry."""
    with pytest.raises(PolicyError):
        DeleteRequest((), 3600, "*", "(").check()
