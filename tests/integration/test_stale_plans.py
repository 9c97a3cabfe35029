"""Plans whose target is no longer what it was when they were made: nothing is deleted by them."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, update
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, plan_with_many_batches

from ebbtide.core.errors import NotFound, StalePlan
from ebbtide.state.runs import RunState
from ebbtide.targets.lake.catalog import schema

pytestmark = pytest.mark.spark

OTHER_DAYS = {"old-raw": {"prefix": "raw/", "days": 31}}


def change_policy(lake: Lake) -> None:
    """Give the rule other days."""
    lake.policy(OTHER_DAYS)


def break_policy(lake: Lake) -> None:
    """Put something into the catalog that is no policy."""
    lake.catalog.set_policy(REPOSITORY, "{ no policy", "json")


def remove_policy(lake: Lake) -> None:
    """Take all policies out of the catalog."""
    with lake.catalog._database.writing() as connection:
        connection.execute(delete(schema.policies))


def recreate(lake: Lake) -> None:
    """Give the name to another repository, with the same policy."""
    namespace = lake.catalog.repository(REPOSITORY).namespace
    lake.catalog.delete_repository(REPOSITORY)
    lake.catalog.create_repository(REPOSITORY, f"{namespace}-new")
    lake.policy(RAW_30_DAYS)


def move_namespace(lake: Lake) -> None:
    """Point the repository at another folder."""
    set_namespace(lake, lake.catalog.repository(REPOSITORY).namespace + "-moved")


def set_namespace(lake: Lake, namespace: str) -> None:
    """Say in the catalog's database where the repository is."""
    with lake.catalog._database.writing() as connection:
        connection.execute(update(schema.repositories).values(namespace=namespace))


CHANGES = [
    (change_policy, "the policy of lake:lake was changed"),
    (break_policy, "the rules of lake:lake were removed or can no longer be read: .* is not readable"),
    (remove_policy, "the rules of lake:lake were removed or can no longer be read: .* has no lifecycle"),
    (move_namespace, "lake:lake moved from file:///"),
    (recreate, "lake:lake is now another repository of the same name"),
]


def test_a_plan_whose_target_changed_is_stale(lake, tmp_path):
    """A plan for another policy, namespace or repository is stale, or finds none; nothing is deleted."""
    manifest = lake.plan()
    namespace = lake.catalog.repository(REPOSITORY).namespace
    before = [path for path in (tmp_path / "objects").rglob("*") if "_lakefs" not in path.parts]
    for change, found in CHANGES:
        change(lake)
        with pytest.raises(StalePlan, match=found) as stale:
            lake.apply(manifest)

        assert all(path.exists() for path in before)
        assert (3, RunState.PLANNED) == (stale.value.exit_code, lake.state(manifest))
        set_namespace(lake, namespace)
        lake.policy(RAW_30_DAYS)
    lake.catalog.delete_repository(REPOSITORY)
    with pytest.raises(NotFound):
        lake.apply(manifest)

    assert RunState.PLANNED == lake.state(manifest)


def test_a_policy_spelled_differently_is_the_same_policy(lake):
    """A policy that was only written anew, with the same meaning, does not make a plan stale."""
    manifest = lake.plan()
    lake.catalog.set_policy(REPOSITORY, "old-raw: {enabled: true, days: 30, prefix: raw/}", "yaml")

    assert 5 == lake.apply(manifest).freed.objects


def test_a_policy_that_changes_between_batches_stops_the_rest(lake):
    """Batches after a change of policy are not begun; the outcomes are those of the batches before."""
    manifest = plan_with_many_batches(lake)
    before = lake.stored()

    def change(step: str) -> None:
        if step.endswith("finished") and lake.stored() < before:
            lake.policy(OTHER_DAYS)

    with pytest.raises(StalePlan, match="was changed"):
        lake.apply(manifest, on_step=change)
    gone = before - lake.stored()

    assert gone == set(lake.outcomes(manifest))
    assert 0 < len(gone) < manifest.summary.due.objects
    assert RunState.FAILED == lake.state(manifest)
