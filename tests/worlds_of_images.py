"""Small registries, written briefly: digests are letters, times are dates, and decisions go by names."""

from __future__ import annotations

from ebbtide.registry.lines import check_images, read_image
from ebbtide.registry.oracle import judge
from ebbtide.registry.running import running_of
from ebbtide.rules.images.reading import read_policies
from ebbtide.rules.instant import parse_instant


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
    check_images(items, "images")
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
