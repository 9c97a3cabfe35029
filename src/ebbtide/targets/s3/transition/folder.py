"""A folder as a location: the bytes as files, and what a bucket keeps beside them as JSON."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from ebbtide.core.errors import NotFound, StoreError
from ebbtide.storage.address import locate
from ebbtide.storage.s3_copy import CopyProof, Sizes
from ebbtide.storage.s3_objects import S3Objects
from ebbtide.storage.store import DeleteRequest, StoreSpec, open_store
from ebbtide.targets.s3.transition.naming import ABOUT
from ebbtide.targets.s3.transition.places import Held, Original, Taken, about, escaped

_TEMPORARY = ".ebbtide-tmp"
_BLOCK = 1024**2


class FolderPlace:
    """The files below a folder, which must be there: a disk that is not mounted takes nothing."""

    root = ""

    def __init__(self, spec: StoreSpec, sizes: Sizes) -> None:
        place = locate(spec.url)
        self._base = Path("/" + place.path)
        self._url = place.url.removesuffix("/")
        self._store = open_store(StoreSpec(place.url))
        self._sizes = sizes

    def url(self, name: str) -> str:
        """Give the address of a file."""
        return f"{self._url}/{escaped(name)}"

    def holds(self, objects: S3Objects, key: str) -> bool:  # noqa: ARG002 (no bucket lies in a folder)
        """Tell that no object of a bucket lies in a folder."""
        return False

    def find(self, name: str) -> Held | None:
        """Look for the file, and for whose copy it is."""
        try:
            info = self._store.stat(name)
        except NotFound:
            return None
        return Held(name, info.size, info.etag or "", str(self._about(name).get("mark", "")))

    def fill(self, name: str, original: Original) -> CopyProof:
        """
        Stream into a temporary file, and give it its name when all of it is on the disk.

        What is known about the object comes first: a file without it would be nobody's copy.
        """
        self._check_base()
        found, total = original.found, sha256()
        fresh = self._fresh()
        try:
            with fresh.open("xb") as out:
                for data in original.objects.pieces(found, self._sizes.part_of(found.size)):
                    total.update(data)
                    out.write(data)
                out.flush()
                os.fsync(out.fileno())
            self._describe(name, original, total.hexdigest())
            self._appear(fresh, name)
        finally:
            fresh.unlink(missing_ok=True)
        return CopyProof(sha256=total.hexdigest())

    def digest(self, held: Held) -> str:
        """Read the file back."""
        self._store.stat(held.name)
        total = sha256()
        with (self._base / held.name).open("rb") as file:
            while data := file.read(_BLOCK):
                total.update(data)
        return total.hexdigest()

    def remove(self, held: Held) -> None:
        """Remove the file, and then what is known about it."""
        result = self._store.delete([DeleteRequest(held.name, held.etag)])[0]
        if not result.outcome.is_gone:
            raise StoreError(f"{self.url(held.name)} cannot be removed", why=result.reason)
        self._store.delete([DeleteRequest(_about_name(held.name))])

    def _check_base(self) -> None:
        if not self._base.is_dir():
            raise NotFound(f"there is no folder {str(self._base)!r}", fix="check that it is mounted")

    def _about(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self._store.read(_about_name(name))))
        except (NotFound, ValueError):
            return {}

    def _describe(self, name: str, original: Original, checksum: str) -> None:
        """Write down what a bucket keeps beside the bytes; two attempts at one move write the same."""
        known = self._about(name).get("mark")
        if known is not None and known != original.mark:
            raise Taken(f"{self.url(_about_name(name))} is taken")
        found = original.found
        document = {
            "mark": original.mark,
            "bucket": original.objects.bucket,
            "key": found.key,
            "version": found.asked,
            "etag": found.etag,
            "size": found.size,
            "modified": found.modified,
            "sha256": checksum,
            **asdict(about(original, original.objects.tags(found))),
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
        place = _about_name(name)
        self._store.write(place, text.encode())
        self._sync(place)

    def _appear(self, fresh: Path, name: str) -> None:
        """Give a finished file its name, which must be free."""
        with suppress(NotFound):
            self._store.stat(name)
            raise Taken(f"{self.url(name)} is taken")
        path = self._base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(fresh, path)
        except FileExistsError:
            raise Taken(f"{self.url(name)} is taken") from None
        self._sync(name)

    def _sync(self, name: str) -> None:
        """Force a file and the folders above it to disk."""
        path = self._base / name
        for one in (path, *path.parents):
            descriptor = os.open(one, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if one == self._base:
                return

    def _fresh(self) -> Path:
        """Name a file that nobody else uses, on the same disk."""
        folder = self._base / _TEMPORARY
        folder.mkdir(exist_ok=True)
        return folder / os.urandom(16).hex()


def _about_name(name: str) -> str:
    return f"{ABOUT}/{name}.json"
