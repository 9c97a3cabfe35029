"""The manifest of a plan."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ebbtide.core.errors import MetadataError
from ebbtide.core.manifest import Manifest, Summary, Tally, manifest_from_json

MANIFEST = Manifest(
    run_id=7,
    target="lake:r",
    target_uid="uid",
    namespace="s3://b/ns",
    collector="lifecycle",
    made_at=datetime(2026, 1, 1, tzinfo=UTC),
    now=datetime(2026, 1, 1, 2, tzinfo=UTC),
    policy="{}",
    policy_hash="p",
    snapshot={"sequence": 3},
    batches=1,
    digest="d",
    summary=Summary(Tally("due", 1, 2), Tally("held", 3, 4), 9, by_rule=(Tally("r", 1, 2),)),
    breaker=("too much",),
)


def test_a_manifest_survives_writing_and_reading():
    """What is written is read back equal."""
    actual = manifest_from_json(MANIFEST.to_json())

    assert MANIFEST == actual


@pytest.mark.parametrize("changed", [{"run_id": 8}, {"made_at": datetime(2027, 1, 1, tzinfo=UTC)}])
def test_the_hash_does_not_depend_on_when_or_where(changed):
    """The plan hash names what would be deleted, not the run that found it."""
    assert MANIFEST.plan_hash == replace(MANIFEST, **changed).plan_hash


@pytest.mark.parametrize("changed", [{"digest": "e"}, {"target_uid": "x"}, {"policy_hash": "q"}])
def test_the_hash_depends_on_the_content(changed):
    """Other items, another target or another policy give another hash."""
    assert MANIFEST.plan_hash != replace(MANIFEST, **changed).plan_hash


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda _: "{}",
        lambda _: "[]",
        lambda text: text.replace('"digest": "d"', '"digest": "e"'),
        lambda text: json.dumps(json.loads(text) | {"surprise": 1}),
        lambda text: json.dumps(json.loads(text) | {"format": 99}),
    ],
)
def test_a_damaged_manifest_stops_the_run(damage):
    """A manifest that is cut, altered or of another kind is never taken for a plan."""
    with pytest.raises(MetadataError):
        manifest_from_json(damage(MANIFEST.to_json()))
