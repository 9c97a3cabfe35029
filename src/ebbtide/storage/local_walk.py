"""Walk a folder in key order: the order of whole keys as bytes, in which ``a.b`` comes before ``a/b``."""

from __future__ import annotations

import os
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ebbtide.core.errors import NotFound, StoreError, UnsafeEntry

TEMPORARY = ".ebbtide-tmp"
"""The folder at the root for half-written objects: not part of the store, so never listed."""


@dataclass(frozen=True)
class Files:
    """Files in key order, as columns: a folder may hold millions, and a tuple per file is slow."""

    keys: list[str]
    sizes: Any
    times: Any
    """Nanoseconds since 1970."""
    inodes: Any

    def __len__(self) -> int:
        """Count the files."""
        return len(self.keys)

    def between(self, start: int, end: int) -> Files:
        """Return the files from one position up to another."""
        some = slice(start, end)
        return Files(self.keys[some], self.sizes[some], self.times[some], self.inodes[some])

    @staticmethod
    def joined(runs: Sequence[Files]) -> Files:
        """Concatenate runs."""
        return Files(
            [key for run in runs for key in run.keys],
            *(np.concatenate([getattr(run, name) for run in runs]) for name in ("sizes", "times", "inodes")),
        )


def walk(root: str, prefix: str, start_after: str) -> Iterator[Files]:
    """
    Stream every file whose key starts with the prefix and lies after `start_after`, in runs of any length.

    Symbolic links and special files raise: following them may leave the root, and skipping them may hide
    the name by which a live object is reached.
    """
    _check_root(root)
    folder = prefix[: prefix.rfind("/") + 1]
    if _is_real_folder(root, folder):
        yield from _walk_folder(root, folder, prefix, start_after)


def children(root: str, folder: str) -> Iterator[str]:
    """Stream the names directly in a folder, without empty folders."""
    _check_root(root)
    if not _is_real_folder(root, folder):
        return
    files, folders = _read_folder(root, folder, _Wanted("", ""))
    names = [key[len(folder) :] for key in files.keys]
    yield from sorted([*names, *(name for name in folders if _holds_something(root, folder + name))])


def _check_root(root: str) -> None:
    """Refuse a root that does not exist."""
    if not os.path.isdir(root):
        raise NotFound(
            f"there is no folder {root!r}",
            why="a missing folder is not an empty one",
            fix="check the address of the store, and that the disk is mounted",
        )


def _is_real_folder(root: str, folder: str) -> bool:
    """Return True if the folder exists below the root and no part of its path is a link."""
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


def _walk_folder(root: str, folder: str, prefix: str, start_after: str) -> Iterator[Files]:
    """Stream one folder and those below it, without parts that cannot match."""
    if start_after > folder and not start_after.startswith(folder):
        return  # every key in here begins with the folder's, so all lie before start_after
    wanted = _Wanted(prefix[len(folder) :], start_after[len(folder) :] if start_after > folder else "")
    files, folders = _read_folder(root, folder, wanted)
    done = 0
    for name in folders:
        until = bisect_left(files.keys, folder + name, lo=done)
        if until > done:
            yield files.between(done, until)
        yield from _walk_folder(root, folder + name, prefix, start_after)
        done = until
    if done < len(files):
        yield files.between(done, len(files))


@dataclass(frozen=True)
class _Wanted:
    """Which names of a folder to look at: those with a prefix, after a name."""

    start: str
    after: str

    def file(self, name: str) -> bool:
        """Return True if a file is wanted."""
        return name.startswith(self.start) and name > self.after

    def folder(self, name: str) -> bool:
        """Return True if something in a folder may be wanted; its name ends with a slash, as in keys."""
        begins = name.startswith(self.start) or self.start.startswith(name)
        return begins and (name > self.after or self.after.startswith(name))


def _read_folder(root: str, folder: str, wanted: _Wanted) -> tuple[Files, list[str]]:
    """Read one folder: its files, and the names of its folders with a slash, both sorted as keys sort."""
    try:
        # The last part of the path is not followed either, in case it has become a link.
        descriptor = os.open(f"{root}/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(descriptor) as entries:
                return _sorted_entries(root, folder, entries, wanted)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        if not folder:
            raise StoreError(f"{root!r} vanished while it was listed") from None
        return _NONE, []  # emptied and removed since its parent was read
    except OSError as error:
        raise _unreadable(root, folder, error) from None


def _sorted_entries(
    root: str, folder: str, entries: Iterable[os.DirEntry[str]], wanted: _Wanted
) -> tuple[Files, list[str]]:
    """
    Look at every entry in the order of the disk, which is its fastest, and sort afterwards.

    A file that vanishes between the two looks is left out, as if it had vanished a moment earlier.
    """
    names: list[str] = []
    folders = []
    sizes, times, inodes = array("q"), array("q"), array("Q")
    hidden = "" if folder else TEMPORARY
    everything = wanted == _Wanted("", "")
    for entry in entries:
        name = entry.name
        if name == hidden:
            continue
        if not name.isascii():
            _check_name(root, folder, name)
        if entry.is_dir(follow_symlinks=False):
            if wanted.folder(name + "/"):
                folders.append(name + "/")
        elif everything or wanted.file(name):
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(found.st_mode):
                _refuse(f"{root}/{folder}{name}")
            names.append(name)
            sizes.append(found.st_size)
            times.append(found.st_mtime_ns)
            inodes.append(found.st_ino)
    order = sorted(range(len(names)), key=names.__getitem__)
    columns = (np.frombuffer(column, column.typecode)[order] for column in (sizes, times, inodes))
    return Files([folder + names[i] for i in order], *columns), sorted(folders)


def _holds_something(root: str, folder: str) -> bool:
    """Return True if a folder has at least one entry."""
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False  # emptied and removed since its parent was read
    except OSError as error:
        raise _unreadable(root, folder, error) from None


def _unreadable(root: str, folder: str, error: OSError) -> StoreError:
    """Return the error for a folder that cannot be read."""
    return StoreError(
        f"cannot list {root}/{folder}",
        why=f"{error.strerror}, and a listing with holes is worse than none",
        fix="let this user read every folder of the store",
    )


def _check_name(root: str, folder: str, name: str) -> None:
    """Refuse a name that cannot be written as a key."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{f'{root}/{folder}{name}'!r} has a name that is not UTF-8",
            why="it cannot be written as a key",
            fix="rename the file",
        ) from None


def _refuse(path: str) -> None:
    """Raise for a link or a special file."""
    raise UnsafeEntry(
        f"{path!r} is a symbolic link or a special file",
        why="following it may leave the store, and skipping it may hide a live object",
        fix="replace it by the file itself, or move it out of the store",
    )


_NONE = Files([], *(np.empty(0, kind) for kind in ("q", "q", "Q")))
