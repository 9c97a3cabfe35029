"""Small registries, written briefly: digests are letters, times are dates, and decisions go by names."""

from __future__ import annotations

from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.running import running_of
from ebbtide.targets.oci.simulated_images import check_images, read_image
from ebbtide.targets.oci.tables import IMAGES, TAGS


def digest(letter):
    """Make a whole digest of a letter."""
    return f"sha256:{letter * 64}"


def signature(letter, end=".sig"):
    """Name the tag under which the signature of a digest is kept."""
    return f"sha256-{letter * 64}{end}"


def tag(name, moved_at=None, **fields):
    """Write a tag as a line does."""
    return {"name": name, "moved_at": moved_at, **fields}


def image(letter, *tags, repository="app", children=(), subject=None, **fields):
    """Write an image as a line does."""
    return {
        "repository": repository,
        "digest": digest(letter),
        "tags": list(tags),
        "children": [digest(child) for child in children],
        "subject": subject and digest(subject),
        **fields,
    }


def judged(*images, now, policies=None, running=None, **options):
    """Judge a registry: judgements by ``app:v1`` or ``app@a``."""
    items = [read_image(line, f"image {number}") for number, line in enumerate(images, 1)]
    check_images(("images", one) for one in items)
    found = judge(
        read_policies(policies),
        items,
        parse_instant(now),
        None if running is None else running_of(running, "running"),
        **options,
    )
    return {
        f"{one.repository}:{one.tag}" if one.tag else f"{one.repository}@{one.digest[7]}": one
        for one in found
    }


def decisions(*images, **world):
    """Judge a registry and give the decisions alone."""
    return {name: str(one.decision) for name, one in judged(*images, **world).items()}


def tables(spark, images, blobs=None):
    """Write images as the tables that a scan makes; `blobs` are those of a repository and digest."""
    blobs = blobs or {}
    rows = [_image_row(one, blobs.get((one.repository, one.digest), ())) for one in images]
    tags = [_tag_row(image, one) for image in images for one in image.tags]
    return spark.createDataFrame(rows, IMAGES.schema), spark.createDataFrame(tags, TAGS.schema)


def _image_row(image, blobs):
    quarantine = image.quarantine
    return {
        **{name: getattr(image, name) for name in IMAGES.columns if hasattr(image, name)},
        "children": list(image.children),
        "blobs": list(blobs),
        "quarantine": quarantine and str(quarantine.state),
        "quarantine_since": quarantine and quarantine.since,
        **vars(image.assigned),
    }


def _tag_row(image, tag):
    times = {"moved_at": tag.moved_at, "seen_at": tag.seen_at}
    asked = {"delete_requested": tag.delete_requested, "copied": tag.copied}
    return (
        {"repository": image.repository, "tag": tag.name, "digest": image.digest}
        | times
        | asked
        | vars(tag.assigned)
    )
