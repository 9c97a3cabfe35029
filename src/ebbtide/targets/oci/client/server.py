"""A registry behind the OCI distribution API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ebbtide.core.errors import BadInput, MetadataError, NotFound, Unsupported
from ebbtide.storage.network import check_loopback
from ebbtide.storage.rate_limit import Backoff
from ebbtide.targets.oci.base import Bytes, Capabilities, Descriptor, Manifest, RegistrySpec
from ebbtide.targets.oci.client.address import RegistryUrl, parse_address
from ebbtide.targets.oci.client.credential_files import find_credentials
from ebbtide.targets.oci.client.options import Credentials, RegistryOptions
from ebbtide.targets.oci.client.pages import names
from ebbtide.targets.oci.client.probing import probe
from ebbtide.targets.oci.client.reading import (
    api_referrers,
    blob_ask,
    fallback_manifest,
    get_manifest,
    head_manifest,
    pull,
    stream_blob,
    tagged_referrers,
)
from ebbtide.targets.oci.client.wire import Wire
from ebbtide.targets.oci.client.writing import delete, mount, put_manifest, upload
from ebbtide.targets.oci.names import check_digest, check_tag, is_repository, is_tag


class RegistryClient:
    """
    A connection to one registry; see `Registry` for what its methods promise.

    Reading a manifest, even by HEAD, counts as a pull in many registries, so each is read as seldom as can be
    and under a User-Agent that names Ebbtide.
    """

    def __init__(
        self, spec: RegistrySpec, credentials: Credentials | None = None, backoff: Backoff | None = None
    ) -> None:
        address = parse_address(spec.url)
        if not isinstance(address, RegistryUrl):
            raise BadInput(f"{spec.url} is no server", fix="open it as an image layout")
        self._spec, self.address = spec, address
        options = RegistryOptions.parse(spec.options)
        if options.local_only:
            check_loopback(address.name, f"the registry {address.host}")
        self._page = options.page
        self._wire = Wire(
            address.origin(allow_http=options.allow_http),
            options,
            Credentials.from_environment(address.host) if credentials is None else credentials,
            backoff or options.backoff,
            proxies=not (options.local_only or address.is_loopback),
            find=partial(find_credentials, address.host) if credentials is None else None,
        )
        self._without_api: set[str] = set()

    @property
    def spec(self) -> RegistrySpec:
        """Say how this registry was opened."""
        return self._spec

    def repositories(self) -> Iterator[str]:
        """Stream the catalog, or the one repository of the address."""
        if self.address.repository:
            yield self.address.repository
            return
        scopes = ("registry:catalog:*",)
        yield from names(
            self._wire, "/v2/_catalog", "repositories", "list repositories", scopes, self._page, is_repository
        )

    def tags(self, repository: str) -> Iterator[str]:
        """Stream the tags of a repository."""
        scopes = pull(repository)
        url, what = f"/v2/{repository}/tags/list", f"list the tags of {repository}"
        return names(self._wire, url, "tags", what, scopes, self._page, is_tag)

    def resolve(self, repository: str, reference: str) -> Descriptor:
        """Ask by HEAD; registries that do not answer that with a digest are asked for the manifest."""
        found = head_manifest(self._wire, repository, reference)
        if found is not None:
            return found
        manifest = self.manifest(repository, reference)
        return Descriptor(manifest.digest, len(manifest.body), manifest.media_type)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """Read a manifest and check its digest."""
        return get_manifest(self._wire, repository, reference)

    def untagged(self, repository: str) -> Iterator[str]:
        """Raise Unsupported: the API has no such list."""
        raise Unsupported(
            f"manifests of {repository} without a tag cannot be listed",
            why="the distribution API has no such request",
            fix="let Ebbtide record what it sees, or take the registry's notifications",
        )

    def referrers(self, repository: str, digest: str) -> Sequence[Descriptor]:
        """Ask the referrers API or, where there is none, read the list under the fallback tag."""
        found = None if repository in self._without_api else api_referrers(self._wire, repository, digest)
        if found is not None:
            return found
        self._without_api.add(repository)
        return tagged_referrers(fallback_manifest(self._wire, repository, digest))

    def blob_size(self, repository: str, digest: str) -> int:
        """Ask for the size of a blob."""
        answer = self._wire.send(blob_ask("HEAD", repository, digest))
        size = answer.headers.get("content-length", "")
        if not (size.isascii() and size.isdecimal()):
            raise MetadataError(f"the registry does not say how large {repository} {digest} is")
        return int(size)

    def blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """Stream a blob and check its digest."""
        return stream_blob(self._wire, repository, digest)

    def put_blob(self, repository: str, digest: str, size: int, open_bytes: Bytes) -> None:
        """Upload a blob unless it is there."""
        try:
            self.blob_size(repository, digest)
        except NotFound:
            upload(self._wire, repository, digest, size, open_bytes)

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Have the registry share a blob."""
        return mount(self._wire, repository, digest, source)

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Write a manifest under a tag or its digest."""
        put_manifest(self._wire, repository, reference, manifest)

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Delete a tag; many registries cannot, and then nothing happens."""
        return delete(self._wire, repository, check_tag(tag))

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Delete a manifest and all tags on it."""
        return delete(self._wire, repository, check_digest(digest))

    def capabilities(self, repository: str) -> Capabilities:
        """Probe the repository."""
        return probe(self._wire, repository)

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()
