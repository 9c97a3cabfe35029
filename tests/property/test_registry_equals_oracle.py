"""The Spark evaluation of a registry equals the oracle, row for row and word for word, on any registry."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.property.registry_worlds import DOCUMENTS, NOW, digest, registry_world
from tests.worlds_of_images import tables

from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import days_after
from ebbtide.targets.oci.evaluation.verdicts import evaluate
from ebbtide.targets.oci.model import OLDEST_SCAN, Image, ImageDecision, RunningImages, RunningReference, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.oracle_tables import oracle_verdicts
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.tables import IMAGES, TAGS

pytestmark = pytest.mark.spark

WORLDS = 110
"""So many for each policy document."""


def judged(spark, images, policies, running=None, scratch=None, blobs=None):
    """Judge with Spark: what the oracle says too, then size and time, by repository, digest and tag."""
    verdicts = evaluate(*tables(spark, images, blobs), policies, NOW, running, scratch=scratch)
    rows = verdicts.toArrow().to_pylist()
    return {(row["repository"], row["digest"], row["tag"]): row for row in rows}


def evaluated_here(spark, world):
    """Judge as it is done where there are few images: by the oracle itself, with times and sizes."""
    rows = [frame.toArrow().to_pylist() for frame in _checked(spark, world)]
    found = oracle_verdicts(*rows, world.policies, NOW, world.running, OLDEST_SCAN)
    return {(row["repository"], row["digest"], row["tag"]): row for row in found}


def _checked(spark, world):
    images, tags = tables(spark, world.images, None)
    return IMAGES.check(images), TAGS.check(tags)


def said(row):
    """Give of a row what the oracle says."""
    return (row["decision"], row["policy"], row["deadline"], tuple(row["held_by"]), row["unmatched"])


def by_name(judgements):
    """Give what the oracle says, by repository, digest and tag."""
    return {
        (one.repository, one.digest, one.tag or ""): (
            str(one.decision),
            one.policy,
            one.deadline,
            one.held_by,
            one.unmatched,
        )
        for one in judgements
    }


@pytest.mark.parametrize("number", range(len(DOCUMENTS)))
def test_spark_equals_the_oracle(spark, number):
    """On every drawn registry each tag and manifest gets the very judgement that the oracle gives."""
    world = registry_world(DOCUMENTS[number], range(WORLDS * number, WORLDS * (number + 1)))
    expected = by_name(judge(world.policies, world.images, NOW, world.running))
    actual = judged(spark, world.images, world.policies, world.running)
    kinds = {word.split(" ")[0] for *_, words, _ in expected.values() for word in words}

    here = evaluated_here(spark, world)

    assert actual == here
    assert set(expected) == set(actual)
    for name, verdict in expected.items():
        assert verdict == said(actual[name]), name
    assert {str(decision) for decision in ImageDecision} == {decision for decision, *_ in expected.values()}
    assert {"index", "subject", "tag", "running:", "pinned", "nothing", "unknown", "quarantine"} <= kinds


@pytest.mark.long
def test_a_scan_that_cannot_be_trusted_keeps_everything(spark, tmp_path):
    """With a scan of what runs that is too old nothing goes, by way of Parquet as by any other."""
    world = registry_world(DOCUMENTS[1], range(20))
    old = replace(world.running, scanned_at=NOW - timedelta(hours=25))
    expected = by_name(judge(world.policies, world.images, NOW, old))
    actual = judged(spark, world.images, world.policies, old, scratch=tmp_path)

    assert expected == {name: said(row) for name, row in actual.items()}
    assert ("the running scan is too old",) in {words for *_, words, _ in expected.values()}


@pytest.mark.long
def test_a_long_chain_of_indexes_comes_to_its_end(spark):
    """What a tag says reaches the last of many indexes inside each other, and what runs there the first."""
    tags = (Tag("v1", days_after(NOW, -1)),)
    images = [
        Image(name, digest(name, n), () if n else tags, (digest(name, n + 1),))
        for name in ("a", "b")
        for n in range(6)
    ]
    running = RunningImages((RunningReference(None, None, digest("b", 5)),))
    expected = by_name(judge(read_policies({}), images, NOW, running))
    actual = judged(spark, images, read_policies({}), running)
    last = (f"running: {digest('b', 5)}", f"index {digest('b', 4)}")

    assert expected == {name: said(row) for name, row in actual.items()}
    assert (f"index {digest('a', 4)}",) == expected["a", digest("a", 5), ""][3]
    assert sorted(last) == sorted(expected["b", digest("b", 5), ""][3])


def test_every_blob_is_counted_once(spark):
    """A blob counts for a manifest that stays, else for one that is recycled; then for the first name."""
    policies = read_policies({"policies": {"Scrap": {"days": 1, "recycle": False}}})
    old = days_after(NOW, -9)
    images = [
        Image("a", digest("a", 1), (Tag("v1", old, Assigned("Scrap")),), size=1),
        Image("b", digest("b", 1), (Tag("v1", old),), size=2, seen_at=old),
        Image("b", digest("a", 1), (Tag("v2", old),), size=4),
        Image("c", digest("a", 1), (Tag("v1", None, seen_at=NOW),), size=8, pushed_at=old),
    ]
    shared = {"all": "abbc", "going": "abb", "recycled": "bb", "deleted": "a"}
    weights = {"all": 100, "going": 1_000, "recycled": 10_000, "deleted": 100_000}
    held = {
        (image.repository, image.digest): [
            {"digest": name, "size": weights[name]} for name in shared if image.repository in shared[name]
        ]
        for image in images
    }
    found = judged(spark, images, policies, blobs=held)
    sizes = {(name[0], name[1][7]): row["size"] for name, row in found.items() if not name[2]}

    assert {("a", "a"): 100_001, ("b", "a"): 11_004, ("b", "b"): 2, ("c", "a"): 108} == sizes
    assert {0} == {row["size"] for name, row in found.items() if name[2]}
    assert [None, old, old, NOW] == [
        found["a", digest("a", 1), ""]["created"],
        found["b", digest("b", 1), ""]["created"],
        found["c", digest("a", 1), ""]["created"],
        found["c", digest("a", 1), "v1"]["created"],
    ]


A = digest("a", 1)


@pytest.mark.parametrize(
    ("images", "tags", "words"),
    [
        ([("app", A), ("app", A)], [], "is there twice"),
        ([("app", A)], [("app", "v1", A), ("app", "v1", A)], "app:v1 is there twice"),
        ([("app", A)], [("other", "v1", A)], "the manifest of other:v1 is not in the table"),
        ([("app", A)], [("app", "v1", None)], "the manifest of app:v1 is not in the table"),
        ([("app", None)], [], "no digest"),
    ],
)
def test_tables_that_contradict_themselves_stop_the_run(spark, images, tags, words):
    """What is there twice or has no name, and a tag without its manifest, are not judged."""
    of_images = [{"repository": repository, "digest": name} for repository, name in images]
    of_tags = [{"repository": repository, "tag": tag, "digest": name} for repository, tag, name in tags]
    frames = spark.createDataFrame(of_images, IMAGES.schema), spark.createDataFrame(of_tags, TAGS.schema)
    with pytest.raises(MetadataError, match=words):
        evaluate(*frames, read_policies({}), NOW)
    with pytest.raises(MetadataError, match="contradict"):
        oracle_verdicts(
            *(frame.toArrow().to_pylist() for frame in frames), read_policies({}), NOW, None, OLDEST_SCAN
        )
