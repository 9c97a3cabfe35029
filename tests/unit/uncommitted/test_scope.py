"""Scopes: which references a listing must have met."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ebbtide.targets.lake.repository import CatalogLayout
from ebbtide.targets.repository.live_objects import Scope
from ebbtide.targets.repository.sweeps import BranchState, Survey, Sweep

NEWER, LAST, OLDER = (f"{digits * 18}_0123456789ab" for digits in "012")
HOME = "repos/r/branches/"


def within(scope, *addresses):
    """Say of each address whether it lies in a scope."""
    return [bool(found) for found in scope.within(pa.array(addresses, pa.string()))]


def state(last_partition):
    """Make a state that has read down to a partition."""
    return BranchState("a-1", None, 0, last_partition, "c", 1, 0)


def test_a_whole_namespace_has_all_but_metadata_and_what_lies_outside():
    """All relative addresses must be met, wherever they are."""
    addresses = [f"{HOME}a-1/{OLDER}/x", "elsewhere/x", "_lakefs/x", "s3://other/x", "file:///x"]

    assert [True, True, False, False, False] == within(Scope(), *addresses)


@pytest.mark.parametrize(
    ("partition", "expected"), [(NEWER, True), (LAST, True), (OLDER, False), ("_gc", False)]
)
def test_an_optimized_sweep_meets_what_is_not_older(partition, expected):
    """Down to the last partition, itself included."""
    scope = Scope.of(Survey((Sweep("a-1", f"{HOME}a-1/", state(LAST)),)), CatalogLayout("r"))

    assert [expected] == within(scope, f"{HOME}a-1/{partition}/x")


def test_a_clean_sweep_of_one_branch_meets_all_of_it_and_nothing_else():
    """Neither other branches, nor other repositories, nor what lies beside the branches."""
    scope = Scope.of(Survey((Sweep("a-1", f"{HOME}a-1/"),)), CatalogLayout("r"))
    inside = [f"{HOME}a-1/{NEWER}/x", f"{HOME}a-1/{OLDER}/x"]
    outside = [f"{HOME}b-1/{NEWER}/x", f"repos/q/branches/a-1/{NEWER}/x", f"{HOME}a-1/x", "x", "s3://o/x"]

    assert [True] * 2 + [False] * 5 == within(scope, *inside, *outside)


def test_a_state_without_a_partition_demands_all():
    """The branch had no partitions when it was read; all that it has now is new, and was listed."""
    scope = Scope.of(Survey((Sweep("a-1", f"{HOME}a-1/", state(None)),)), CatalogLayout("r"))

    assert [True, True] == within(scope, f"{HOME}a-1/{NEWER}/x", f"{HOME}a-1/{OLDER}/x")


def test_no_addresses_are_no_trouble():
    """A range may be empty."""
    assert [] == within(Scope(everything=False, partition_pattern=CatalogLayout("r").partition_pattern))
