"""What may be called what: names of repositories, branches and tags, and keys of objects."""

from __future__ import annotations

import re

from ebbtide.core.errors import BadInput
from ebbtide.targets.lake.catalog.model import Entry

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}", re.ASCII)
_COMMIT_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)

MAX_KEY_BYTES = 1024
"""As in S3; it also keeps every key below what PostgreSQL can index."""


def check_repository_name(name: str) -> str:
    """Return the name; refuse other characters than lower-case letters, digits, '.', '_' and '-'."""
    if not isinstance(name, str) or not _REPOSITORY.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot name a repository",
            why="a name has 1 to 63 lower-case letters, digits, '.', '_' or '-'"
            " and starts with a letter or digit",
            fix="choose another name",
        )
    return name


def check_ref_name(name: str, kind: str) -> str:
    """Return the name; refuse one that looks like another ref: '~', a commit id, an empty part."""
    good = isinstance(name, str) and _REF.fullmatch(name) and not _COMMIT_ID.fullmatch(name)
    if not good or "" in name.split("/") or ".." in name:
        raise BadInput(
            f"{name!r} cannot name a {kind}",
            why="a name has 1 to 255 letters, digits, '_', '.', '-' or '/', starts with a letter,"
            " digit or '_', has no empty part, no '..', and is not a commit id",
            fix="choose another name",
        )
    return name


def check_key(key: str) -> str:
    """Return the key; refuse text that a database or Parquet would not keep unchanged."""
    try:
        length = len(key.encode()) if isinstance(key, str) else 0
    except UnicodeEncodeError:
        length = 0
    if not 0 < length <= MAX_KEY_BYTES or "\0" in key:
        shown = repr(key)
        raise BadInput(
            f"{shown if len(shown) <= 100 else shown[:100] + '...'} cannot be a key",
            why=f"a key is 1 to {MAX_KEY_BYTES} bytes of UTF-8 without NUL",
            fix="rename the object",
        )
    return key


def check_entry(entry: Entry) -> Entry:
    """Return the entry; refuse a key, size, time or checksum that cannot be stored."""
    check_key(entry.key)
    problem = ""
    if not isinstance(entry.size, int) or not 0 <= entry.size < 2**63:
        problem = f"its size is {entry.size!r}"
    elif entry.created.tzinfo is None:
        problem = "its time has no zone"
    elif not isinstance(entry.checksum, str) or not entry.checksum.isprintable():
        problem = f"its checksum is {entry.checksum!r}"
    if problem:
        raise BadInput(
            f"{entry.key!r} cannot be staged",
            why=problem,
            fix="give a size in bytes, a time in UTC and a printable checksum",
        )
    return entry


def path_safe(name: str, uid: str) -> str:
    """Make one path component of a branch's name; the uid distinguishes branches of the same name."""
    return f"{_UNSAFE.sub('-', name)[:64].strip('-') or 'branch'}-{uid}"


def after_prefix(prefix: str) -> str | None:
    """Return the smallest text after everything that starts with the prefix; None if there is none."""
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < 0x10FFFF:
            # U+D800 to U+DFFF cannot be encoded; the next character after U+D7FF is U+E000.
            following = 0xE000 if last == 0xD7FF else last + 1
            return prefix[: length - 1] + chr(following)
    return None
