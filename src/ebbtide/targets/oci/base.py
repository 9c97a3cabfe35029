"""
The registry protocol: the few things that Ebbtide asks of a place that holds container images.

Two kinds fulfil it: a server that speaks the OCI distribution API, and a folder of OCI image layouts. Like
stores, registries are opened from a picklable :class:`RegistrySpec`, on the driver and again on executors.

Everywhere: what is not there raises NotFound, except that deleting it is no error; an answer that cannot be
understood or does not hash to its digest raises MetadataError, and never looks like an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

Bytes = Callable[[], Iterable[bytes]]
"""Opens the bytes of a blob, from the start at each call, so that a failed upload can begin again."""


@dataclass(frozen=True)
class RegistrySpec:
    """Where a registry is and how to reach it. Credentials are never in here: see `Credentials`."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings that are no secret; see `RegistryOptions`."""


@dataclass(frozen=True)
class Descriptor:
    """What points at a manifest or a blob: its digest, and what the pointer says of it."""

    digest: str
    size: int
    media_type: str = ""
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A manifest byte for byte, whose digest has been checked; `documents.read_content` takes it apart."""

    digest: str
    media_type: str
    body: bytes = field(repr=False)


class Ability(StrEnum):
    """What probing found: that something works, does not, is not allowed to us, or cannot be told."""

    YES = "yes"
    NO = "no"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Capabilities:
    """What one repository of a registry can do, found without changing anything."""

    manifest_delete: Ability
    tag_delete: Ability
    """Whether a tag can be deleted by itself; where not, only a digest with all its tags can."""
    referrers_api: Ability
    untagged_listing: Ability
    """Whether manifests without a tag can be listed; the distribution API never can."""


@runtime_checkable
class Registry(Protocol):
    """A place that holds images in repositories."""

    @property
    def spec(self) -> RegistrySpec:
        """Say how this registry was opened, so that an executor can open it too."""

    def repositories(self) -> Iterator[str]:
        """Stream the names of all repositories, each once."""

    def tags(self, repository: str) -> Iterator[str]:
        """Stream the tags of a repository, each once; one that was emptied has none."""

    def resolve(self, repository: str, reference: str) -> Descriptor:
        """Say what a tag or digest stands for now, without reading the manifest where that can be helped."""

    def manifest(self, repository: str, reference: str) -> Manifest:
        """Read the manifest of a tag or digest."""

    def untagged(self, repository: str) -> Iterator[str]:
        """Stream the digests of manifests without a tag; Unsupported where they cannot be listed."""

    def referrers(self, repository: str, digest: str) -> Sequence[Descriptor]:
        """List the manifests that name this one as their subject: signatures, attestations and the like."""

    def blob_size(self, repository: str, digest: str) -> int:
        """Say how large a blob is."""

    def blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """Stream a blob; at its end, before it ends, MetadataError is raised if it was not that blob."""

    def put_blob(self, repository: str, digest: str, size: int, open_bytes: Bytes) -> None:
        """Write a blob; one that is there already is left as it is."""

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Make a blob of the source repository one of this, without moving bytes; False if that cannot be."""

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Write a manifest under a tag or its digest; all that it points at must be there already."""

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Delete a tag and not its manifest; False if there was none, Unsupported if it cannot be done."""

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Delete a manifest with all its tags; False if there was none. Its blobs are left to a collector."""

    def capabilities(self, repository: str) -> Capabilities:
        """Find out what a repository can do, without changing anything."""

    def close(self) -> None:
        """Let go of connections."""
