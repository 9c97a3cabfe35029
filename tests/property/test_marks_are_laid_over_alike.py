"""What people said of images counts in the same way on Spark, for plans, and without it, for explanations."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.model import Quarantine, QuarantineState
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.purge.marks import marked_image, marked_tag, with_marks
from ebbtide.targets.oci.purge.scans import mark_row
from ebbtide.targets.oci.records.model import Mark, Target
from ebbtide.targets.oci.tables import IMAGES, MARKS, TAGS, image_of, tag_of

pytestmark = pytest.mark.spark

NOW = datetime(2026, 1, 6, tzinfo=UTC)
COUNT = 300


def drawn(draw: random.Random) -> Assigned:
    """Draw values as scans and people assign them, often none."""
    if draw.random() < 0.3:
        return Assigned()
    return Assigned(
        draw.choice([None, "Default", "Released", "Untagged"]),
        draw.choice([None, NEVER, NOW - timedelta(days=1), NOW + timedelta(days=1)]),
        draw.choice([None, True, False]),
        draw.choice([None, True, False]),
    )


def digest(number: int) -> str:
    """Make up a digest."""
    return f"sha256:{number:064x}"


def rows(draw: random.Random) -> tuple[list[dict], list[dict], dict[tuple[str, str, str], Mark]]:
    """Draw manifests with a tag each, and marks of some, also of tags that have moved since."""
    images, tags, marks = [], [], {}
    for number in range(COUNT):
        images.append({"repository": "app", "digest": digest(number), **vars(drawn(draw))})
        tags.append({"repository": "app", "tag": f"t{number}", "digest": digest(number), **vars(drawn(draw))})
        stood_for = digest(number if draw.random() < 0.6 else number + COUNT)
        for target in (Target("app", f"t{number}", stood_for), Target("app", "", digest(number))):
            if draw.random() < 0.7:
                state = draw.choice([None, *QuarantineState]) if not target.tag else None
                quarantine = None if state is None else Quarantine(state, NOW)
                marks[target.key] = Mark(target, drawn(draw), quarantine, NOW)
    return images, tags, marks


def test_both_ways_say_the_same(spark):
    """Every tag and manifest has the same values and the same quarantine after both."""
    images, tags, marks = rows(random.Random(6))
    frames = (
        spark.createDataFrame(images, IMAGES.schema),
        spark.createDataFrame(tags, TAGS.schema),
        spark.createDataFrame([mark_row(mark) for mark in marks.values()], MARKS.schema),
    )
    by_spark = [frame.toArrow().to_pylist() for frame in with_marks(*frames)]
    plain = [frame.toArrow().to_pylist() for frame in frames[:2]]
    of_images = {
        row["digest"]: marked_image(image_of(row), marks.get(("app", "", row["digest"]))) for row in plain[0]
    }
    of_tags = {
        row["tag"]: marked_tag(
            tag_of(row), Target("app", row["tag"], row["digest"]), marks.get(("app", row["tag"], ""))
        )
        for row in plain[1]
    }

    assert of_images == {row["digest"]: image_of(row) for row in by_spark[0]}
    assert of_tags == {row["tag"]: tag_of(row) for row in by_spark[1]}
    assert of_tags != {row["tag"]: tag_of(row) for row in plain[1]}
