"""The questions of a scan, each about one repository, one tag or one manifest."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.core.errors import NotFound, Unsupported
from ebbtide.targets.oci.base import Registry
from ebbtide.targets.oci.documents import MEDIA_TYPES, Content, read_content
from ebbtide.targets.oci.inventory.asking import Row

_SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1"
WITHOUT_MANIFESTS = frozenset(
    {f"{_SCHEMA_1}+json", f"{_SCHEMA_1}+prettyjws", "application/vnd.oci.artifact.manifest.v1+json"}
)
"""Kinds that Ebbtide does not read, and of which it is known that they point at no other manifest."""


def which_tags_it_has(registry: Registry, row: Row) -> Iterator[Row]:
    """
    List the tags of a repository; one that has no list has a row without a tag.

    Registries answer that a repository is not there if it only has manifests without tags.
    """
    repository, listed = row["repository"], False
    try:
        for tag in registry.tags(repository):
            listed = True
            yield {"repository": repository, "tag": tag}
    except NotFound:
        if listed:
            raise  # the list has come to an end too early
        yield {"repository": repository, "tag": None}


def what_has_no_tag(registry: Registry, row: Row) -> Iterator[Row]:
    """List the manifests of a repository that have no tag, where a registry can."""
    try:
        for digest in registry.untagged(row["repository"]):
            yield {"repository": row["repository"], "digest": digest}
    except NotFound:
        return  # known from an earlier scan, and gone


def what_a_tag_is(registry: Registry, row: Row) -> Iterator[Row]:
    """Ask what a tag stands for; nothing if it is gone."""
    try:
        found = registry.resolve(row["repository"], row["tag"])
    except NotFound:
        return
    yield {**row, "digest": found.digest}


def whether_it_is_there(registry: Registry, row: Row) -> Iterator[Row]:
    """Ask for a manifest that was there once; nothing if it is gone."""
    try:
        registry.resolve(row["repository"], row["digest"])
    except NotFound:
        return
    yield row


def what_refers_to_it(registry: Registry, row: Row) -> Iterator[Row]:
    """Ask for the manifests that have this one as their subject."""
    for found in registry.referrers(row["repository"], row["digest"]):
        yield {"repository": row["repository"], "digest": found.digest}


def what_it_says(registry: Registry, row: Row) -> Iterator[Row]:
    """
    Read a manifest.

    One that is not there is a row too, so that it is not asked for again: registries delete children under
    their indexes. One of a kind that is not known here has a row without content; a damaged one raises.
    """
    try:
        yield _read(registry, row)
    except NotFound:
        yield {**_bare(row), "missing": True}


def _read(registry: Registry, row: Row) -> Row:
    try:
        manifest = registry.manifest(row["repository"], row["digest"])
        content = read_content(manifest)
    except Unsupported:
        return _of_unknown_kind(registry, row)
    return {
        **_bare(row, manifest.media_type, len(manifest.body)),
        "children": [child.digest for child in content.children],
        "subject": content.subject or None,
        "blobs": blobs_of(content),
    }


def _of_unknown_kind(registry: Registry, row: Row) -> Row:
    """Note a manifest that cannot be read: that it is there, and of which kind it is."""
    found = registry.resolve(row["repository"], row["digest"])
    if found.media_type in MEDIA_TYPES:
        raise Unsupported(
            f"the manifest {row['repository']} {row['digest']} is of two kinds",
            why=f"once the registry calls it {found.media_type!r}, and once something else",
            fix="look at it with a registry tool, and push it again",
        )
    return _bare(row, found.media_type, found.size)


def _bare(row: Row, media_type: str = "", size: int | None = None) -> dict[str, object]:
    return {
        "repository": row["repository"],
        "digest": row["digest"],
        "media_type": media_type,
        "size": size,
        "children": [],
        "subject": None,
        "blobs": [],
        "missing": False,
        "fresh": True,
    }


def blobs_of(content: Content) -> list[dict[str, object]]:
    """Give the blobs of a manifest; builders' caches list layers as if they were manifests."""
    odd = [child for child in content.children if child.media_type and child.media_type not in MEDIA_TYPES]
    return [{"digest": blob.digest, "size": blob.size} for blob in (*content.blobs, *odd)]
