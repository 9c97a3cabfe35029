"""Changing a registry: uploads, mounts, manifests, and the two kinds of delete."""

from __future__ import annotations

import httpx

from ebbtide.core.errors import EbbtideError, MetadataError, StoreError
from ebbtide.targets.oci.base import Bytes, Manifest
from ebbtide.targets.oci.client.failures import unsupported
from ebbtide.targets.oci.client.reading import pull
from ebbtide.targets.oci.client.wire import Answer, Ask, Wire
from ebbtide.targets.oci.names import check_bytes, check_digest, check_reference, check_repository, is_digest

_DELETED = frozenset({200, 202, 204})
_ABSENT = frozenset({404, 410})


def push(repository: str) -> tuple[str, ...]:
    """Name the right to write to a repository."""
    return (f"repository:{check_repository(repository)}:pull,push",)


def delete(wire: Wire, repository: str, reference: str) -> bool:
    """
    Delete what a reference names; False if there was nothing.

    It is sent again if the answer is lost, and the second answer then says that there was nothing. A registry
    that does not delete may say so by 400 as well as by 405.
    """
    ask = Ask(
        f"delete {repository} {reference}",
        "DELETE",
        f"/v2/{check_repository(repository)}/manifests/{check_reference(reference)}",
        (f"repository:{repository}:delete,pull",),
        good=_DELETED | _ABSENT | {400},
    )
    answer = wire.send(ask)
    if answer.status == 400:
        raise unsupported(answer.status, answer.body, ask.what)
    return answer.status in _DELETED


def put_manifest(wire: Wire, repository: str, reference: str, manifest: Manifest) -> None:
    """Write a manifest, and check that the registry took it for the same."""
    what = f"the manifest {repository} {reference}"
    check_bytes(manifest.body, reference if is_digest(reference) else manifest.digest, what)
    ask = Ask(
        f"write {repository} {reference}",
        "PUT",
        f"/v2/{check_repository(repository)}/manifests/{check_reference(reference)}",
        push(repository),
        {"Content-Type": manifest.media_type},
        manifest.body,
        frozenset({201}),
    )
    said = wire.send(ask).headers.get("docker-content-digest", manifest.digest)
    if not is_digest(said):
        raise MetadataError(f"the registry names {what} by no digest", fix="check what it wrote")
    check_bytes(manifest.body, said, what)


def mount(wire: Wire, repository: str, digest: str, source: str) -> bool:
    """Have the registry share a blob among repositories; False if it wants the bytes instead."""
    params = httpx.QueryParams({"mount": check_digest(digest), "from": check_repository(source)})
    ask = Ask(
        f"mount {digest} from {source} into {repository}",
        "POST",
        f"/v2/{check_repository(repository)}/blobs/uploads/?{params}",
        (*push(repository), *pull(source)),
        {"Content-Length": "0"},
        good=frozenset({201, 202}),
    )
    answer = wire.send(ask)
    if answer.status == 201:
        return True
    _cancel(wire, repository, answer)
    return False


def upload(wire: Wire, repository: str, digest: str, size: int, open_bytes: Bytes) -> None:
    """Upload a blob in one piece; the registry checks the digest."""
    start = Ask(
        f"upload a blob to {repository}",
        "POST",
        f"/v2/{check_repository(repository)}/blobs/uploads/",
        push(repository),
        {"Content-Length": "0"},
        good=frozenset({202}),
    )
    url = _session(wire, wire.send(start), repository)
    wire.send(
        Ask(
            f"upload {digest} to {repository}",
            "PUT",
            str(url.copy_merge_params({"digest": check_digest(digest)})),
            push(repository),
            {"Content-Type": "application/octet-stream", "Content-Length": str(size)},
            open_bytes,
            frozenset({201}),
        )
    )


def _session(wire: Wire, answer: Answer, repository: str) -> httpx.URL:
    """Find where an upload goes on."""
    location = answer.headers.get("location", "")
    if not location:
        raise StoreError(f"the registry opened no upload to {repository}", why="it gave no Location")
    return wire.resolve(answer.url, location)


def _cancel(wire: Wire, repository: str, answer: Answer) -> None:
    """Give up the upload that a registry opened in place of a mount; if it stays, the registry drops it."""
    try:
        url = str(_session(wire, answer, repository))
        wire.send(Ask("cancel an upload", "DELETE", url, push(repository), good=_DELETED | _ABSENT))
    except EbbtideError:
        return
