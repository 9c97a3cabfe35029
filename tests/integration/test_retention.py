"""Retention on a real lake: old heads let go, and whoever comes to need them again keeps them."""

from __future__ import annotations

import pytest
from tests.services.lake import REPOSITORY, make_lake

from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import ObjectGone, PolicyError, StalePlan
from ebbtide.targets.repository.rules import SweepRules, stored_rules

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark, tmp_path):
    """
    Give a lake whose main had three heads: on days 0, 10 and 20; each wrote `a` anew, the first also `b`.

    Retention is five days, so on day 30 the first two are inactive; a tag keeps the first.
    """
    made = make_lake(spark, tmp_path)
    made.retain({"default_days": 5})
    made.upload("a", "b")
    made.commit()
    for day in (10, 20):
        made.day(day)
        made.upload("a")
        made.commit()
    made.day(30)
    return made


def address(lake, ref, key):
    """Give the address of a key under a ref."""
    return lake.catalog.stat(REPOSITORY, ref, key).address


def test_what_only_old_heads_need_goes(lake):
    """Of three versions the head's stays, with what it shares with the others; tags keep theirs."""
    first, second, head = (address(lake, ref, "a") for ref in ("main~2", "main~1", "main"))
    lake.catalog.create_tag(REPOSITORY, "v1", "main~2")
    tagged = lake.plan_retention()
    lake.apply(tagged, override_breaker=True)

    assert {second} == lake.due(tagged)
    assert {first, head, address(lake, "main", "b")} == lake.stored()
    with pytest.raises(ObjectGone, match="retention"):
        lake.catalog.read(REPOSITORY, "main~1", "a")
    assert 0 == lake.plan_retention().summary.due.objects


def test_what_came_to_be_needed_again_is_left_alone(lake):
    """A branch or a staged copy made after the plan takes its objects out of it."""
    first, second = address(lake, "main~2", "a"), address(lake, "main~1", "a")
    manifest = lake.plan_retention()
    lake.catalog.create_branch(REPOSITORY, "old", "main~1")
    lake.apply(manifest, override_breaker=True)

    assert {first: "deleted", second: "changed"} == {
        place: outcome for place, (outcome, _) in lake.outcomes(manifest).items()
    }
    assert "at the head of branch old" in lake.outcomes(manifest)[second][1]


@pytest.mark.long
def test_other_rules_make_a_plan_stale(lake):
    """A plan made by rules that were changed since is not applied."""
    manifest = lake.plan_retention()
    lake.retain({"default_days": 50})
    with pytest.raises(StalePlan):
        lake.apply(manifest, override_breaker=True)


def test_without_rules_nothing_is_planned(spark, tmp_path):
    """A repository without retention rules keeps every commit, and the error says what to do."""
    lake = make_lake(spark, tmp_path)
    with pytest.raises(PolicyError, match="retention set"):
        lake.plan_retention()


def test_all_collectors_in_one_plan(lake):
    """Each item of a plan of all collectors says who found it; one apply deletes them all."""
    lake.policy({"tmp": {"prefix": "tmp/", "days": 3}})
    lapsed = lake.upload("tmp/x")
    lake.commit()
    stray = lake.upload("c")
    lake.catalog.delete(REPOSITORY, "main", "c")
    lake.day(40)
    kept = {address(lake, "main", key) for key in ("a", "b")}
    old = {address(lake, ref, "a") for ref in ("main~3", "main~2")}
    rules = stored_rules(lake.repository, lifecycle=True, uncommitted=SweepRules(), retention=True)
    manifest = lake.plan(rules=rules)
    lake.apply(manifest, override_breaker=True)
    found = {tally.label: tally.objects for tally in manifest.summary.by_collector}

    assert {*old, *lapsed.values(), *stray.values()} == lake.due(manifest)
    assert {CollectorName.LIFECYCLE: 1, CollectorName.UNCOMMITTED: 1, CollectorName.RETENTION: 2} == found
    assert kept == {key for key in lake.stored() if "/_gc/" not in key}
