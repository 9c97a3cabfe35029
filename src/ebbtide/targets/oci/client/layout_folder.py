"""The files of one OCI image layout: ``oci-layout``, ``index.json`` and blobs by digest."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebbtide.core.errors import MetadataError, NotFound, StoreError
from ebbtide.targets.oci.client.manifest import OCI_INDEX, descriptor, parse_object
from ebbtide.targets.oci.client.names import check_digest, is_tag, wrong_bytes
from ebbtide.targets.oci.client.registry import Descriptor

REF_NAME = "org.opencontainers.image.ref.name"
MARKER = "oci-layout"
TEMPORARY = ".ebbtide-"
_VERSION = b'{"imageLayoutVersion":"1.0.0"}'
_CHUNK = 2**20


@dataclass(frozen=True)
class IndexEntry:
    """One row of index.json: a manifest, its tag if any, and the row as it was written."""

    target: Descriptor
    tag: str
    row: dict[str, Any]


@dataclass(frozen=True)
class LayoutFolder:
    """One layout on disk. It may be damaged, so everything read from it is checked."""

    folder: Path

    def check(self) -> None:
        """Raise NotFound if this is not a layout, and MetadataError if it has another version."""
        try:
            with _translated(self.folder):
                found = parse_object((self.folder / MARKER).read_bytes(), f"{self.folder / MARKER}")
        except NotFound:
            raise NotFound(
                f"{self.folder} is not an image layout",
                why="it has no file oci-layout",
                fix="check the address",
            ) from None
        if found.get("imageLayoutVersion") != "1.0.0":
            raise self._damaged(f"its version is {found.get('imageLayoutVersion')!r} and not 1.0.0")

    def create(self) -> None:
        """Create an empty layout if there is none; the marker file comes last, so half a layout is none."""
        with _translated(self.folder):
            (self.folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            for name, body in (("index.json", _index_bytes({}, ())), (MARKER, _VERSION)):
                if not (self.folder / name).exists():
                    _write_whole(self.folder / name, [body], only_new=True)

    def entries(self) -> list[IndexEntry]:
        """Parse index.json; two manifests under one tag are an error, since either could be meant."""
        document = self._index()
        rows = document.get("manifests")
        if not isinstance(rows, list):
            raise self._damaged("index.json has no list of manifests")
        found = [self._entry(row) for row in rows]
        tagged: dict[str, str] = {}
        for entry in found:
            if entry.tag and tagged.setdefault(entry.tag, entry.target.digest) != entry.target.digest:
                raise self._damaged(f"the tag {entry.tag!r} stands for two manifests")
        return found

    def _entry(self, row: object) -> IndexEntry:
        target = descriptor(row, f"{self.folder}/index.json")
        tag = target.annotations.get(REF_NAME, "")
        if tag and not is_tag(tag):
            raise self._damaged(f"{tag!r} in index.json is not a tag")
        return IndexEntry(target, tag, dict(row) if isinstance(row, dict) else {})

    def _index(self) -> dict[str, Any]:
        self.check()
        try:
            with _translated(self.folder):
                body = (self.folder / "index.json").read_bytes()
        except NotFound:
            raise self._damaged("it has no index.json") from None
        return parse_object(body, f"{self.folder}/index.json")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other Ebbtide processes from changing the layout; other tools ignore this lock."""
        self.check()
        with (self.folder / MARKER).open("rb") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX)
            yield

    def write_entries(self, entries: Iterable[IndexEntry]) -> None:
        """Write index.json with these rows, and everything else in it unchanged; call under the lock."""
        body = _index_bytes(self._index(), entries)
        with _translated(self.folder):
            _write_whole(self.folder / "index.json", [body])

    def blob_path(self, digest: str) -> Path:
        """Return the path of a blob."""
        algorithm, _, value = check_digest(digest).partition(":")
        return self.folder / "blobs" / algorithm / value

    def read_blob(self, digest: str) -> Iterator[bytes]:
        """Stream a blob, and raise at the end if the bytes do not match its digest."""
        total = hashlib.new(digest.partition(":")[0])
        with _translated(f"blob {digest} in {self.folder}"), self.blob_path(digest).open("rb") as file:
            while part := file.read(_CHUNK):
                total.update(part)
                yield part
        found = f"{total.name}:{total.hexdigest()}"
        if found != digest:
            raise wrong_bytes(f"the blob {digest} in {self.folder}", digest, found)

    def has_blob(self, digest: str) -> bool:
        """Return True if a blob is there and complete."""
        try:
            for _ in self.read_blob(digest):
                pass
        except (NotFound, MetadataError):
            return False
        return True

    def write_blob(self, digest: str, parts: Iterable[bytes]) -> None:
        """Write a blob, which appears under its name only when it is complete and checked."""
        path, total = self.blob_path(digest), hashlib.new(digest.partition(":")[0])

        def checked() -> Iterator[bytes]:
            for part in parts:
                total.update(part)
                yield part
            found = f"{total.name}:{total.hexdigest()}"
            if found != digest:
                raise wrong_bytes(f"the blob for {self.folder}", digest, found)

        with _translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, checked())

    def _damaged(self, why: str) -> MetadataError:
        return MetadataError(
            f"the image layout {self.folder} is damaged",
            why=why,
            fix="repair it or copy the images there again",
        )


def _index_bytes(document: dict[str, Any], entries: Iterable[IndexEntry]) -> bytes:
    start = document or {"schemaVersion": 2, "mediaType": OCI_INDEX}
    return json.dumps({**start, "manifests": [entry.row for entry in entries]}, indent=1).encode()


@contextmanager
def _translated(what: object) -> Iterator[None]:
    """Raise errors of the disk as ours."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {what}") from None
    except OSError as error:
        raise StoreError(
            f"the disk failed at {what}",
            why=error.strerror or type(error).__name__,
            fix="check the disk and who may read and write there",
        ) from error


def _write_whole(path: Path, parts: Iterable[bytes], *, only_new: bool = False) -> None:
    """
    Write to a temporary file, sync, move into place, sync: a crash leaves the old or the new file.

    With `only_new` a file that appeared in the meantime is left alone.
    """
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if only_new:
            with suppress(FileExistsError):
                path.hardlink_to(temporary)
            temporary.unlink()
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
