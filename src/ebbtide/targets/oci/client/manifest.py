"""The content of manifests: children, blobs and subject, parsed strictly since protection depends on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebbtide.core.errors import MetadataError, Unsupported
from ebbtide.targets.oci.client.names import is_digest
from ebbtide.targets.oci.client.registry import Descriptor, Manifest

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = frozenset({OCI_INDEX, DOCKER_LIST})
IMAGES = frozenset({OCI_MANIFEST, DOCKER_MANIFEST})
MEDIA_TYPES = (OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST)
LARGEST_MANIFEST = 4 * 2**20
"""Registries accept no larger manifest, so a larger answer is not one."""


@dataclass(frozen=True)
class Content:
    """What a manifest points at."""

    children: tuple[Descriptor, ...] = ()
    """The manifests of an index."""
    blobs: tuple[Descriptor, ...] = ()
    """The configuration and the layers of an image."""
    subject: str = ""
    """The digest that this manifest refers to, which need not exist."""
    artifact_type: str = ""


def read_content(manifest: Manifest) -> Content:
    """Parse a manifest; raise MetadataError if it is invalid, Unsupported if its kind is unknown."""
    what = f"manifest {manifest.digest}"
    document = parse_object(manifest.body, what)
    _check_kind(document, manifest.media_type, what)
    subject = document.get("subject")
    about = descriptor(subject, what).digest if subject is not None else ""
    kind = str(document.get("artifactType") or "")
    if manifest.media_type in INDEXES:
        return Content(children=descriptors(document, "manifests", what), subject=about, artifact_type=kind)
    config = descriptor(document.get("config"), what)
    layers = descriptors(document, "layers", what)
    return Content(blobs=(config, *layers), subject=about, artifact_type=kind or config.media_type)


def _check_kind(document: Mapping[str, Any], media_type: str, what: str) -> None:
    """Refuse a document that two readers could take for different kinds: one would miss its children."""
    if media_type not in MEDIA_TYPES:
        raise Unsupported(
            f"{what} is of the kind {media_type!r}",
            why="Ebbtide does not know what such a manifest points at",
            fix="push the image again with a current tool, or leave it alone",
        )
    if document.get("schemaVersion") != 2:
        raise _damaged(what, "its schemaVersion is not 2")
    said = document.get("mediaType")
    if said not in (None, "", media_type):
        raise _damaged(what, f"it calls itself {said!r} but was given as {media_type!r}")
    other = ("layers", "config") if media_type in INDEXES else ("manifests",)
    if any(name in document for name in other):
        raise _damaged(what, f"it has {' or '.join(other)}, which {media_type!r} cannot have")


def parse_object(body: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object, or raise MetadataError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise _damaged(what, "it is not JSON") from None
    if not isinstance(found, dict):
        raise _damaged(what, "it is not a JSON object")
    return found


def descriptors(document: Mapping[str, Any], name: str, what: str) -> tuple[Descriptor, ...]:
    """Parse a list of descriptors; a missing list is an error, since no valid manifest omits it."""
    rows = document.get(name)
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise _damaged(what, f"it has no list of {name}")
    return tuple(descriptor(row, what) for row in rows)


def descriptor(row: object, what: str) -> Descriptor:
    """Parse one descriptor."""
    if not isinstance(row, Mapping):
        raise _damaged(what, "a descriptor in it is missing or not an object")
    digest, size, notes = row.get("digest"), row.get("size"), row.get("annotations")
    notes = {} if notes is None else notes
    if not isinstance(digest, str) or not is_digest(digest):
        raise _damaged(what, f"it points at {digest!r}, which is not a digest")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _damaged(what, f"it gives {digest} the size {size!r}")
    if not isinstance(notes, Mapping):
        raise _damaged(what, f"its annotations of {digest} are not an object")
    return Descriptor(
        digest,
        size,
        str(row.get("mediaType") or ""),
        str(row.get("artifactType") or ""),
        {str(name): str(value) for name, value in notes.items()},
    )


def _damaged(what: str, why: str) -> MetadataError:
    return MetadataError(
        f"{what} cannot be understood", why=why, fix="look at it with a registry tool, and push it again"
    )
