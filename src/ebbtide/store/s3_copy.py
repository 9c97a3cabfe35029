"""Copying an object to another key of its bucket, and the proof that such a copy is whole."""

from __future__ import annotations

from ebbtide.store.s3_objects import About, S3Object, S3Objects
from ebbtide.store.s3_transfer import Sizes, copy_on_server, simple


def copy_to_key(objects: S3Objects, found: S3Object, key: str, sizes: Sizes) -> None:
    """Copy with all that is written beside the bytes; parts do not take the tags along by themselves."""
    tags = objects.tags(found) if found.size > sizes.one_copy else {}
    about = About(found.headers, found.metadata, tags)
    copy_on_server(objects, found, objects, key, about, sizes)


def has_same_bytes(objects: S3Objects, found: S3Object, held: S3Object, sizes: Sizes) -> bool:
    """Prove that a copy has the bytes of its source: by the store's checksum, or by reading both."""
    if found.size != held.size:
        return False
    if simple(found.etag) and found.etag == held.etag:
        return True
    piece = sizes.part_of(found.size)
    return objects.digest(found, piece) == objects.digest(held, piece)
