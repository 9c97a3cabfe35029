"""Where the recycle bin of a bucket is: below a prefix of its own, which no rule and no other run reaches."""

from __future__ import annotations

BIN_ROOT = "ebbtide-recycle/"


def is_in_bin(key: str) -> bool:
    """Tell whether a key lies in the bin."""
    return key.startswith(BIN_ROOT)
