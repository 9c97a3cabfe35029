"""Reading a registry: what requests ask for manifests and blobs, and checks of what comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ebbtide.core.errors import MetadataError, NotFound, Unsupported
from ebbtide.targets.oci.base import Descriptor, Manifest
from ebbtide.targets.oci.client.failures import BROKEN, broken
from ebbtide.targets.oci.client.pages import answers
from ebbtide.targets.oci.client.wire import Answer, Ask, Wire
from ebbtide.targets.oci.documents import INDEXES, MEDIA_TYPES, OCI_INDEX, descriptors, parse_object
from ebbtide.targets.oci.names import (
    check_bytes,
    check_digest,
    check_reference,
    check_repository,
    digest_of,
    fallback_tag,
    is_digest,
    wrong_bytes,
)

LARGEST_MANIFEST = 4 * 2**20
"""Registries take no larger ones, so a larger answer is none."""

_ACCEPT = {"Accept": ", ".join(MEDIA_TYPES)}
_FOUND = frozenset({200})


def pull(repository: str) -> tuple[str, ...]:
    """Name the right to read a repository, and refuse what is no name before it goes into a URL."""
    return (f"repository:{check_repository(repository)}:pull",)


def manifest_ask(method: str, repository: str, reference: str) -> Ask:
    """Make the request for a manifest."""
    return Ask(
        f"read {repository} {reference}",
        method,
        f"/v2/{check_repository(repository)}/manifests/{check_reference(reference)}",
        pull(repository),
        _ACCEPT,
        good=_FOUND,
        limit=LARGEST_MANIFEST,
    )


def head_manifest(wire: Wire, repository: str, reference: str) -> Descriptor | None:
    """Ask what a reference stands for; None if the registry does not say it without the body."""
    answer = wire.send(manifest_ask("HEAD", repository, reference))
    digest, size = answer.headers.get("docker-content-digest", ""), answer.headers.get("content-length", "")
    if not digest or not (size.isascii() and size.isdecimal()):
        return None
    _check_header(digest, reference, repository)
    return Descriptor(digest, int(size), _media_type(answer))


def get_manifest(wire: Wire, repository: str, reference: str) -> Manifest:
    """Read a manifest, and check it against the digest that was asked for and the one that was answered."""
    answer = wire.send(manifest_ask("GET", repository, reference))
    what = f"the manifest {repository} {reference}"
    media_type = _media_type(answer)
    if media_type not in MEDIA_TYPES:
        raise Unsupported(
            f"{what} is of the kind {media_type!r}",
            why="its digest cannot be checked, nor what it points at be known",
            fix="push the image again with a current tool, or leave it alone",
        )
    said = answer.headers.get("docker-content-digest", "")
    if said:
        _check_header(said, reference, repository)
        check_bytes(answer.body, said, what)
    digest = reference if is_digest(reference) else said or digest_of(answer.body)
    check_bytes(answer.body, digest, what)
    return Manifest(digest, media_type, answer.body)


def _media_type(answer: Answer) -> str:
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _check_header(said: str, reference: str, repository: str) -> None:
    """Disbelieve a registry that answers for another digest than was asked for."""
    same_kind = said.partition(":")[0] == reference.partition(":")[0]
    if not is_digest(said) or (is_digest(reference) and same_kind and said != reference):
        raise MetadataError(
            f"the registry gave another manifest than {repository} {reference}",
            why=f"it names its digest {said[:160]!r}",
            fix="check the registry and what stands before it",
        )


def api_referrers(wire: Wire, repository: str, digest: str) -> list[Descriptor] | None:
    """Ask the referrers API; None if the registry has none."""
    what = f"list the referrers of {repository} {digest}"
    ask = Ask(what, "GET", f"/v2/{repository}/referrers/{check_digest(digest)}", pull(repository))
    found: dict[str, Descriptor] = {}
    try:
        for answer in answers(wire, ask):
            document = parse_object(answer.body, f"the answer when asked to {what}")
            if document.get("mediaType", OCI_INDEX) != OCI_INDEX:
                raise MetadataError(f"the registry could not {what}", why="its answer is no image index")
            found.update((row.digest, row) for row in descriptors(document, "manifests", what))
    except (NotFound, Unsupported):
        if found:
            raise  # the API is there, and its list has come to an end too early
        return None
    return list(found.values())


def tagged_referrers(manifest: Manifest | None) -> list[Descriptor]:
    """Read the list that clients keep under the fallback tag where there is no referrers API."""
    if manifest is None:
        return []
    what = f"the list of referrers {manifest.digest}"
    if manifest.media_type not in INDEXES:
        raise MetadataError(
            f"{what} is no index",
            why="its tag is the one under which referrers are listed",
            fix="remove the tag, or write an image index there",
        )
    return list(descriptors(parse_object(manifest.body, what), "manifests", what))


def fallback_manifest(wire: Wire, repository: str, digest: str) -> Manifest | None:
    """Read the manifest under the fallback tag, if there is one."""
    try:
        return get_manifest(wire, repository, fallback_tag(digest))
    except NotFound:
        return None


def blob_ask(method: str, repository: str, digest: str) -> Ask:
    """Make the request for a blob."""
    url = f"/v2/{check_repository(repository)}/blobs/{check_digest(digest)}"
    return Ask(f"read blob {repository} {digest}", method, url, pull(repository))


def stream_blob(wire: Wire, repository: str, digest: str) -> Iterator[bytes]:
    """Stream a blob, and raise at the end if these were not its bytes."""
    ask = blob_ask("GET", repository, digest)
    total = hashlib.new(digest.partition(":")[0])
    with wire.stream(ask) as response:
        try:
            for part in response.iter_raw():
                total.update(part)
                yield part
        except BROKEN as error:
            raise broken(error, ask.what) from None
    found = f"{total.name}:{total.hexdigest()}"
    if found != digest:
        raise wrong_bytes(f"the blob {repository} {digest}", digest, found)
