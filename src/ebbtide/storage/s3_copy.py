"""Copying an object to another key of its bucket as it is, and the proof that such a copy is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ebbtide.core.errors import StoreError
from ebbtide.storage.s3_objects import ENCRYPTION, About, Refusal, S3Object, S3Objects
from ebbtide.storage.s3_transfer import PartWriter, Sizes, copied_parts, copy_source, simple

_AT_HAND = frozenset(
    {"STANDARD", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "REDUCED_REDUNDANCY", "EXPRESS_ONEZONE"}
)
"""Classes whose objects can be read at once. Of any other the store is asked: names differ between stores."""
_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_ARCHIVED = frozenset({"InvalidObjectState", "ObjectNotInActiveTierError"})
"""How a store answers who would read or copy an object that it must restore first."""
_REDIRECT = "WebsiteRedirectLocation"


def copy_to_key(objects: S3Objects, found: S3Object, key: str, sizes: Sizes) -> None:
    """Copy to a key that is free, with all that is written beside the bytes, in the same storage class."""
    _check_provable(found, sizes)
    with _explained(found):
        if found.storage_class not in _AT_HAND:
            # A store that copied what it cannot read would copy a name without its bytes.
            objects.read(found, 0, min(found.size, 1))
        try:
            _copy(objects, found, key, sizes, found.kept_as)
        except Refusal as no:
            if no.code != "InvalidStorageClass":
                raise
            # A tier that the store alone moves objects to. That the bytes are kept matters more than where.
            others = {name: value for name, value in found.kept_as.items() if name != "StorageClass"}
            _copy(objects, found, key, sizes, others)


def has_same_bytes(objects: S3Objects, found: S3Object, held: S3Object, sizes: Sizes) -> bool:
    """Prove that a copy has the bytes of its source: by the store's checksum, or by reading both."""
    if found.size != held.size:
        return False
    if simple(found.etag) and found.etag == held.etag:
        return True
    return _digest(objects, found, sizes) == _digest(objects, held, sizes)


def redirection(found: S3Object) -> dict[str, str]:
    """Give what a server does not take along in one request, unlike other headers, metadata and tags."""
    return {name: value for name, value in found.headers.items() if name == _REDIRECT}


def _digest(objects: S3Objects, found: S3Object, sizes: Sizes) -> str:
    with _explained(found):
        return objects.digest(found, sizes.part_of(found.size))


def _copy(objects: S3Objects, found: S3Object, key: str, sizes: Sizes, kept_as: Mapping[str, Any]) -> None:
    origin, free = copy_source(objects, found), {"IfNoneMatch": "*"}
    if found.size > sizes.one_copy:
        about = About(found.headers, found.metadata, objects.tags(found))
        writer = PartWriter(objects, key, about, free, kept_as)
        writer.write(lambda: copied_parts(writer, origin, found.size, sizes))
        return
    more: Any = {**origin, **free, **redirection(found), **kept_as}
    objects.ask(
        "copy",
        lambda: objects.client.copy_object(
            Bucket=objects.bucket, Key=key, MetadataDirective="COPY", TaggingDirective="COPY", **more
        ),
    )


def _check_provable(found: S3Object, sizes: Sizes) -> None:
    """Refuse what would be archived again as a copy, and so could not be read, if only reading proves it."""
    if not found.restored or found.storage_class not in _ARCHIVES:
        return
    by_etag = simple(found.etag) and found.size <= sizes.one_copy and ENCRYPTION not in found.kept_as
    if not by_etag:
        raise StoreError(
            f"{_name(found)} is of class {found.storage_class}, and no copy of it could be proven",
            why="a copy is archived at once, and its etag would tell nothing of its bytes; it was not moved",
            fix="give the object another storage class first",
        )


@contextmanager
def _explained(found: S3Object) -> Iterator[None]:
    """Say of an object that the store must restore first what to do about it."""
    try:
        yield
    except Refusal as no:
        if no.code not in _ARCHIVED:
            raise
        raise StoreError(
            f"{_name(found)} is archived (class {found.storage_class})",
            why=f"the store neither reads nor copies it ({no.code}), so it was not moved",
            fix="ask the store to restore it (aws s3api restore-object), wait until it has, and try again",
        ) from None


def _name(found: S3Object) -> str:
    """Name an object as whoever restores it must name it to the store."""
    return found.key if found.asked is None else f"{found.key}, version {found.asked},"
