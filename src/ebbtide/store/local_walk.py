"""Walk a folder in key order: the order of whole keys as bytes, in which ``a.b`` comes before ``a/b``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ebbtide.errors import NotFound, StoreError

TEMPORARY = ".ebbtide-tmp"
"""The folder at the root for half-written objects: no part of the store, so never listed."""

Found = tuple[str, os.stat_result]


def walk(root: str, prefix: str, start_after: str) -> Iterator[Found]:
    """
    Stream every file whose key starts with the prefix and lies after `start_after`.

    Symbolic links and special files raise: following them may leave the root, and skipping them may hide
    the name by which a live object is reached.
    """
    _check_root(root)
    folder = prefix[: prefix.rfind("/") + 1]
    if _is_real_folder(root, folder):
        yield from _walk_folder(root, folder, prefix, start_after)


def children(root: str, folder: str) -> Iterator[str]:
    """Stream the names of what lies directly in a folder, but for folders without anything in them."""
    _check_root(root)
    if not _is_real_folder(root, folder):
        return
    for name, entry in _entries(root, folder):
        is_folder = name.endswith("/")
        if _holds_something(root, folder + name) if is_folder else _regular(entry) is not None:
            yield name


def _check_root(root: str) -> None:
    """Refuse a root that is not there."""
    if not os.path.isdir(root):
        raise NotFound(
            f"there is no folder {root!r}",
            why="a missing folder is not an empty one",
            fix="check the address of the store, and that the disk is mounted",
        )


def _is_real_folder(root: str, folder: str) -> bool:
    """Tell whether the folder exists below the root, reached through real folders alone."""
    path = root
    for part in folder.split("/")[:-1]:
        if part in ("", ".", "..") or (path == root and part == TEMPORARY):
            return False
        path = f"{path}/{part}"
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(f"cannot list {path!r}", why=error.strerror or "") from None
        if not stat.S_ISDIR(mode):
            if not stat.S_ISREG(mode):
                _refuse(path)
            return False
    return True


def _walk_folder(root: str, folder: str, prefix: str, start_after: str) -> Iterator[Found]:
    """Stream one folder and those below it, leaving out what cannot match."""
    for name, entry in _entries(root, folder):
        key = folder + name
        is_folder = name.endswith("/")
        if is_folder:
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if key <= start_after and not start_after.startswith(key):
                continue  # every key in here begins with this one, so all lie before start_after
            yield from _walk_folder(root, key, prefix, start_after)
        elif key.startswith(prefix) and key > start_after:
            found = _regular(entry)
            if found is not None:
                yield key, found


def _entries(root: str, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Read one folder, sorted as its keys sort: a folder's name counts with the slash that follows it."""
    found = []
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                if not folder and entry.name == TEMPORARY:
                    continue
                _check_name(entry)
                slash = "/" if entry.is_dir(follow_symlinks=False) else ""
                found.append((entry.name + slash, entry))
    except FileNotFoundError:
        if not folder:
            raise StoreError(f"{root!r} vanished while it was listed") from None
        return []  # emptied and removed since its parent was read
    except OSError as error:
        raise _unreadable(root, folder, error) from None
    found.sort(key=lambda pair: pair[0])
    return found


def _holds_something(root: str, folder: str) -> bool:
    """Look for a first name in a folder, whatever it is."""
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False  # emptied and removed since its parent was read
    except OSError as error:
        raise _unreadable(root, folder, error) from None


def _unreadable(root: str, folder: str, error: OSError) -> StoreError:
    """Make the error for a folder that cannot be read."""
    return StoreError(
        f"cannot list {root}/{folder}",
        why=f"{error.strerror}, and a listing with holes is worse than none",
        fix="let this user read every folder of the store",
    )


def _regular(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Describe a regular file and refuse all else; None if it was deleted since its folder was read."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        _refuse(entry.path)
    return found


def _check_name(entry: os.DirEntry[str]) -> None:
    """Refuse a name that cannot be written as a key."""
    if not entry.name.isascii():
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            raise StoreError(
                f"{entry.path!r} has a name that is no UTF-8",
                why="it cannot be written as a key",
                fix="rename the file",
            ) from None


def _refuse(path: str) -> None:
    """Raise for a link or a special file."""
    raise StoreError(
        f"{path!r} is a symbolic link or a special file",
        why="following it may leave the store, and skipping it may hide a live object",
        fix="replace it by the file itself, or move it out of the store",
    )
