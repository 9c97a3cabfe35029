"""
The registry protocol: what Ebbtide needs from a place that stores container images.

Two clients implement it: one for servers with the OCI distribution API, and one for folders of OCI image
layouts. Like stores, registries are opened from a picklable :class:`RegistrySpec`, on the driver and again on
executors.

Everywhere: something absent raises NotFound, except that deleting it is not an error; an answer that cannot
be understood or does not match its digest raises MetadataError, and never looks like an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from ebbtide.core.errors import ConfigError, NotFound, SafetyStop, StalePlan
from ebbtide.storage.executor_proof import check_fitness
from ebbtide.storage.rate_limit import Backoff

Bytes = Callable[[], Iterable[bytes]]
"""Opens the bytes of a blob, from the start at each call, so that a failed upload can be repeated."""


@dataclass(frozen=True)
class RegistrySpec:
    """Where a registry is and how to reach it. It never contains credentials: see `Credentials`."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings that are not secret; see `RegistryOptions`."""


_NUMBERS = {"timeout": 600, "patience": 3600, "retries": 50, "page": 10_000}


@dataclass(frozen=True)
class RegistryOptions:
    """The settings of a registry; each is an option of the RegistrySpec."""

    allow_http: bool = False
    """Whether plain http to another machine is allowed, for trusted networks."""
    timeout: int = 30
    """Seconds without a byte after which a request has failed."""
    patience: int = 120
    """Seconds that a whole small answer may take, so that a server cannot trickle forever."""
    retries: int = 6
    page: int = 1000
    """Names per page of a listing; a server may send fewer."""
    local_only: bool = False
    """Whether the server must be on this machine, as in a rehearsal."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> RegistryOptions:
        """Read the options of a RegistrySpec; an unknown name or a wrong value raises ConfigError."""
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                raise ConfigError(f"option {name!r} is unknown to registries", fix=f"use {', '.join(known)}")
        return cls(**{name: _value(name, text) for name, text in options.items()})  # type: ignore[arg-type]

    @property
    def backoff(self) -> Backoff:
        """Return the waits between tries."""
        return Backoff(tries=self.retries)


def _value(name: str, text: str) -> bool | int:
    """Parse one option according to its type."""
    if name in _NUMBERS:
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= _NUMBERS[name]:
            raise ConfigError(f"{name} is {text!r}", fix=f"use a whole number from 1 to {_NUMBERS[name]}")
        return int(text)
    if text.lower() not in ("yes", "no", "true", "false"):
        raise ConfigError(f"{name} is {text!r}", fix="use yes or no")
    return text.lower() in ("yes", "true")


@dataclass(frozen=True)
class Descriptor:
    """What points at a manifest or blob: its digest, and what the pointer records about it."""

    digest: str
    size: int
    media_type: str = ""
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A manifest byte for byte, with its digest checked; `manifest.read_content` parses it."""

    digest: str
    media_type: str
    body: bytes = field(repr=False)


class Ability(StrEnum):
    """The result of a probe: works, does not work, is not permitted to us, or cannot be determined."""

    YES = "yes"
    NO = "no"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Capabilities:
    """What one repository of a registry supports, determined without changing anything."""

    manifest_delete: Ability
    tag_delete: Ability
    """Whether a tag can be deleted by itself; if not, only a digest with all its tags can."""
    referrers_api: Ability
    untagged_listing: Ability
    """Whether manifests without a tag can be listed; the distribution API cannot."""


@runtime_checkable
class Registry(Protocol):
    """A place that stores images in repositories."""

    @property
    def spec(self) -> RegistrySpec:
        """Return how this registry was opened, so that an executor can open it too."""

    def repositories(self) -> Iterator[str]:
        """Stream the names of all repositories, each once."""

    def tags(self, repository: str) -> Iterator[str]:
        """Stream the tags of a repository, each once; an emptied repository has none."""

    def resolve(self, repository: str, reference: str) -> Descriptor:
        """Return what a tag or digest stands for now, without reading the manifest if possible."""

    def manifest(self, repository: str, reference: str) -> Manifest:
        """Read the manifest of a tag or digest."""

    def untagged(self, repository: str) -> Iterator[str]:
        """Stream the digests of manifests without a tag; raise Unsupported if they cannot be listed."""

    def referrers(self, repository: str, digest: str) -> Sequence[Descriptor]:
        """List the manifests with this one as their subject: signatures, attestations and the like."""

    def blob_size(self, repository: str, digest: str) -> int:
        """Return the size of a blob."""

    def blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """Stream a blob; raise MetadataError before its end if the bytes do not match the digest."""

    def put_blob(self, repository: str, digest: str, size: int, open_bytes: Bytes) -> None:
        """Write a blob; an existing one is left as it is."""

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Share a blob of the source repository without moving bytes; return False if not possible."""

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Write a manifest under a tag or its digest; everything it points at must exist already."""

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Delete a tag and not its manifest; False if it was absent, Unsupported if not possible."""

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Delete a manifest with all its tags; False if it was absent. Its blobs stay."""

    def capabilities(self, repository: str) -> Capabilities:
        """Determine what a repository supports, without changing anything."""

    def close(self) -> None:
        """Close connections."""


def open_registry(spec: RegistrySpec | str) -> Registry:
    """Open the registry at an address. Close it when done; each process opens its own."""
    # The two clients use the types above; only servers need httpx, which takes a while to load.
    from ebbtide.targets.oci.client.address import LayoutPath, parse_address  # noqa: PLC0415

    check_fitness()
    found = RegistrySpec(spec) if isinstance(spec, str) else spec
    if isinstance(parse_address(found.url), LayoutPath):
        from ebbtide.targets.oci.client.image_layout import ImageLayout  # noqa: PLC0415

        return ImageLayout(found)
    from ebbtide.targets.oci.client.distribution import RegistryClient  # noqa: PLC0415

    return RegistryClient(found)


def untag(registry: Registry, repository: str, tag: str, digest: str, siblings: Iterable[str] = ()) -> bool:
    """
    Delete a tag, and only the tag, if it still stands for this digest; return False if it is gone already.

    Some registries answer the delete of a tag by deleting its manifest with all other tags, and no probe can
    tell without doing harm. So the manifest is read before and looked up after; if it is gone it is written
    again, which works until the registry's garbage collection has run: its blobs are still there. `siblings`
    are the other tags of the digest. If they were lost they are written again and SafetyStop is raised, so
    that no other tag is tried in this registry. StalePlan is raised if the tag has moved.
    """
    try:
        manifest = registry.manifest(repository, tag)
    except NotFound:
        return False
    if manifest.digest != digest:
        raise StalePlan(
            f"{repository}:{tag} has moved to {manifest.digest}",
            why=f"it was to be deleted as {digest}",
            fix="plan again",
        )
    done = registry.delete_tag(repository, tag)
    if _is_there(registry, repository, digest):
        return done
    _put_back(registry, repository, manifest, [name for name in siblings if name != tag])
    raise SafetyStop(
        f"the registry deleted {repository}@{digest} when it was to delete the tag {tag}",
        why="it deletes the manifest with all its tags when a tag is deleted",
        fix="the manifest and its other tags were put back; delete only whole manifests there",
    )


def _put_back(registry: Registry, repository: str, manifest: Manifest, tags: Iterable[str]) -> None:
    """Write the manifest and its missing tags again; a tag that was moved in the meantime is left alone."""
    registry.put_manifest(repository, manifest.digest, manifest)
    for tag in tags:
        if not _is_there(registry, repository, tag):
            registry.put_manifest(repository, tag, manifest)


def _is_there(registry: Registry, repository: str, reference: str) -> bool:
    try:
        registry.resolve(repository, reference)
    except NotFound:
        return False
    return True
