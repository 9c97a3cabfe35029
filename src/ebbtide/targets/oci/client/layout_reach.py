"""What a layout needs: all that can be reached from index.json, and the blobs that nothing needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.targets.oci.base import Descriptor, Manifest
from ebbtide.targets.oci.client.layout_index import TEMPORARY, LayoutFolder
from ebbtide.targets.oci.documents import (
    MEDIA_TYPES,
    OCI_INDEX,
    OCI_MANIFEST,
    Content,
    parse_object,
    read_content,
)
from ebbtide.targets.oci.names import is_digest

LARGEST_MANIFEST = 4 * 2**20


@dataclass(frozen=True)
class Reach:
    """The manifests and blobs that are reached, by digest."""

    manifests: dict[str, Content]
    blobs: frozenset[str]


def load_manifest(layout: LayoutFolder, digest: str, media_type: str = "") -> Manifest:
    """Read and check one manifest; if no pointer says of what kind it is, the manifest itself must."""
    path = layout.blob_path(digest)
    if path.exists() and path.stat().st_size > LARGEST_MANIFEST:
        raise MetadataError(f"{digest} in {layout.folder} is too large to be a manifest")
    body = b"".join(layout.read_blob(digest))
    return Manifest(digest, media_type or _kind_of(body, f"{digest} in {layout.folder}"), body)


def _kind_of(body: bytes, what: str) -> str:
    """Find out what a manifest is; OCI's own need not say it, but then have lists of different names."""
    document = parse_object(body, what)
    if document.get("mediaType"):
        return str(document["mediaType"])
    if "manifests" in document:
        return OCI_INDEX
    if "config" in document and "layers" in document:
        return OCI_MANIFEST
    raise MetadataError(f"{what} is no manifest", why="it has neither manifests nor layers")


def reach(layout: LayoutFolder, starts: Iterable[Descriptor]) -> Reach:
    """
    Follow indexes to their children and images to their blobs.

    A manifest that is missing or damaged raises, since what it needs cannot be known. Children of a kind
    that is no manifest are kept as blobs.
    """
    manifests: dict[str, Content] = {}
    blobs: set[str] = set()
    waiting = list(starts)
    while waiting:
        target = waiting.pop()
        if target.digest in manifests:
            continue
        if target.media_type and target.media_type not in MEDIA_TYPES:
            blobs.add(target.digest)
            continue
        try:
            content = read_content(load_manifest(layout, target.digest, target.media_type))
        except NotFound:
            raise MetadataError(
                f"the image layout {layout.folder} is damaged",
                why=f"it has no blob for the manifest {target.digest}",
                fix="copy the image there again, or remove its tags",
            ) from None
        manifests[target.digest] = content
        waiting.extend(content.children)
        blobs.update(blob.digest for blob in content.blobs)
    return Reach(manifests, frozenset(blobs))


def remove_unneeded_blobs(layout: LayoutFolder, before: datetime) -> list[str]:
    """
    Remove the blobs that nothing reaches and that were written before a moment; give their digests.

    Younger ones stay, because an upload writes its blobs before the manifest that needs them.
    """
    removed = []
    with layout.locked():
        found = reach(layout, [entry.target for entry in layout.entries()])
        needed = found.blobs | found.manifests.keys()
        for path in sorted((layout.folder / "blobs").glob("*/*")):
            digest = f"{path.parent.name}:{path.name}"
            is_left_over = path.name.startswith(TEMPORARY)
            if not (is_digest(digest) or is_left_over) or digest in needed or not path.is_file():
                continue
            if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
                path.unlink(missing_ok=True)
                removed.extend([] if is_left_over else [digest])
    return removed
