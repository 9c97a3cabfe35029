"""What a delete by age asks for, on Spark, equals a plain model over many repositories."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from tests.worlds_of_images import tables

from ebbtide.core.instant import days_after, parse_instant
from ebbtide.targets.oci.model import GOES, Image, ImageDecision, Tag
from ebbtide.targets.oci.purge.policy import DeleteRequest, RequestedImage, only_requested, with_requests

pytestmark = pytest.mark.spark

NOW = parse_instant("2026-03-01")
DAYS = (None, -60, -31, -30, -29, -1, 0)
REPOSITORIES = ("ua", "ua/b", "ua2", "xua", "UA", "other/ua")
TAGS = ("v1", "v10", "build-1", "late")
SHARED = [f"sha256:{letter * 64}" for letter in "abcdef"]
MEANT = {
    "ua": {"ua"},
    "ua*": {"ua", "ua/b", "ua2"},
    "ua/?": {"ua/b"},
    "*": {*REPOSITORIES},
    "nothing": set(),
}
"""Which repositories a pattern means."""
TAGGED = {"v1": {"v1"}, ".*": {*TAGS}, "none": set()}
WANTED = [
    DeleteRequest((), 30 * 86_400, pattern, tag, untagged)
    for pattern, tag, untagged in (
        ("ua", "none", True),
        ("ua", "v1", False),
        ("ua*", ".*", True),
        ("ua/?", "none", True),
        ("*", "v1", True),
        ("nothing", ".*", True),
    )
]
WANTED.append(replace(WANTED[0], named=(RequestedImage("ua2", "v1"), RequestedImage("xua", "", SHARED[0]))))


def drawn(random):
    """Draw the same digests in many repositories, each with clocks of its own."""

    def time():
        days = random.choice(DAYS)
        return None if days is None else days_after(NOW, days)

    for number in range(12):
        for name in REPOSITORIES:
            repository = name if number == 0 else f"{name}-{number}"
            places = {tag: random.choice(SHARED) for tag in TAGS if random.random() < 0.6}
            for digest in SHARED:
                tags = tuple(Tag(tag, time(), seen_at=time()) for tag in places if places[tag] == digest)
                untagged = None if tags else time()
                yield Image(
                    repository, digest, tags, pushed_at=time(), untagged_since=untagged, seen_at=time()
                )


def modelled(images, wanted):
    """Name what is asked for, in plain loops."""
    limit = NOW - timedelta(seconds=wanted.older_than_seconds)
    for image in images:
        meant = image.repository in MEANT[wanted.repository] or (
            # The numbered repositories differ from the six only by their end.
            wanted.repository in ("*", "ua*") and image.repository.startswith(wanted.repository[:-1])
        )
        known = [at for at in (image.untagged_since, image.pushed_at or image.seen_at) if at is not None]
        old = image.untagged_since is not None and max(known) <= limit
        if RequestedImage(image.repository, "", image.digest) in wanted.named or (
            wanted.untagged and meant and old
        ):
            yield image.repository, image.digest
        for tag in image.tags:
            clock = tag.moved_at or tag.seen_at
            asked = meant and tag.name in TAGGED[wanted.tag] and clock is not None and clock <= limit
            if asked or RequestedImage(image.repository, tag.name) in wanted.named:
                yield image.repository, tag.name


def test_what_is_asked_for_equals_the_model(spark):
    """Tags and manifests are asked for by repository, name and age as a plain loop says, and no others."""
    images = list(drawn(Random(15)))
    frames = [frame.cache() for frame in tables(spark, images)]
    reached = set()
    for wanted in WANTED:
        manifests, tags = with_requests(*frames, wanted, NOW)
        asked = manifests.where("delete_requested").select("repository", "digest")
        actual = asked.union(tags.where("delete_requested").select("repository", "tag")).toArrow().to_pylist()
        expected = sorted(modelled(images, wanted))

        assert expected == sorted((row["repository"], row["digest"]) for row in actual), wanted
        reached |= {repository for repository, _ in expected}
    for frame in frames:
        frame.unpersist()
    assert {"ua", "ua2", "ua/b"} < reached


def left(image_rows, tag_rows, verdicts, otherwise):
    """Name what is left of the verdicts, in plain loops."""
    asked = {(repository, digest) for repository, digest, wanted in image_rows if wanted}
    for repository, digest, _ in image_rows:
        own = [wanted for *place, _, wanted in tag_rows if place == [repository, digest]]
        if own and all(own):
            asked.add((repository, digest))
    tags = {(repository, digest, tag) for repository, digest, tag, wanted in tag_rows if wanted}
    whole = {(repository, digest) for repository, digest, wanted in image_rows if wanted}
    for key, decision in verdicts.items():
        meant = key in tags or key[:2] in (whole if key[2] else asked)
        if decision == ImageDecision.REFUSE or (decision in GOES and (otherwise[key] not in GOES or meant)):
            yield key


def test_what_is_left_of_the_verdicts_equals_the_model(spark):
    """A delete takes what was asked for, due or not, and nothing else that would have gone anyway."""
    random = Random(22)
    image_rows, tag_rows = [], []
    for number in range(120):
        place = (f"r{number % 7}", f"sha256:{number:064x}")
        image_rows.append((*place, random.random() < 0.2))
        tag_rows += [(*place, f"t{n}", random.random() < 0.5) for n in range(random.randrange(4))]
    keys = [(*row[:2], "") for row in image_rows] + [row[:3] for row in tag_rows]
    verdicts = {key: random.choice(list(ImageDecision)) for key in keys}
    otherwise = {key: random.choice([*GOES, ImageDecision.KEEP]) for key in keys}
    place = "repository string, digest string"

    def judged(decisions):
        rows = [(*key, str(decision)) for key, decision in decisions.items()]
        return spark.createDataFrame(rows, f"{place}, tag string, decision string")

    images = spark.createDataFrame(image_rows, f"{place}, delete_requested boolean")
    tags = spark.createDataFrame(tag_rows, f"{place}, tag string, delete_requested boolean")
    found = only_requested(judged(verdicts), judged(otherwise), images, tags).toArrow().to_pylist()
    actual = sorted((row["repository"], row["digest"], row["tag"]) for row in found)

    assert sorted(left(image_rows, tag_rows, verdicts, otherwise)) == actual
