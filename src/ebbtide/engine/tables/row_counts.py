"""
Row counts: every table has a record of its Parquet files and the rows of each.

Spark commits the files of its executors by listing a folder. An executor with another disk under the same
path commits files that the driver never sees, and a folder without files reads as a table without rows. So a
writer counts the rows that it writes and compares them with what the driver finds in the folder afterwards
(`record_counts`), and a reader compares names, sizes and footers with that record (`check_counts`). A table
without a record is not read.

Pages have checksums that readers verify (Spark by an option, others by `CHECKED`). A footer has none, and a
changed footer can hide row groups, so its digest is in the record. Together they cover every byte that is
read, without reading a file twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ebbtide.core.errors import MetadataError

RECORD = "_rows.json"
"""The record's name: Spark and Arrow skip files whose names begin with an underscore."""
CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
"""The format for readers without Spark: a page that is not what was written raises OSError."""
_FORMAT = 1
_TAIL = 8
"""A Parquet file ends with the length of its footer (4 bytes) and a magic number (4 bytes)."""


@dataclass(frozen=True)
class FileCount:
    """How many rows and bytes one file of a table has, and the digest of its footer."""

    rows: int
    size: int
    footer: str | None = None
    """None in a record of an earlier version of Ebbtide."""


Counts = Mapping[str, FileCount]
"""The files of a table, by their path below its folder."""


def record_counts(folder: Path, written: int) -> None:
    """Record the files of a table just written; stop unless they have as many rows as were written."""
    counts = {name: _measure(folder, name) for name in _names(folder)}
    found = sum(count.rows for count in counts.values())
    if found != written:
        raise MetadataError(
            f"{written} rows were written to {folder}, and the driver finds {found} there",
            why="the executors do not share the state root with the driver, or files were removed meanwhile;"
            " a table that is not whole makes live data look unreferenced",
            fix="put 'root' on storage that every executor mounts at the same path, or use a local master",
        )
    _write_record(folder, counts)


def adopt_counts(folder: Path, rows: int | None = None) -> None:
    """
    Record the files of a table that an earlier version of Ebbtide finished without a record.

    The caller knows from the ledger or a manifest that it was finished. `rows` is compared if it is known.
    """
    if (folder / RECORD).exists() or not folder.is_dir():
        return
    found = sum(_measure(folder, name).rows for name in _names(folder))
    record_counts(folder, found if rows is None else rows)


def check_counts(folder: Path) -> Counts:
    """Compare the files of a table with its record, and return the record; stop if they differ."""
    counts = _read_record(folder)
    found = {name: (folder / name).stat().st_size for name in _names(folder)}
    for name, count in counts.items():
        if name not in found:
            raise _not_whole(folder, f"{name} is missing, which has {count.rows} rows")
        if found[name] != count.size:
            raise _not_whole(folder, f"{name} has {found[name]} bytes, and {count.size} were written")
        if count.footer is not None and _footer_digest(folder / name) != count.footer:
            raise _not_whole(folder, f"the footer of {name} has changed")
    if extra := sorted(found.keys() - counts.keys()):
        raise _not_whole(folder, f"{extra[0]} was added after the table was written")
    return counts


def counted_rows(folder: Path) -> int:
    """Return the number of rows of a table that is whole."""
    return sum(count.rows for count in check_counts(folder).values())


def counted_files(folder: Path) -> list[Path]:
    """List the files of a table that is whole, in order; for readers without Spark."""
    return [folder / name for name in sorted(check_counts(folder))]


def link_table(source: Path, folder: Path, *, below: str = "") -> None:
    """Link a table, or its files below one partition, into another folder; copy it if links fail."""
    wanted = {name: count for name, count in check_counts(source).items() if name.startswith(below)}
    folder.mkdir(parents=True)
    for name in wanted:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source / name, folder / name)
        except OSError:
            shutil.copyfile(source / name, folder / name)
    _write_record(folder, wanted)
    check_counts(folder)


def _names(folder: Path) -> list[str]:
    """List the Parquet files below a folder, without those that Spark skips."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        below = Path(place).relative_to(folder)
        found += [
            str(below / name)
            for name in names
            if name.endswith(".parquet") and not name.startswith((".", "_"))
        ]
    return found


def _measure(folder: Path, name: str) -> FileCount:
    """Return the rows, size and footer digest of a file."""
    file = folder / name
    try:
        return FileCount(pq.read_metadata(file).num_rows, file.stat().st_size, _footer_digest(file))
    except (OSError, pa.ArrowException) as broken:
        raise _not_whole(folder, f"{name} cannot be read ({broken})") from None


def _footer_digest(file: Path) -> str:
    """Return the hash of a Parquet footer, which has the places and statistics of row groups."""
    with file.open("rb") as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(max(0, size - _TAIL))
        length = int.from_bytes(content.read(4), "little")
        content.seek(max(0, size - _TAIL - length))
        return hashlib.sha256(content.read()).hexdigest()[:32]


def _write_record(folder: Path, counts: Counts) -> None:
    """Write the record so that readers see all of it or nothing."""
    files = {name: [one.rows, one.size, one.footer] for name, one in sorted(counts.items())}
    rows = sum(count.rows for count in counts.values())
    fresh = folder / f"{RECORD}.tmp"
    with fresh.open("w", encoding="utf-8") as out:
        json.dump({"format": _FORMAT, "rows": rows, "files": files}, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(folder / RECORD)


def _read_record(folder: Path) -> Counts:
    if not folder.is_dir():
        raise _not_whole(folder, "the folder is not there")
    try:
        said = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        counts = {
            name: FileCount(int(rows), int(size), *footer)
            for name, (rows, size, *footer) in said["files"].items()
        }
        complete = said["format"] == _FORMAT and said["rows"] == sum(one.rows for one in counts.values())
    except FileNotFoundError:
        raise _not_whole(folder, f"its record {RECORD} is missing, so it was not finished") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _not_whole(folder, f"its record {RECORD} cannot be read") from None
    if not complete:
        raise _not_whole(folder, f"its record {RECORD} contradicts itself")
    return counts


def _not_whole(folder: Path, what: str) -> MetadataError:
    return MetadataError(
        f"the table {folder.name!r} is not whole: {what}",
        why="a table that is not whole makes live data look unreferenced; a host that does not share the"
        f" state root, or another program, may have changed {folder}",
        fix="make a new plan",
    )
