"""The fields of a written world that tell who collects, and what they need to know."""

from datetime import timedelta

import pytest

from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import AddressError, PolicyError, WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.repository.policy import LakePolicy
from ebbtide.targets.repository.retention_rules import RetentionRules
from ebbtide.targets.repository.world_document import WrittenObject, world_document

NIGHT = "1998-01-20T00:00:00Z"


def test_a_world_is_for_the_lifecycle_unless_it_says_otherwise():
    """Without the new fields a world is what it always was."""
    world = world_document({"policy": {}})

    assert (CollectorName.LIFECYCLE,) == world.collect
    assert (None, {}, timedelta(hours=24)) == (world.retention, dict(world.objects), world.grace)


def test_all_fields_are_read():
    """Retention, objects, grace and collectors come as data, the collectors in their order."""
    world = world_document(
        {
            "retention": {"default_days": 5, "branch_days": {"main": 10}, "tags_protect": False},
            "objects": {"1": {"last_modified": NIGHT, "size": 3}, "2": {"last_modified": NIGHT}},
            "grace_hours": 1.5,
            "collect": ["retention", "uncommitted"],
        }
    )

    assert RetentionRules(5, {"main": 10}, tags_protect=False) == world.retention
    assert {"1": WrittenObject(parse_instant(NIGHT), 3), "2": WrittenObject(parse_instant(NIGHT), 0)} == (
        world.objects
    )
    assert timedelta(minutes=90) == world.grace
    assert (CollectorName.UNCOMMITTED, CollectorName.RETENTION) == world.collect
    assert LakePolicy(()) == world.policy


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"namespace": "lake/ns"}, "the namespace is 'lake/ns'"),
        ({"namespace": 7}, "the namespace is 7"),
        ({"collect": []}, "names no collector"),
        ({"collect": "lifecycle"}, "collect is not a list"),
        ({"collect": ["lifecycle", "lifecycle"]}, "names a collector twice"),
        ({"collect": ["retentoin"]}, "did you mean 'retention'"),
        ({"collect": [3]}, "there is no collector 3"),
        ({"collect": ["retention"]}, 'add "retention"'),
        ({"collect": ["lifecycle"], "policy": None}, "a policy is a table"),
        ({"grace_hours": -1}, "grace_hours is -1"),
        ({"grace_hours": "24"}, "grace_hours is '24'"),
        ({"grace_hours": True}, "grace_hours is True"),
        ({"grace_hours": None}, "grace_hours is None"),
        ({"grace_hours": float("nan")}, "grace_hours is nan"),
        ({"grace_hours": float("inf")}, "grace_hours is inf"),
        ({"grace_hours": 10**400}, "grace_hours is 1000"),
        ({"objects": []}, "objects is not a table"),
        ({"objects": {"1": NIGHT}}, r"objects\['1'\] is not a table"),
        ({"objects": {"1": {}}}, r"objects\['1'\].last_modified is None"),
        ({"objects": {"1": {"last_modified": "today"}}}, r"objects\['1'\].last_modified: 'today'"),
        ({"objects": {"1": {"last_modified": NIGHT, "size": -1}}}, "size is -1"),
        ({"objects": {"1": {"last_modified": NIGHT, "sise": 1}}}, "did you mean 'size'"),
        ({"retentions": {}}, "did you mean 'retention'"),
    ],
)
def test_bad_fields_are_refused_with_their_name(fields, words):
    """A field that is not what it must be is an error that says where, and what to write."""
    with pytest.raises((WorldError, PolicyError), match=words):
        world_document({"policy": {}} | fields)


def test_only_the_lifecycle_needs_a_policy():
    """A world for the lifecycle alone or among others must have a policy."""
    with pytest.raises(WorldError, match="no policy"):
        world_document({"collect": ["lifecycle", "uncommitted"]})


def test_bad_retention_is_a_policy_error_though_nobody_collects_by_it():
    """What is written is checked, whoever judges the world."""
    with pytest.raises(PolicyError, match="default_days is 0"):
        world_document({"policy": {}, "retention": {"default_days": 0}})


def test_the_address_of_an_object_must_have_a_canonical_form():
    """An address that may mean several objects is refused, as in entries."""
    with pytest.raises(AddressError):
        world_document({"policy": {}, "objects": {"a/../b": {"last_modified": NIGHT}}})
