"""The manifest of an S3 Inventory report: what the report is about, and every file of it, checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ebbtide.core.errors import AddressError, MetadataError, NotFound
from ebbtide.storage.address import Place, is_full, locate
from ebbtide.storage.store import StoreSpec, open_store

_FORMATS = ("CSV", "Parquet", "ORC")
_CHUNK = 1 << 20
_THREADS = 4


@dataclass(frozen=True)
class ReportFile:
    """One data file, as the manifest names it."""

    key: str
    size: int
    md5: str


_Pair = tuple[Path, ReportFile]


@dataclass(frozen=True)
class Manifest:
    """What a manifest says."""

    source_bucket: str
    file_format: str
    columns: tuple[str, ...]
    """The names of the columns of a CSV file, which has no header; other files say it themselves."""
    files: tuple[ReportFile, ...]


def parse_manifest(text: bytes) -> Manifest:
    """Read a manifest.json; whatever is missing in it stops the run."""
    try:
        said = json.loads(text)
        files = tuple(ReportFile(one["key"], int(one["size"]), one["MD5checksum"]) for one in said["files"])
        found = Manifest(said["sourceBucket"], said["fileFormat"], _columns(said), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _doubt("the manifest of the report cannot be read", f"it has no {error}") from None
    if found.file_format not in _FORMATS:
        raise _doubt(f"the report's files are {found.file_format!r}", f"known are {', '.join(_FORMATS)}")
    if len({one.key for one in files}) != len(files):
        raise _doubt("the manifest names a file twice", "its rows would count twice")
    return found


def _columns(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the names of the columns; Parquet and ORC files say them themselves."""
    if said["fileFormat"] != "CSV":
        return ()
    return tuple(name.strip() for name in said["fileSchema"].split(","))


def open_report(source: str, scratch: Path, options: Mapping[str, str]) -> tuple[Manifest, list[Path]]:
    """
    Give a report's manifest and its files on disk, each of them compared with size and MD5 of the manifest.

    The source is a manifest.json or its folder, on disk or as s3://bucket/path; from S3 it is fetched first.
    """
    if is_full(source) and not source.startswith("file:"):
        return _fetched(locate(source), scratch, options)
    path = Path("/", locate(source).path)
    manifest_path = path / "manifest.json" if path.is_dir() else path
    if not manifest_path.is_file():
        raise NotFound(f"there is no report at {manifest_path}", fix="name its manifest.json")
    manifest = parse_manifest(manifest_path.read_bytes())
    paths = [_find(manifest_path.parent, one) for one in manifest.files]
    _on_threads(lambda pair: _check_file(*pair), list(zip(paths, manifest.files, strict=True)))
    return manifest, paths


def _fetched(place: Place, scratch: Path, options: Mapping[str, str]) -> tuple[Manifest, list[Path]]:
    """Fetch a report from the bucket that holds its manifest."""
    if place.scheme != "s3":
        raise AddressError(f"{place.url} is no place of a report", fix="use a folder or s3://bucket/path")
    store = open_store(StoreSpec(f"s3://{place.host}", dict(options)))
    name = place.path if place.path.endswith(".json") else f"{place.path}/manifest.json"
    manifest = parse_manifest(store.read(name))
    folder = scratch / "report"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:06}-{_name(one)}" for number, one in enumerate(manifest.files)]

    def fetch(pair: _Pair) -> None:
        try:
            data = store.read(pair[1].key)
        except NotFound:
            raise _doubt(f"{pair[1].key} of the report is missing", "its rows are unknown") from None
        _check(pair[1], len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        pair[0].write_bytes(data)

    _on_threads(fetch, list(zip(paths, manifest.files, strict=True)))
    return manifest, paths


def _on_threads(work: Callable[[_Pair], None], pairs: list[_Pair]) -> None:
    """Do it for all files; the first trouble is raised."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(work, pairs))


def _find(folder: Path, one: ReportFile) -> Path:
    """
    Find a file beside its manifest: at its key below any folder above, or by its name in `data`.

    Keys are those of the bucket that the report was written to; a copy on disk may begin anywhere in them.
    """
    parts = PurePosixPath(one.key).parts
    if ".." in parts or one.key.startswith("/"):
        raise _doubt(f"the manifest names {one.key!r}", "that is no key of a report's file")
    name = _name(one)
    near = [folder / name, folder / "data" / name, folder.parent / "data" / name]
    for path in [*(base / one.key for base in (folder, *folder.parents)), *near]:
        if path.is_file():
            return path
    raise _doubt(f"{one.key} of the report is missing", "its rows are unknown")


def _name(one: ReportFile) -> str:
    name = PurePosixPath(one.key).name
    if name.startswith(("_", ".")) or not name:
        raise _doubt(f"the manifest names {one.key!r}", "Spark would leave out a file of such a name")
    return name


def _check_file(path: Path, one: ReportFile) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    _check(one, path.stat().st_size, digest.hexdigest())


def _check(one: ReportFile, size: int, md5: str) -> None:
    """Compare what is there with what the manifest says."""
    if size != one.size:
        raise _doubt(f"{one.key} of the report has {size} bytes", f"the manifest says {one.size}")
    if md5 != one.md5.lower():
        raise _doubt(f"{one.key} of the report was altered", "its MD5 is not that of the manifest")


def _doubt(what: str, why: str) -> MetadataError:
    return MetadataError(what, why=why, fix="fetch the report again, or list the bucket instead")
