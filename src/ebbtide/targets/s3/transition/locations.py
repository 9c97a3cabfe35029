"""
Locations that versions are moved to: a bucket, a prefix of one, or a folder.

A moved version is called `KEY/TOKEN`. The token is the version id or, for the version `null`, its time and
ETag, which distinguish it from later objects of the same key. A name that not every store accepts is replaced
by a hash: `_hashed/SHA256`. No two versions share a name, and an existing name is never overwritten.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ebbtide.core.errors import NotFound, StoreError
from ebbtide.storage.address import locate
from ebbtide.storage.s3_copy import CopyProof, Sizes, copy_on_server, copy_through_here
from ebbtide.storage.s3_objects import About, Refusal, S3Object, S3Objects, open_objects
from ebbtide.storage.store import DeleteRequest, StoreSpec, key_problem, open_store

MARK = "ebbtide-source"
"""The user metadata that identifies a copy."""


class NameTaken(StoreError):
    """Another client wrote to the name between our check and our write."""


@dataclass(frozen=True)
class SourceVersion:
    """The version to be moved as it was found, and the objects to read it from."""

    objects: S3Objects
    found: S3Object
    mark: str


@dataclass(frozen=True)
class StoredCopy:
    """What a location has under a name."""

    name: str
    size: int
    etag: str
    mark: str
    version: str | None = None


class Location(Protocol):
    """Where versions can be moved to."""

    @property
    def root(self) -> str:
        """The prefix of all names of the location."""

    def url(self, name: str) -> str:
        """Return the address of a name."""

    def holds(self, objects: S3Objects, key: str) -> bool:
        """Return True if an object of a bucket is in this location already."""

    def find(self, name: str) -> StoredCopy | None:
        """Return what is under a name; None if it is free."""

    def fill(self, name: str, original: SourceVersion) -> CopyProof:
        """Copy the original to a free name; raise NameTaken if it is not free."""

    def digest(self, held: StoredCopy) -> str:
        """Read a copy and return the SHA-256 of its bytes."""

    def remove(self, held: StoredCopy) -> None:
        """Remove exactly this copy."""


def open_location(spec: StoreSpec, sizes: Sizes) -> Location:
    """Open a location."""
    if spec.url.startswith("file:"):
        return FolderLocation(spec, sizes)
    return BucketLocation(open_objects(spec), sizes)


def about(original: SourceVersion, tags: Mapping[str, str]) -> About:
    """Return the headers, metadata and tags of the copy, with the mark of its original."""
    found = original.found
    return About(found.headers, {**found.metadata, MARK: original.mark}, tags)


@dataclass(frozen=True)
class BucketLocation:
    """A bucket, or a prefix of one."""

    objects: S3Objects
    sizes: Sizes

    @property
    def root(self) -> str:
        """The prefix."""
        return self.objects.root

    def url(self, name: str) -> str:
        """Return the address; '%', '?' and '#' of the key are escaped."""
        return f"s3://{self.objects.bucket}/{escaped(self.root + name)}"

    def holds(self, objects: S3Objects, key: str) -> bool:
        """Return True if it is the same bucket and the key has the prefix."""
        same = (objects.server, objects.bucket) == (self.objects.server, self.objects.bucket)
        return same and key.startswith(self.root)

    def find(self, name: str) -> StoredCopy | None:
        """Describe the current version of the key."""
        found = self.objects.describe(self.root + name)
        if found is None:
            return None
        return StoredCopy(name, found.size, found.etag, found.metadata.get(MARK, ""), found.version)

    def fill(self, name: str, original: SourceVersion) -> CopyProof:
        """Copy on the server if both are on the same one, else through this process."""
        source, found = original.objects, original.found
        same = source.server == self.objects.server
        whole = same and found.size <= self.sizes.one_copy
        # In one request the server copies the tags itself.
        kept = about(original, {} if whole else source.tags(found))
        copy = copy_on_server if same else copy_through_here
        try:
            return copy(source, found, self.objects, self.root + name, kept, self.sizes)
        except Refusal as no:
            if no.changed:
                raise NameTaken(f"{self.url(name)} is taken") from None
            # Servers give various errors if the bucket does not exist.
            self.objects.check_bucket()
            raise

    def digest(self, held: StoredCopy) -> str:
        """Read the object."""
        found = self.objects.describe(self.root + held.name)
        if found is None or found.etag != held.etag:
            raise StoreError(f"{self.url(held.name)} changed before it was read")
        try:
            return self.objects.digest(found, self.sizes.part_of(found.size))
        except Refusal as no:
            if no.changed:
                # The copy changed and not the original, so this must be tried again.
                raise StoreError(f"{self.url(held.name)} changed while it was read") from None
            raise

    def remove(self, held: StoredCopy) -> None:
        """Remove the version in a versioned bucket, else the object with the ETag."""
        key = self.root + held.name
        if held.version and held.version != "null":
            self.objects.remove_version(key, held.version)
            return
        result = self.objects.remove_same(key, held.etag)
        if not result.outcome.is_gone:
            raise StoreError(f"{self.url(held.name)} cannot be removed", why=result.reason)


def escaped(name: str) -> str:
    """Escape a key as part of an address."""
    return name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


HASHED = "_hashed"
ABOUT = "_about"
"""Where a folder keeps the headers, metadata and tags of objects."""
RESERVED = frozenset({HASHED, ABOUT, ".ebbtide-tmp"})

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_ETAG = re.compile(r"[A-Za-z0-9-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
_LONGEST_PART = 200
"""In bytes; file systems allow 255."""
_LONGEST_NAME = 1024
"""In bytes, the limit of S3."""


@dataclass(frozen=True)
class VersionIdentity:
    """What distinguishes a version from every other version that ever existed."""

    bucket: str
    key: str
    version: str
    etag: str
    modified: datetime

    @property
    def mark(self) -> str:
        """The text that identifies a copy of this version."""
        name = sha256(f"{self.bucket}/{self.key}".encode()).hexdigest()
        return f"{quote(self.version, safe='')} {quote(self.etag, safe='')} {_moment(self.modified)} {name}"


def target_name(identity: VersionIdentity, root: str = "") -> str:
    """Return the name of a version below the root of its location."""
    token = _token(identity)
    name = f"{identity.key}/{token}"
    if token is None or _is_awkward(name) or len((root + name).encode()) > _LONGEST_NAME:
        whole = "\0".join([identity.key, identity.version, identity.etag, _moment(identity.modified)])
        return f"{HASHED}/{sha256(whole.encode()).hexdigest()}"
    return name


def _token(identity: VersionIdentity) -> str | None:
    """Return the token of a version; None if it has none that every store accepts."""
    version, etag = identity.version, identity.etag
    if version == "null":
        return f"null-{_moment(identity.modified)}-{etag}" if _ETAG.fullmatch(etag) else None
    # A version id of the store that looks like our token must not be confused with it.
    return version if _ID.fullmatch(version) and not version.startswith("null") else None


def _is_awkward(name: str) -> bool:
    parts = name.split("/")
    return bool(
        key_problem(name)
        or "" in parts
        or parts[0] in RESERVED
        or _CONTROL.search(name)
        # Some file systems treat two encodings of a letter as one name.
        or not unicodedata.is_normalized("NFC", name)
        or max(len(part.encode()) for part in parts) > _LONGEST_PART
    )


def _moment(modified: datetime) -> str:
    return f"{modified.astimezone(UTC):%Y%m%dT%H%M%SZ}"


_TEMPORARY = ".ebbtide-tmp"
_BLOCK = 1024**2


class FolderLocation:
    """A folder, which must exist: it may be a disk that is not mounted. Metadata is kept as JSON."""

    root = ""

    def __init__(self, spec: StoreSpec, sizes: Sizes) -> None:
        place = locate(spec.url)
        self._base = Path("/" + place.path)
        self._url = place.url.removesuffix("/")
        self._store = open_store(StoreSpec(place.url))
        self._sizes = sizes

    def url(self, name: str) -> str:
        """Return the address of a file."""
        return f"{self._url}/{escaped(name)}"

    def holds(self, objects: S3Objects, key: str) -> bool:  # noqa: ARG002 (part of the protocol)
        """Return False: no object of a bucket is in a folder."""
        return False

    def find(self, name: str) -> StoredCopy | None:
        """Find the file and the mark of its original."""
        try:
            info = self._store.stat(name)
        except NotFound:
            return None
        return StoredCopy(name, info.size, info.etag or "", str(self._about(name).get("mark", "")))

    def fill(self, name: str, original: SourceVersion) -> CopyProof:
        """
        Write to a temporary file, and give it its name when all of it is on disk.

        The description comes first, because a file without it would not be known as a copy.
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

    def digest(self, held: StoredCopy) -> str:
        """Read the file."""
        self._store.stat(held.name)
        total = sha256()
        with (self._base / held.name).open("rb") as file:
            while data := file.read(_BLOCK):
                total.update(data)
        return total.hexdigest()

    def remove(self, held: StoredCopy) -> None:
        """Remove the file, and then its description."""
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

    def _describe(self, name: str, original: SourceVersion, checksum: str) -> None:
        """Write headers, metadata and tags as JSON; two attempts at one move write the same."""
        known = self._about(name).get("mark")
        if known is not None and known != original.mark:
            raise NameTaken(f"{self.url(_about_name(name))} is taken")
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
        """Link a finished file to its name, which must be free."""
        with suppress(NotFound):
            self._store.stat(name)
            raise NameTaken(f"{self.url(name)} is taken")
        path = self._base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(fresh, path)
        except FileExistsError:
            raise NameTaken(f"{self.url(name)} is taken") from None
        self._sync(name)

    def _sync(self, name: str) -> None:
        """Sync a file and the folders above it to disk."""
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
        """Return the path of a new temporary file on the same disk."""
        folder = self._base / _TEMPORARY
        folder.mkdir(exist_ok=True)
        return folder / os.urandom(16).hex()


def _about_name(name: str) -> str:
    return f"{ABOUT}/{name}.json"
