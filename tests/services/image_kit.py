"""Small images for tests, pushed through the protocol, so that they go to servers and folders alike."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.targets.oci.client.manifest import OCI_INDEX, OCI_MANIFEST
from ebbtide.targets.oci.client.names import digest_of, fallback_tag
from ebbtide.targets.oci.client.registry import Manifest, Registry

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
SIGNATURE = "application/vnd.example.signature"


@dataclass(frozen=True)
class Pushed:
    """What was pushed: the manifest, and the digests of its blobs."""

    manifest: Manifest
    blobs: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The manifest's digest."""
        return self.manifest.digest

    @property
    def row(self) -> dict[str, object]:
        """What an index or a subject says of it."""
        return {
            "mediaType": self.manifest.media_type,
            "digest": self.digest,
            "size": len(self.manifest.body),
        }


def fresh_repository() -> str:
    """Make up a name that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}/app"


def manifest_of(document: dict[str, object], media_type: str) -> Manifest:
    """Make a manifest from a document."""
    body = json.dumps({"schemaVersion": 2, "mediaType": media_type, **document}).encode()
    return Manifest(digest_of(body), media_type, body)


def push_image(
    registry: Registry,
    repository: str,
    tags: Sequence[str] = (),
    *,
    layers: Sequence[bytes] = (b"layer",),
    name: str = "",
    subject: Pushed | None = None,
    created: str | None = None,
) -> Pushed:
    """Push an image under tags, or by its digest alone; `name` makes it differ from others."""
    dated = {} if created is None else {"created": created}
    config = json.dumps({"architecture": "amd64", "os": "linux", "name": name, **dated}).encode()
    config_kind = SIGNATURE if subject else CONFIG
    document: dict[str, object] = {
        "config": _blob(registry, repository, config, config_kind),
        "layers": [_blob(registry, repository, layer, LAYER) for layer in layers],
    }
    if subject:
        document["subject"] = subject.row
    manifest = manifest_of(document, OCI_MANIFEST)
    _put(registry, repository, tags, manifest)
    return Pushed(manifest, tuple(digest_of(blob) for blob in (config, *layers)))


def push_index(
    registry: Registry, repository: str, tags: Sequence[str], children: Sequence[Pushed]
) -> Pushed:
    """Push an index of manifests that are there already."""
    rows = [
        {**child.row, "platform": {"architecture": f"a{n}", "os": "linux"}}
        for n, child in enumerate(children)
    ]
    manifest = manifest_of({"manifests": rows}, OCI_INDEX)
    _put(registry, repository, tags, manifest)
    return Pushed(manifest)


def push_signature(registry: Registry, repository: str, subject: Pushed) -> Pushed:
    """Push a referrer and list it under the fallback tag, as clients do where there is no referrers API."""
    signature = push_image(
        registry, repository, layers=[b"signed " + subject.digest.encode()], subject=subject
    )
    push_index(registry, repository, [fallback_tag(subject.digest)], [signature])
    return signature


def _put(registry: Registry, repository: str, tags: Sequence[str], manifest: Manifest) -> None:
    for reference in tags or [manifest.digest]:
        registry.put_manifest(repository, reference, manifest)


def _blob(registry: Registry, repository: str, data: bytes, media_type: str) -> dict[str, object]:
    registry.put_blob(repository, digest_of(data), len(data), lambda: [data])
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}
