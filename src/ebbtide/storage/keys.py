"""Which keys a store will touch: those that name one object to every server between here and the disk."""

from __future__ import annotations

from ebbtide.core.errors import AddressError, BadInput


def key_problem(key: str) -> str:
    """
    Say why a key is not safe to send to a store, or nothing if it is.

    Web servers and file systems resolve ``.`` and ``..``, so such a key may reach another object than
    the one it names.
    """
    if not key:
        return "the key is empty"
    if "\0" in key:
        return "the key has a NUL character"
    if not key.isascii() and any("\ud800" <= c <= "\udfff" for c in key):
        return "the key is no valid unicode"
    parts = key.split("/")
    return "the key has a '.' or '..' part" if "." in parts or ".." in parts else ""


def check_key(key: str) -> None:
    """Raise AddressError for a key that must not be sent to a store."""
    problem = key_problem(key)
    if problem:
        raise AddressError(
            f"{key!r} is no usable key",
            why=problem,
            fix="name the object as the listing names it",
        )


def check_folder(prefix: str) -> None:
    """Raise BadInput for a prefix that names no whole folder: names are cut off at its end."""
    if prefix and not prefix.endswith("/"):
        raise BadInput(
            f"{prefix!r} is no folder",
            why="the children of a folder are named from its last slash on",
            fix=f"write {prefix + '/'!r}, or nothing for the root",
        )
