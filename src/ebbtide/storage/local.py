"""A folder as an object store: for tests, laptops, and lakes on a mounted disk."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import AddressError, NameTaken, NotFound, StoreError, UnsafeEntry
from ebbtide.core.instant import from_micros
from ebbtide.storage.address import locate
from ebbtide.storage.listing import listing_batch
from ebbtide.storage.local_walk import TEMPORARY, Files, children, walk
from ebbtide.storage.store import (
    DeleteRequest,
    DeleteResult,
    MoveRequest,
    ObjectInfo,
    RecordBatch,
    StoreSpec,
    check_folder,
    check_key,
)

_ROWS = 16_384
_ETAG = "%x-%x-%x"
"""Time in nanoseconds, size, inode."""
_TRIES = 100
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_CHECK_AGAIN_AFTER = 1.0
_MOST_CHECKED = 4096


class LocalStore:
    """
    The files below one folder; a key is the path from there.

    Half-written objects live in ``.ebbtide-tmp`` at the root, which is not part of the store. A folder that
    a delete leaves empty is removed. Option ``fsync=yes`` makes a write wait for the disk.
    """

    reports_absence = True

    def __init__(self, spec: StoreSpec) -> None:
        place = locate(spec.url)
        self.spec = StoreSpec(place.url, dict(spec.options))
        self._root = os.path.realpath("/" + place.path)
        self._temporary = f"{self._root}/{TEMPORARY}"
        self._checked: dict[str, float] = {}
        self._fsync = spec.options.get("fsync", "no") == "yes"

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[RecordBatch]:
        """Stream the files in key order. Symbolic links, special files and unreadable folders raise."""
        waiting: list[Files] = []
        rows = 0
        for run in walk(self._root, prefix, start_after):
            waiting.append(run)
            rows += len(run)
            if rows >= _ROWS:
                yield from _batches(Files.joined(waiting))
                waiting, rows = [], 0
        if waiting:
            yield from _batches(Files.joined(waiting))

    def children(self, prefix: str) -> Iterator[str]:
        """
        Stream the names in one folder; it raises for the same reasons as a listing.

        Empty folders are left out. A folder with nothing but empty folders is included: finding out takes a
        walk, and none of our deletes leaves one behind.
        """
        check_folder(prefix)
        yield from children(self._root, prefix)

    def stat(self, key: str) -> ObjectInfo:
        """Describe one file; a folder is not an object."""
        path = self._path(key)
        with _translated(key):
            return _describe(key, _regular(path, os.lstat(path)))

    def read(self, key: str) -> bytes:
        """Read one whole file."""
        path = self._path(key)
        with _translated(key):
            _regular(path, os.lstat(path))
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                return file.read()

    def write(self, key: str, data: bytes, *, unknown: bool = False) -> ObjectInfo:
        """Write to a temporary file and move it into place; an unknown key is written in place."""
        if not unknown:
            return self._put(key, lambda temporary: self._fill(temporary, data))
        path = self._path(key)
        with _translated(key, clash=_clash(key)):
            _into_place(path, lambda: self._fill(path, data))
            return _describe(key, os.lstat(path))

    def create(self, key: str, data: bytes) -> bool:
        """Write to a temporary file and link it to a name that must be free."""
        path = self._path(key)
        temporary = self._temporary_name()
        try:
            with _translated(key):
                self._fill(temporary, data)
            try:
                _into_place(path, lambda: _link_new(temporary, path))
            except FileExistsError:
                if _is_folder(path):
                    raise _clash(key) from None
                self.stat(key)
                return False
            except OSError as error:
                raise StoreError(f"{key!r} cannot be written", why=error.strerror or "") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        return True

    def _fill(self, path: str, data: bytes) -> None:
        """Write a file that must not exist yet; a partly written file is removed."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            _write_all(descriptor, data)
            if self._fsync:
                os.fsync(descriptor)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)

    def copy(self, source: str, target: str) -> None:
        """Copy the bytes of one file; never by a hard link, whose two names would share later changes."""
        path = self._path(source)
        with _translated(source):
            _regular(path, os.lstat(path))
        self._put(target, lambda temporary: shutil.copyfile(path, temporary), source)

    def delete(self, requests: Sequence[DeleteRequest]) -> Sequence[DeleteResult]:
        """Unlink each file; a missing root raises, because the disk may not be mounted."""
        if not os.path.isdir(self._root):
            raise NotFound(f"there is no folder {self._root!r}", fix="check that it is mounted")
        return [self._delete_one(request) for request in requests]

    def move(self, requests: Sequence[MoveRequest]) -> Sequence[DeleteResult]:
        """Rename each file, never over another; a missing root raises, as for a delete."""
        if not os.path.isdir(self._root):
            raise NotFound(f"there is no folder {self._root!r}", fix="check that it is mounted")
        return [self._move_one(request) for request in requests]

    def _path(self, key: str) -> str:
        """Find the file of a key, and refuse every key that could reach outside the root."""
        check_key(key)
        path = f"{self._root}/{key}"
        if "" in key.split("/") or key.split("/", 1)[0] == TEMPORARY:
            raise AddressError(f"{key!r} is not a usable key", why="a folder cannot hold such a name")
        self._check_folder(key, path[: path.rfind("/")])
        return path

    def _check_folder(self, key: str, folder: str) -> None:
        """Refuse a folder that is reached through a link; it is checked at most once per second."""
        now = time.monotonic()
        if self._checked.get(folder, 0.0) > now:
            return
        if os.path.realpath(folder) != folder:
            raise AddressError(
                f"{key!r} is not a usable key",
                why="a symbolic link on its path may lead outside the store",
                fix="replace the link by the folder itself",
            )
        if len(self._checked) > _MOST_CHECKED:
            self._checked.clear()
        self._checked[folder] = now + _CHECK_AGAIN_AFTER

    def _put(self, key: str, fill: Callable[[str], object], source: str = "") -> ObjectInfo:
        """Fill a temporary file and move it into place; nothing is left behind if that fails."""
        path = self._path(key)
        temporary = self._temporary_name()
        try:
            with _translated(source or key):
                fill(temporary)
                info = os.lstat(temporary)
            with _translated(key, clash=_clash(key)):
                _into_place(path, lambda: _appear(temporary, path))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return _describe(key, info)

    def _temporary_name(self) -> str:
        """Return an unused file name on the same disk, so that a rename is atomic."""
        if not os.access(self._temporary, os.W_OK):
            os.makedirs(self._temporary, exist_ok=True)
        return f"{self._temporary}/{os.urandom(16).hex()}"

    def _delete_one(self, request: DeleteRequest) -> DeleteResult:
        """Delete one file and return what happened."""
        key = request.key
        try:
            path = self._path(key)
            outcome, reason = self._remove(path, request.etag)
            if outcome is Outcome.DELETED:
                self._tidy(path)
        except (FileNotFoundError, NotADirectoryError):
            return DeleteResult(key, Outcome.ABSENT)
        except PermissionError as error:
            return DeleteResult(key, Outcome.DENIED, error.strerror or "")
        except (OSError, AddressError) as error:
            return DeleteResult(key, Outcome.FAILED, getattr(error, "strerror", "") or str(error))
        return DeleteResult(key, outcome, reason)

    def _move_one(self, request: MoveRequest) -> DeleteResult:
        """Rename one file and return what happened."""
        key = request.source
        try:
            source, target = self._path(key), self._path(request.target)
            outcome, reason = self._rename(source, target, request.etag)
        except PermissionError as error:
            return DeleteResult(key, Outcome.DENIED, error.strerror or "")
        except (OSError, AddressError) as error:
            return DeleteResult(key, Outcome.FAILED, getattr(error, "strerror", "") or str(error))
        return DeleteResult(key, outcome, reason)

    def _rename(self, source: str, target: str, etag: str | None) -> tuple[Outcome, str]:
        """Link the new name, then unlink the old: a kill in between leaves one file with two names."""
        found = _stat_or_none(source)
        if found is None or stat.S_ISDIR(found.st_mode):
            held = _stat_or_none(target)
            there = held is not None and stat.S_ISREG(held.st_mode)
            return (Outcome.DELETED, "it was moved before") if there else (Outcome.ABSENT, "")
        if not stat.S_ISREG(found.st_mode):
            return Outcome.FAILED, "it is a symbolic link or a special file"
        if etag is not None and _etag(found) != etag:
            return Outcome.CHANGED, "its content differs from the listing"
        try:
            _into_place(target, lambda: _link_new(source, target))
        except FileExistsError:
            if not _are_same(source, target):
                return Outcome.TAKEN, "there is another content in its place"
            os.unlink(source)
        except FileNotFoundError:
            self._tidy(target)
            raise
        self._tidy(source)
        return Outcome.DELETED, ""

    def _remove(self, path: str, etag: str | None) -> tuple[Outcome, str]:
        """Unlink a regular file; a folder is not an object, and a link is not touched."""
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return Outcome.ABSENT, ""
        if not stat.S_ISREG(found.st_mode):
            return Outcome.FAILED, "it is a symbolic link or a special file"
        if etag is not None:
            return self._remove_if_same(path, found, etag)
        os.unlink(path)
        return Outcome.DELETED, ""

    def _remove_if_same(self, path: str, found: os.stat_result, etag: str) -> tuple[Outcome, str]:
        """
        Move the file aside, look again, and only then unlink it.

        Between a check and an unlink a writer may put new content under the name. A file that was moved aside
        can be checked without that danger, and put back if its content is different.
        """
        if _etag(found) != etag:
            return Outcome.CHANGED, "its content differs from the listing"
        aside = self._temporary_name()
        os.rename(path, aside)
        if _etag(os.lstat(aside)) == etag:
            os.unlink(aside)
            return Outcome.DELETED, ""
        with contextlib.suppress(FileExistsError):  # newer content has taken the name: keep that one
            _into_place(path, lambda: os.link(aside, path))
        os.unlink(aside)
        return Outcome.CHANGED, "the content was replaced during the delete"

    def _tidy(self, path: str) -> None:
        """Remove the folders that a delete left empty; rmdir refuses if a writer came first."""
        parent = os.path.dirname(path)
        with contextlib.suppress(OSError):
            while parent != self._root:
                os.rmdir(parent)
                parent = os.path.dirname(parent)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write everything; one call may write less, and at most two gigabytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _appear(temporary: str, path: str) -> None:
    """
    Give a complete file its name, atomically.

    A new name is linked, which is several times faster than a rename between folders; an existing name, or a
    disk without links, needs the rename.
    """
    try:
        os.link(temporary, path)
    except FileNotFoundError:
        raise
    except OSError:
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def _link_new(source: str, target: str) -> None:
    """
    Rename a file to a name that must be free.

    A link fails if the name is taken, a rename does not. On a disk without links the name is checked first:
    only a run that holds the target's lock writes to such names.
    """
    try:
        os.link(source, target)
    except OSError as refused:
        if refused.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(source, target)
        return
    try:
        os.unlink(source)
    except OSError:
        # The file keeps its old name alone, as if nothing had been tried.
        with contextlib.suppress(OSError):
            os.unlink(target)
        raise


def _are_same(one: str, other: str) -> bool:
    """Return True if two names are one file, or two files with equal bytes."""
    found, held = os.lstat(one), _stat_or_none(other)
    if held is None or not stat.S_ISREG(held.st_mode) or found.st_size != held.st_size:
        return False
    return os.path.samestat(found, held) or filecmp.cmp(one, other, shallow=False)


def _stat_or_none(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _into_place(path: str, move: Callable[[], None]) -> None:
    """
    Move the file in, and create its folder if needed, again if a delete removes it in between.

    makedirs also says "exists" for a folder that vanished while it looked, so that is retried too.
    """
    for left in reversed(range(_TRIES)):
        try:
            return move()
        except FileNotFoundError:
            if not left:
                raise
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except (FileNotFoundError, FileExistsError):
            if not left:
                raise
    return None


def _etag(info: os.stat_result) -> str:
    """Return a tag that every write changes, because a rename brings another inode."""
    return _ETAG % (info.st_mtime_ns, info.st_size, info.st_ino)


def _batches(files: Files) -> Iterator[RecordBatch]:
    """Split files into batches of a listing."""
    for start in range(0, len(files), _ROWS):
        some = files.between(start, start + _ROWS)
        tags = zip(some.times.tolist(), some.sizes.tolist(), some.inodes.tolist(), strict=True)
        yield listing_batch(some.keys, some.sizes, some.times // 1000, list(map(_ETAG.__mod__, tags)))


def _describe(key: str, info: os.stat_result) -> ObjectInfo:
    """Describe a file from its stat."""
    return ObjectInfo(key, info.st_size, from_micros(info.st_mtime_ns // 1000), _etag(info))


def _regular(path: str, info: os.stat_result) -> os.stat_result:
    """Return the stat of a regular file; raise for a folder, a link or a special file."""
    if stat.S_ISDIR(info.st_mode):
        raise FileNotFoundError
    if not stat.S_ISREG(info.st_mode):
        raise UnsafeEntry(
            f"{path!r} is a symbolic link or a special file",
            why="it is not followed",
            fix="replace it by the file itself, or move it out of the store",
        )
    return info


@contextlib.contextmanager
def _translated(key: str, clash: StoreError | None = None) -> Iterator[None]:
    """Turn errors of the system into Ebbtide errors, without the paths of temporary files."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError):
        raise clash or NotFound(f"there is no object {key!r}") from None
    except OSError as error:
        raise StoreError(f"{key!r} cannot be used", why=error.strerror or "") from None


def _is_folder(path: str) -> bool:
    found = _stat_or_none(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _clash(key: str) -> NameTaken:
    """Explain why a folder cannot take a key that a bucket could."""
    return NameTaken(
        f"{key!r} cannot be written",
        why="a folder cannot hold a file and a folder of one name",
        fix="choose a key that is not the beginning of another",
    )
