"""Which actions give bytes back: a delete marker frees nothing, and neither does a move."""

from __future__ import annotations

from ebbtide.storage.s3_objects import NULL
from ebbtide.targets.s3.model import Action, Versioning


def frees_bytes(versioning: Versioning, action: str = "action", version: str = "version") -> str:
    """
    Tell, as a Spark expression, whether an action frees an item's bytes.

    Expiring an object deletes it if the bucket is not versioned. With versioning enabled it only adds a
    delete marker. With versioning suspended the marker is the null version, and replaces one for good.
    """
    stays = f"{action} <> '{Action.TRANSITION}'"
    if versioning is Versioning.DISABLED:
        return stays
    replaces = f" or {version} = '{NULL}'" if versioning is Versioning.SUSPENDED else ""
    return f"{stays} and ({action} <> '{Action.EXPIRE}'{replaces})"
