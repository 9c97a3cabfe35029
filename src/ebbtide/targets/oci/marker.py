"""
The marker of a registry: a tiny artifact that says which registry this is, under whatever name it is reached.

It lies in a repository of its own among the bins, which scans, purges and emptying leave out, and holds a
random id. A second DNS name, a proxy or a forwarded port shows the same marker; another registry at an old
address shows another one, or none. A copy of a registry's storage has the marker of the original, so whoever
finds a known id at a new address lets the marker there show a fresh nonce: the original shows it too if both
are one registry (`is_same`).

It also says whether a rehearsal or a real root owns the registry. Markers of earlier versions do not say it
and count as real.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace

from ebbtide.core.errors import EbbtideError, MetadataError, NotFound, SafetyStop
from ebbtide.targets.oci.bin.entry import MARKER_REPOSITORY
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST, parse_object
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Manifest, Registry

TAG = "registry"
PREFIX = "io.ebbtide.targets.oci."
VERSION = "1"
ARTIFACT = "application/vnd.ebbtide.targets.oci.marker.v1+json"
_KINDS = {"real": False, "rehearsal": True}
_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True)
class RegistryMarker:
    """Which registry this is."""

    id: str
    name: str
    """The name under which the marker was written first; for people."""
    nonce: str = ""
    rehearsal: bool = False
    """Whether the registry belongs to a rehearsal, which no real root takes over, nor the other way round."""

    @classmethod
    def new(cls, name: str, *, rehearsal: bool = False) -> RegistryMarker:
        """Make up a marker for a registry that has none."""
        return cls(uuid.uuid4().hex, name, rehearsal=rehearsal)

    def check_kind(self, name: str, *, rehearsal: bool) -> None:
        """Stop if a registry belongs to a root of the other kind."""
        if self.rehearsal is not rehearsal:
            kinds = {True: "a rehearsal", False: "a real root"}
            raise SafetyStop(
                f"{name} belongs to {kinds[self.rehearsal]}, and this is {kinds[rehearsal]}",
                why="what is rehearsed must never be taken for real, nor be done to what is real",
                fix="use another registry; if the other root does not use this one any more, delete its"
                f" marker, the tag {TAG} in {MARKER_REPOSITORY}",
            )


def read_marker(registry: Registry) -> RegistryMarker | None:
    """Read the marker of a registry, None if it has none; MetadataError if something else is in its place."""
    try:
        manifest = registry.manifest(MARKER_REPOSITORY, TAG)
    except NotFound:
        return None
    what = f"the marker {MARKER_REPOSITORY}:{TAG}"
    notes = parse_object(manifest.body, what).get("annotations")
    found = {} if not isinstance(notes, dict) else notes
    number, name, nonce = (found.get(f"{PREFIX}{field}") for field in ("id", "name", "nonce"))
    kind = found.get(f"{PREFIX}kind", "real")
    readable = found.get(f"{PREFIX}version") == VERSION and isinstance(kind, str) and kind in _KINDS
    if not readable or not isinstance(number, str) or not number.isalnum():
        raise MetadataError(
            f"{what} of the registry cannot be understood",
            why="it is not what Ebbtide writes there, so nobody can say which registry this is",
            fix=f"look at it with a registry tool; if it is somebody else's, delete the tag {TAG} there",
        )
    return RegistryMarker(number, str(name or ""), str(nonce or ""), _KINDS[kind])


def write_marker(registry: Registry, marker: RegistryMarker) -> None:
    """Write the marker of a registry, and make sure that it is there; Denied or Unsupported if it refuses."""
    before = _digest(registry)
    blob = digest_of(_EMPTY)
    registry.put_blob(MARKER_REPOSITORY, blob, len(_EMPTY), lambda: [_EMPTY])
    empty = {"mediaType": _EMPTY_TYPE, "digest": blob, "size": len(_EMPTY)}
    kind = "rehearsal" if marker.rehearsal else "real"
    notes = {"version": VERSION, "id": marker.id, "name": marker.name, "nonce": marker.nonce, "kind": kind}
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": ARTIFACT,
        "config": empty,
        "layers": [empty],
        "annotations": {f"{PREFIX}{field}": value for field, value in notes.items()},
    }
    body = json.dumps(document, sort_keys=True).encode()
    manifest = Manifest(digest_of(body), OCI_MANIFEST, body)
    registry.put_manifest(MARKER_REPOSITORY, TAG, manifest)
    if read_marker(registry) != marker:
        raise MetadataError(
            "the marker of the registry was written and is not there",
            why="somebody else wrote one at the same moment, or the registry answers from an old memory",
            fix="run the same command again",
        )
    if before not in ("", manifest.digest):
        # What it said before is of no use; where it cannot be deleted, a small untagged manifest is left.
        with suppress(EbbtideError):
            registry.delete_manifest(MARKER_REPOSITORY, before)


def is_same(registry: Registry, marker: RegistryMarker, other: Registry) -> bool:
    """Return True if two registries that show one marker are one: what is written here can be read there."""
    fresh = replace(marker, nonce=uuid.uuid4().hex)
    write_marker(registry, fresh)
    return read_marker(other) == fresh


def _digest(registry: Registry) -> str:
    try:
        return registry.resolve(MARKER_REPOSITORY, TAG).digest
    except NotFound:
        return ""
