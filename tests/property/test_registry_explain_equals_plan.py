"""Explaining an image says what a plan's rows say, whatever the registry can do, without Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.property.registry_worlds import DOCUMENTS, NOW, registry_world
from tests.worlds_of_images import tables

from ebbtide.core.decision import Decision
from ebbtide.engine.verdicts import decisions_at
from ebbtide.targets.oci.client.registry import Ability, Capabilities
from ebbtide.targets.oci.evaluation.verdicts import evaluate
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.purge.explanation import explained_items
from ebbtide.targets.oci.purge.verdicts import (
    BLOCKED,
    names_alone,
    registry_verdicts,
    undeletable,
    undeletable_tags,
)

pytestmark = pytest.mark.spark

ABLE = [
    (Ability.YES, Ability.YES),
    (Ability.YES, Ability.NO),
    (Ability.YES, Ability.UNKNOWN),
    (Ability.NO, Ability.NO),
    (Ability.DENIED, Ability.YES),
]


def test_every_row_is_explained_as_it_was_decided(spark):
    """Decision, deadline, reason, holder and policy are the same for every tag and manifest."""
    world = registry_world(DOCUMENTS[1], range(60))
    names = sorted({image.repository for image in world.images})
    able = {
        name: Capabilities(*ABLE[number % len(ABLE)], Ability.NO, Ability.NO)
        for number, name in enumerate(names)
    }
    images, tags = tables(spark, world.images, None)
    verdicts = evaluate(images, tags, world.policies, NOW, world.running).localCheckpoint()
    judged = registry_verdicts(
        verdicts, names_alone(verdicts, tags), undeletable(able), undeletable_tags(able)
    )
    rows = {(row["address"], row["version"]): row for row in decisions_at(judged, NOW).toArrow().to_pylist()}
    seen = Counter()
    for one in explained_items(judge(world.policies, world.images, NOW, world.running), able, NOW):
        row = rows.pop((f"{one.judgement.repository}@{one.judgement.digest}", one.judgement.tag or ""))
        seen[one.decision, one.reason == BLOCKED] += 1
        due = row["decision"] == Decision.DUE
        told = (row["decision"], row["deadline"], row["rules"], row["hold"], row["holder"])
        said = (one.decision, one.deadline, list(one.rules), one.reason, one.holder or None)

        assert one.reason
        assert told == (said if not due else (*said[:3], None, None)), one

    assert {} == rows
    assert {("due", False), ("held", True), ("held", False)} == set(seen)
