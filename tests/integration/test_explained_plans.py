"""Every row of a plan of a lake is explained as it was decided, by collectors alone and together."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.services.explained import compare_with_explanations, explained_in
from tests.services.lake import REPOSITORY, Lake
from tests.services.runs import plan_deleted, plan_lake_bin

from ebbtide.core.decision import CollectorName, Decision, HoldReason
from ebbtide.engine.plan import PlanOptions
from ebbtide.targets.repository.explanation import ABSENT, KEPT
from ebbtide.targets.repository.rules import SweepRules, stored_rules

pytestmark = pytest.mark.spark


def plan_all(lake: Lake):
    """Plan by lifecycle, retention and the search for garbage, in one run."""
    rules = stored_rules(lake.repository, lifecycle=True, uncommitted=SweepRules(), retention=True)
    return lake.plan(rules=rules)


def test_every_row_of_a_plan_is_explained(lake):
    """Whatever finds an object and whatever holds it, explain gives the plan's answer and a reason."""
    catalog = lake.catalog
    lake.retain({"default_days": 10, "branch_days": {"main": 20}})
    lake.policy(
        {"old-raw": {"prefix": "raw/", "days": 30}, "tmp": {"prefix": "tmp/", "branch_days": {"dev": 2}}}
    )
    catalog.create_branch(REPOSITORY, "dev", "main")
    lake.upload("tmp/a", "tmp/b", branch="dev")
    lake.commit("dev")
    catalog.create_tag(REPOSITORY, "v1", "dev")
    lost = lake.upload("lost/old")["lost/old"]
    catalog.delete(REPOSITORY, "main", "lost/old")
    catalog.delete(REPOSITORY, "main", "raw/1")
    lake.commit()
    opened = catalog.get_physical_address(REPOSITORY, "main", "late")
    lake.write(opened.address, b"not linked yet")
    lake.day(75)
    lake.upload("raw/staged", "tmp/staged")
    young = lake.upload("lost/young")["lost/young"]
    catalog.delete(REPOSITORY, "main", "lost/young")
    lake.clock.now += timedelta(hours=1)
    rows = {row["address"]: row for row in compare_with_explanations(lake, plan_all(lake))}

    assert {*map(str, CollectorName)} == {row["collector"] for row in rows.values()}
    assert {*map(str, Decision)} == {row["decision"] for row in rows.values()}
    assert (Decision.DUE, Decision.HELD) == (rows[lost]["decision"], rows[young]["decision"])


def test_what_no_rule_touches_and_what_is_gone_is_explained(lake):
    """An object without a row in the plan is kept, or absent, for a reason; others' files are not ours."""
    plan = lake.plan()
    rows = compare_with_explanations(lake, plan)
    due = {row["address"] for row in rows if row["decision"] == Decision.DUE}
    lake.apply(plan)
    lake.write("somebody/elses.txt", b"x")
    gone = explained_in(lake, min(due))
    kept = explained_in(lake, "keep/1")
    foreign = explained_in(lake, "somebody/elses.txt")

    assert (ABSENT, True) == (gone.decision, gone.reason.startswith("run 1 deleted it at 2026-"))
    assert (KEPT, str(HoldReason.OTHER_PATH), "keep/1 on branch main") == (
        kept.decision,
        kept.reason,
        kept.holder,
    )
    assert (KEPT, str(HoldReason.FOREIGN)) == (foreign.decision, foreign.reason)


def test_the_bin_is_explained(lake):
    """An item of the recycle bin is held until its days are over, and then due, as the bin's plan says."""
    lake.ledger.set_recycling(f"lake:{REPOSITORY}", lake.catalog.repository(REPOSITORY).uid, 7)
    lake.apply(lake.plan(), override_breaker=True)
    lake.day(45)
    held = compare_with_explanations(
        lake, plan_lake_bin(lake.spark, lake.shop, REPOSITORY, options=PlanOptions())
    )

    assert {Decision.HELD} == {row["decision"] for row in held}


def test_what_a_deleted_repository_left_is_explained(lake):
    """All that lies in the namespace of a deleted repository is explained as the plan for it decides."""
    lake.write("somebody/elses.txt", b"x")
    lake.catalog.delete_repository(REPOSITORY)
    lake.day(42)
    gone = lake.catalog.deleted_repository(REPOSITORY)
    rows = compare_with_explanations(
        lake, plan_deleted(lake.spark, lake.shop, gone, now=lake.clock(), options=PlanOptions())
    )

    assert {Decision.DUE, Decision.HELD} == {row["decision"] for row in rows}
