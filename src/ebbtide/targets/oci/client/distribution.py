"""
The client of a registry server: the OCI distribution API.

Reading a manifest, even by HEAD, counts as a pull in many registries. So each is read as rarely as possible,
and under a User-Agent that names Ebbtide. All that a registry answers is checked: manifests and blobs against
their digests, names before they are put into URLs.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from functools import partial

import httpx

from ebbtide.core.errors import (
    BadInput,
    Denied,
    EbbtideError,
    MetadataError,
    NotFound,
    StoreError,
    Unsupported,
)
from ebbtide.storage.network import check_loopback
from ebbtide.storage.rate_limit import Backoff
from ebbtide.targets.oci.client.address import RegistryUrl, parse_address
from ebbtide.targets.oci.client.credentials import Credentials, find_credentials
from ebbtide.targets.oci.client.http import (
    BROKEN_CONNECTION,
    Connection,
    Request,
    Response,
    connection_error,
    listed_names,
    pages,
    unsupported,
)
from ebbtide.targets.oci.client.manifest import (
    INDEXES,
    LARGEST_MANIFEST,
    MEDIA_TYPES,
    OCI_INDEX,
    descriptors,
    parse_object,
)
from ebbtide.targets.oci.client.names import (
    check_bytes,
    check_digest,
    check_reference,
    check_repository,
    check_tag,
    digest_of,
    fallback_tag,
    is_digest,
    is_repository,
    is_tag,
    wrong_bytes,
)
from ebbtide.targets.oci.client.registry import (
    Ability,
    Bytes,
    Capabilities,
    Descriptor,
    Manifest,
    RegistryOptions,
    RegistrySpec,
)

_ACCEPT = {"Accept": ", ".join(MEDIA_TYPES)}
_DELETED = frozenset({200, 202, 204})
_ABSENT = frozenset({404, 410})


class RegistryClient:
    """A connection to one registry server; `Registry` defines what its methods promise."""

    def __init__(
        self, spec: RegistrySpec, credentials: Credentials | None = None, backoff: Backoff | None = None
    ) -> None:
        address = parse_address(spec.url)
        if not isinstance(address, RegistryUrl):
            raise BadInput(f"{spec.url} is not a server", fix="open it as an image layout")
        self._spec, self.address = spec, address
        options = RegistryOptions.parse(spec.options)
        if options.local_only:
            check_loopback(address.name, f"the registry {address.host}")
        self._page = options.page
        self._connection = Connection(
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
        """Return how this registry was opened."""
        return self._spec

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    # -- listings

    def repositories(self) -> Iterator[str]:
        """Stream the catalog, or the one repository of the address."""
        if self.address.repository:
            yield self.address.repository
            return
        request = Request("list repositories", "GET", "/v2/_catalog", ("registry:catalog:*",))
        yield from listed_names(self._connection, request, "repositories", self._page, is_repository)

    def tags(self, repository: str) -> Iterator[str]:
        """Stream the tags of a repository."""
        scopes = _pull(repository)
        request = Request(f"list the tags of {repository}", "GET", f"/v2/{repository}/tags/list", scopes)
        return listed_names(self._connection, request, "tags", self._page, is_tag)

    def untagged(self, repository: str) -> Iterator[str]:
        """Raise Unsupported: the API has no such list."""
        raise Unsupported(
            f"untagged manifests of {repository} cannot be listed",
            why="the distribution API has no such request",
            fix="let Ebbtide record what it sees, or send it the registry's notifications",
        )

    def referrers(self, repository: str, digest: str) -> Sequence[Descriptor]:
        """Ask the referrers API or, if there is none, read the list under the fallback tag."""
        found = None if repository in self._without_api else self._api_referrers(repository, digest)
        if found is not None:
            return found
        self._without_api.add(repository)
        return self._tagged_referrers(repository, digest)

    def _api_referrers(self, repository: str, digest: str) -> list[Descriptor] | None:
        """Ask the referrers API; return None if the registry does not have it."""
        what = f"list the referrers of {repository} {digest}"
        url = f"/v2/{repository}/referrers/{check_digest(digest)}"
        found: dict[str, Descriptor] = {}
        try:
            for response in pages(self._connection, Request(what, "GET", url, _pull(repository))):
                document = parse_object(response.body, f"the answer when asked to {what}")
                if document.get("mediaType", OCI_INDEX) != OCI_INDEX:
                    raise MetadataError(
                        f"the registry could not {what}", why="its answer is not an image index"
                    )
                found.update((row.digest, row) for row in descriptors(document, "manifests", what))
        except (NotFound, Unsupported):
            if found:
                raise  # the API exists, and its list ended too early
            return None
        return list(found.values())

    def _tagged_referrers(self, repository: str, digest: str) -> list[Descriptor]:
        """Read the list that clients keep under the fallback tag; a missing tag is an empty list."""
        try:
            manifest = self.manifest(repository, fallback_tag(digest))
        except NotFound:
            return []
        what = f"the list of referrers {manifest.digest}"
        if manifest.media_type not in INDEXES:
            raise MetadataError(
                f"{what} is not an index",
                why="its tag is the one under which referrers are listed",
                fix="remove the tag, or write an image index there",
            )
        return list(descriptors(parse_object(manifest.body, what), "manifests", what))

    # -- manifests

    def resolve(self, repository: str, reference: str) -> Descriptor:
        """Ask by HEAD; if the answer has no digest or size, read the manifest."""
        response = self._connection.send(_manifest_request("HEAD", repository, reference))
        digest = response.headers.get("docker-content-digest", "")
        size = response.headers.get("content-length", "")
        if digest and size.isascii() and size.isdecimal():
            _check_digest_header(digest, reference, repository)
            return Descriptor(digest, int(size), _media_type(response))
        manifest = self.manifest(repository, reference)
        return Descriptor(manifest.digest, len(manifest.body), manifest.media_type)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """Read a manifest, and check it against the requested digest and the one in the answer."""
        response = self._connection.send(_manifest_request("GET", repository, reference))
        what = f"the manifest {repository} {reference}"
        media_type = _media_type(response)
        if media_type not in MEDIA_TYPES:
            raise Unsupported(
                f"{what} is of the kind {media_type!r}",
                why="neither its digest nor what it points at can be checked",
                fix="push the image again with a current tool, or leave it alone",
            )
        said = response.headers.get("docker-content-digest", "")
        if said:
            _check_digest_header(said, reference, repository)
            check_bytes(response.body, said, what)
        digest = reference if is_digest(reference) else said or digest_of(response.body)
        check_bytes(response.body, digest, what)
        return Manifest(digest, media_type, response.body)

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Write a manifest under a tag or its digest, and check that the registry stored the same bytes."""
        what = f"the manifest {repository} {reference}"
        check_bytes(manifest.body, reference if is_digest(reference) else manifest.digest, what)
        request = Request(
            f"write {repository} {reference}",
            "PUT",
            _manifest_url(repository, reference),
            _push(repository),
            {"Content-Type": manifest.media_type},
            manifest.body,
            frozenset({201}),
        )
        said = self._connection.send(request).headers.get("docker-content-digest", manifest.digest)
        if not is_digest(said):
            raise MetadataError(f"the registry names {what} by no digest", fix="check what it wrote")
        check_bytes(manifest.body, said, what)

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Delete a tag; many registries cannot, and then nothing happens."""
        return self._delete(repository, check_tag(tag))

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Delete a manifest and all its tags."""
        return self._delete(repository, check_digest(digest))

    def _delete(self, repository: str, reference: str) -> bool:
        """
        Delete a tag or manifest; return False if it was absent.

        The request is sent again if the answer is lost, and the second answer is then that it is absent. A
        registry that does not delete answers 400 or 405.
        """
        request = Request(
            f"delete {repository} {reference}",
            "DELETE",
            _manifest_url(repository, reference),
            (f"repository:{repository}:delete,pull",),
            good=_DELETED | _ABSENT | {400},
        )
        response = self._connection.send(request)
        if response.status == 400:
            raise unsupported(response.status, response.body, request.what)
        return response.status in _DELETED

    # -- blobs

    def blob_size(self, repository: str, digest: str) -> int:
        """Ask for the size of a blob."""
        response = self._connection.send(_blob_request("HEAD", repository, digest))
        size = response.headers.get("content-length", "")
        if not (size.isascii() and size.isdecimal()):
            raise MetadataError(f"the registry does not give the size of {repository} {digest}")
        return int(size)

    def blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """Stream a blob, and raise at the end if the bytes do not match its digest."""
        request = _blob_request("GET", repository, digest)
        total = hashlib.new(digest.partition(":")[0])
        with self._connection.stream(request) as response:
            try:
                for part in response.iter_raw():
                    total.update(part)
                    yield part
            except BROKEN_CONNECTION as error:
                raise connection_error(error, request.what) from None
        found = f"{total.name}:{total.hexdigest()}"
        if found != digest:
            raise wrong_bytes(f"the blob {repository} {digest}", digest, found)

    def put_blob(self, repository: str, digest: str, size: int, open_bytes: Bytes) -> None:
        """Upload a blob in one piece unless it is there; the registry checks the digest."""
        try:
            self.blob_size(repository, digest)
        except NotFound:
            pass
        else:
            return
        start = Request(
            f"upload a blob to {repository}",
            "POST",
            f"/v2/{check_repository(repository)}/blobs/uploads/",
            _push(repository),
            {"Content-Length": "0"},
            good=frozenset({202}),
        )
        url = self._upload_url(self._connection.send(start), repository)
        upload = Request(
            f"upload {digest} to {repository}",
            "PUT",
            str(url.copy_merge_params({"digest": check_digest(digest)})),
            _push(repository),
            {"Content-Type": "application/octet-stream", "Content-Length": str(size)},
            open_bytes,
            frozenset({201}),
        )
        self._connection.send(upload)

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Ask the registry to share a blob between repositories; return False if it wants the bytes."""
        params = httpx.QueryParams({"mount": check_digest(digest), "from": check_repository(source)})
        request = Request(
            f"mount {digest} from {source} into {repository}",
            "POST",
            f"/v2/{check_repository(repository)}/blobs/uploads/?{params}",
            (*_push(repository), *_pull(source)),
            {"Content-Length": "0"},
            good=frozenset({201, 202}),
        )
        response = self._connection.send(request)
        if response.status == 201:
            return True
        self._cancel_upload(response, repository)
        return False

    def _upload_url(self, response: Response, repository: str) -> httpx.URL:
        """Return the URL to which an upload continues."""
        location = response.headers.get("location", "")
        if not location:
            raise StoreError(f"the registry opened no upload to {repository}", why="it gave no Location")
        return self._connection.resolve(response.url, location)

    def _cancel_upload(self, response: Response, repository: str) -> None:
        """Cancel the upload that a registry opened instead of mounting; if not, it expires there."""
        try:
            url = str(self._upload_url(response, repository))
            good = _DELETED | _ABSENT
            self._connection.send(Request("cancel an upload", "DELETE", url, _push(repository), good=good))
        except EbbtideError:
            return

    # -- capabilities

    def capabilities(self, repository: str) -> Capabilities:
        """
        Find out what a repository, which must exist, supports, by deleting what cannot exist.

        The digest is 32 random bytes that no content was hashed to, and the tag has 16 random bytes: to hit
        an existing one is as likely as to guess a key. A registry that can delete searches and answers 404;
        one that cannot answers 405 or 400 before it searches.
        """
        nothing = f"sha256:{secrets.token_hex(32)}"
        return Capabilities(
            manifest_delete=self._can_delete(repository, nothing),
            tag_delete=self._can_delete(repository, f"ebbtide-probe-{secrets.token_hex(16)}"),
            referrers_api=self._has_referrers(repository, nothing),
            untagged_listing=Ability.NO,
        )

    def _can_delete(self, repository: str, reference: str) -> Ability:
        """Delete something that does not exist; a registry that claims success proves nothing."""
        try:
            claimed = self._delete(repository, reference)
        except Denied:
            return Ability.DENIED
        except Unsupported:
            return Ability.NO
        except StoreError:
            return Ability.UNKNOWN
        return Ability.UNKNOWN if claimed else Ability.YES

    def _has_referrers(self, repository: str, digest: str) -> Ability:
        try:
            found = self._api_referrers(repository, digest)
        except Denied:
            return Ability.DENIED
        except StoreError:
            return Ability.UNKNOWN
        return Ability.NO if found is None else Ability.YES


def _pull(repository: str) -> tuple[str, ...]:
    """Return the scope for reading a repository; refuse a wrong name before it goes into a URL."""
    return (f"repository:{check_repository(repository)}:pull",)


def _push(repository: str) -> tuple[str, ...]:
    """Return the scope for writing to a repository."""
    return (f"repository:{check_repository(repository)}:pull,push",)


def _manifest_url(repository: str, reference: str) -> str:
    return f"/v2/{check_repository(repository)}/manifests/{check_reference(reference)}"


def _manifest_request(method: str, repository: str, reference: str) -> Request:
    url, scopes = _manifest_url(repository, reference), _pull(repository)
    return Request(f"read {repository} {reference}", method, url, scopes, _ACCEPT, limit=LARGEST_MANIFEST)


def _blob_request(method: str, repository: str, digest: str) -> Request:
    url = f"/v2/{check_repository(repository)}/blobs/{check_digest(digest)}"
    return Request(f"read blob {repository} {digest}", method, url, _pull(repository))


def _media_type(response: Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _check_digest_header(said: str, reference: str, repository: str) -> None:
    """Raise MetadataError if a registry answers with another digest than was asked for."""
    same_kind = said.partition(":")[0] == reference.partition(":")[0]
    if not is_digest(said) or (is_digest(reference) and same_kind and said != reference):
        raise MetadataError(
            f"the registry gave another manifest than {repository} {reference}",
            why=f"it names its digest {said[:160]!r}",
            fix="check the registry and any proxy in front of it",
        )
