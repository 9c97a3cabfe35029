"""Explaining images: what the registry cannot delete is held, as in a plan."""

from __future__ import annotations

import pytest
from tests.property.registry_worlds import digest

from ebbtide.core.instant import NEVER, days_after, parse_instant
from ebbtide.targets.oci.client.registry import Ability, Capabilities
from ebbtide.targets.oci.model import Image, Tag
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.purge.explanation import explain_image
from ebbtide.targets.oci.purge.policy import PurgePolicy
from ebbtide.targets.oci.purge.verdicts import BLOCKED

NOW = parse_instant("2026-03-01")
OLD = days_after(NOW, -9)
D = digest("a", 1)
POLICIES = read_policies({"policies": {"Scrap": {"days": 1, "recycle": False}, "Long": {"days": 500}}})
BOTH = Image(
    "app", D, (Tag("old", OLD, Assigned("Scrap")), Tag("kept", OLD, Assigned("Long"))), pushed_at=OLD
)
ALONE = Image("app", D, (Tag("old", OLD, Assigned("Scrap")),), pushed_at=OLD)


def explained(image: Image, manifests: Ability, tags: Ability) -> dict[str | None, tuple[str, str]]:
    """Explain an image of a registry with these abilities: decision and reason by tag."""
    able = Capabilities(manifests, tags, Ability.NO, Ability.NO)
    found = explain_image([image], "app:old", D, "old", PurgePolicy(POLICIES), NOW, lambda _: able)
    assert all(one.reason for one in found.items)
    return {one.judgement.tag: (one.decision, one.reason) for one in found.items}


@pytest.mark.parametrize("ability", [Ability.NO, Ability.DENIED, Ability.UNKNOWN])
def test_a_tag_that_cannot_go_without_its_manifest_is_held(ability):
    """Where another tag keeps the manifest and the registry deletes no tag by itself, the tag stays."""
    found = explained(BOTH, Ability.YES, ability)

    assert ("held", BLOCKED) == found["old"]
    assert ("due", False) == (explained(BOTH, Ability.YES, Ability.YES)["old"][0], BLOCKED in found["kept"])


@pytest.mark.parametrize("ability", [Ability.NO, Ability.DENIED])
def test_nothing_goes_where_deleting_is_off(ability):
    """An image whose time has come is held where the registry deletes nothing, and due where it does."""
    held = explained(ALONE, ability, Ability.YES)

    assert {"old": ("held", BLOCKED), None: ("held", BLOCKED)} == held
    assert {"due"} == {decision for decision, _ in explained(ALONE, Ability.YES, Ability.NO).values()}


def test_a_registry_is_not_asked_about_what_stays():
    """Nobody probes a registry to explain an image that is kept anyway."""

    def probe(_repository: str) -> Capabilities:
        raise AssertionError("the registry was asked")

    image = Image("app", D, (Tag("kept", OLD, Assigned("Long")),), pushed_at=OLD)
    found = explain_image([image], "app:kept", D, "kept", PurgePolicy(POLICIES), NOW, probe)

    assert {"held"} == {one.decision for one in found.items}
    assert NEVER == found.items[0].deadline
