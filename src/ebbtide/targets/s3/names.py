"""How buckets are called."""

from __future__ import annotations

import re

from ebbtide.core.errors import BadInput

# Other stores are less strict than AWS about names; a slash or a blank is in no store's.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


def bucket_url(bucket: str) -> str:
    """
    Give a bucket's one name here, whether it was called by its URL or by its name alone.

    >>> bucket_url("logs")
    's3://logs'
    """
    name = bucket.removeprefix("s3://").removesuffix("/")
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{bucket!r} names no bucket",
            why="rules belong to a whole bucket; a prefix is part of a rule",
            fix="write s3://NAME",
        )
    return f"s3://{name}"


def bucket_name(url: str) -> str:
    """Give the name in a bucket's URL."""
    return bucket_url(url).removeprefix("s3://")
