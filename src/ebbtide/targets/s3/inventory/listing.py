"""
The listing of a bucket on the executors: by key ranges, of which long ones are split again, and resumable.

Each finished range is a file that says which keys it covers. An interrupted listing continues with the ranges
that no file covers, if the bucket and the rules are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import MetadataError
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket, version_batch
from ebbtide.storage.s3_versions import MOST
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.inventory.ranges import Range, around, missing, rest_of, split
from ebbtide.targets.s3.inventory.tags_and_locks import VERSIONS_TABLE, Details, described, described_uploads
from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    covering_prefixes,
    matches,
    tag_matches,
    upload_prefixes,
)

_RESULT = "rows bigint, rest string"
_BLOCK = 65_536
_STEP = "listing the bucket"
_NOTE, _FILES = "listing.json", "versions"


@dataclass(frozen=True)
class ListingLimits:
    """How a listing is divided among tasks."""

    pages: int = 200
    """The pages that a task lists of one range before the rest is split again."""
    ranges_a_core: int = 4
    threads: int = 16
    """The number of requests for tags or locks that a task sends at a time."""
    rows_a_page: int = MOST


DEFAULT_LIMITS = ListingLimits()


def list_bucket(
    spark: SparkSession,
    spec: StoreSpec,
    configuration: Configuration,
    folder: Path,
    *,
    left_out: Sequence[str] = (),
    limits: ListingLimits = DEFAULT_LIMITS,
    on_progress: OnProgress = no_progress,
) -> DataFrame:
    """
    List everything that an enabled rule can match, as the table VERSIONS; raise if a page cannot be read.

    Versions below the prefixes in `left_out` are skipped if that saves time, and listed otherwise. Ranges
    that an earlier call with the same bucket and rules finished in this folder are not listed again.
    """
    bucket = open_bucket(spec, page=limits.rows_a_page)
    details = _details(bucket, configuration)
    tasks = limits.ranges_a_core * spark.sparkContext.defaultParallelism
    planned = _planned(bucket, configuration, details, folder, tasks, left_out)
    files = folder / _FILES
    done = finished_ranges(files)
    left, finished, rows = missing(planned, done), len(done), rows_of(files)
    while left:
        on_progress(_STEP, finished, finished + len(left))
        rests, listed = _list_ranges(spark, _Lister(spec, details, limits, files, tuple(left)))
        rows += listed
        finished += len(left)
        share = max(2, tasks // max(1, len(rests)))
        left = [part for rest in rests for part in _split(bucket, rest, share)]
    on_progress(_STEP, finished, finished)
    _check_whole(planned, files)
    record_counts(files, rows)
    return VERSIONS.read(spark, files)


def _check_whole(planned: Sequence[Range], files: Path) -> None:
    """Check that the files cover all ranges: executors may have written to a disk of their own."""
    if missing(planned, finished_ranges(files)):
        raise MetadataError(
            f"the listing in {files} is incomplete",
            why="files that the executors wrote are missing",
            fix="use a folder that all executors and the driver share",
        )


def _details(bucket: VersionedBucket, configuration: Configuration) -> Details:
    """Return which versions need requests for tags and locks."""
    guarded = bucket.object_lock_enabled() or bucket.replicated()
    return Details(tag_matches(configuration), matches(configuration), guarded)


def _planned(
    bucket: VersionedBucket,
    configuration: Configuration,
    details: Details,
    folder: Path,
    tasks: int,
    left_out: Sequence[str],
) -> list[Range]:
    """Return the ranges of the listing in this folder; start a new one if bucket or rules differ."""
    prefixes, uploads = covering_prefixes(configuration), upload_prefixes(configuration)
    asked = repr((bucket.spec, prefixes, uploads, details, sorted(left_out)))
    identity = hashlib.sha256(asked.encode()).hexdigest()
    note = folder / _NOTE
    if note.exists():
        begun = _read_note(note)
        if begun["identity"] == identity:
            return [Range(**part) for part in begun["ranges"]]
    _begin_anew(folder)
    wholes = [Range(prefix) for prefix in prefixes]
    if bucket.ordered:
        # Without key order each range lists all keys, so two ranges would list everything twice.
        wholes = [part for whole in wholes for part in around(whole, left_out)]
    share = max(1, tasks // max(1, len(wholes)))
    planned = [part for whole in wholes for part in _split(bucket, whole, share)]
    planned += [Range(prefix, uploads=True) for prefix in uploads]
    text = json.dumps({"identity": identity, "ranges": [asdict(part) for part in planned]})
    unfinished = note.with_suffix(".new")
    with unfinished.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(note)
    return planned


def _begin_anew(folder: Path) -> None:
    """Remove the files of another listing from this folder, and nothing else."""
    shutil.rmtree(folder / _FILES, ignore_errors=True)
    (folder / _FILES).mkdir(parents=True)


def _read_note(note: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(note.read_text())
    except ValueError:
        raise MetadataError(
            "the description of an interrupted listing is damaged",
            why="its ranges are unknown",
            fix=f"delete {note.parent} and list again",
        ) from None
    return found


def _split(bucket: VersionedBucket, whole: Range, wanted: int) -> list[Range]:
    """Split a range if the server lists keys in order."""
    return split(whole, bucket.folders, bucket.next_key, wanted) if bucket.ordered else [whole]


def _list_ranges(spark: SparkSession, lister: _Lister) -> tuple[list[Range], int]:
    """List ranges, one per task; return the rests of long ranges and the number of rows."""
    count = len(lister.ranges)
    with own_errors():
        found = spark.range(0, count, 1, count).mapInArrow(lister, _RESULT).collect()
    return [Range(**json.loads(row.rest)) for row in found if row.rest], sum(row.rows for row in found)


@dataclass(frozen=True)
class _Lister:
    """Lists ranges on an executor; a range is given by its number."""

    spec: StoreSpec
    details: Details
    limits: ListingLimits
    folder: Path
    ranges: tuple[Range, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        bucket = open_bucket(self.spec, page=self.limits.rows_a_page)
        with ThreadPoolExecutor(self.limits.threads) as threads:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    rows, rest = self._list(bucket, self.ranges[number], threads)
                    text = json.dumps(asdict(rest)) if rest else None
                    yield pa.RecordBatch.from_pydict(
                        {"rows": pa.array([rows], pa.int64()), "rest": pa.array([text], pa.string())}
                    )

    def _list(
        self, bucket: VersionedBucket, part: Range, threads: ThreadPoolExecutor
    ) -> tuple[int, Range | None]:
        """List one range into its file; return the number of rows and the rest of the range."""
        file = RangeFile(self.folder, part)
        try:
            rows, rest = self._fill(bucket, part, file, threads)
        except BaseException:
            file.abandon()
            raise
        file.finish(replace(part, up_to=rest.after) if rest else part)
        return rows, rest

    def _fill(
        self, bucket: VersionedBucket, part: Range, file: RangeFile, threads: ThreadPoolExecutor
    ) -> tuple[int, Range | None]:
        if part.uploads:
            uploads = [described_uploads(found) for found in bucket.uploads(part.prefix)]
            file.write(uploads)
            return sum(one.num_rows for one in uploads), None
        rows, held, rest = 0, [], None
        pages = bucket.version_rows(part.prefix, after=part.after, up_to=part.up_to)
        for number, page in enumerate(pages, 1):
            held.append(described(bucket, version_batch(page), self.details, threads))
            rows += len(page)
            if sum(one.num_rows for one in held) >= _BLOCK:
                file.write(held)
                held = []
            if bucket.ordered and number >= self.limits.pages:
                rest = rest_of(part, page[-1].key)
                break
        file.write(held)
        return rows, rest


_COVERS = "ebbtide.covers"


class RangeFile:
    """
    Writes the rows of one range; the file gets its name when it is complete and on disk.

    A repeated task writes the same name, so that no range exists twice.
    """

    def __init__(self, folder: Path, part: Range) -> None:
        self._path = folder / f"{part.name}.parquet"
        # Spark and `finished_ranges` ignore names that begin with a dot.
        self._unfinished = folder / f".{part.name}.{os.getpid()}"
        self._writer = pq.ParquetWriter(
            self._unfinished,
            VERSIONS_TABLE,
            compression="zstd",
            use_dictionary=["kind", "storage_class", "replication_status"],
            write_page_checksum=True,
        )

    def write(self, batches: Iterable[Any]) -> None:
        """Write rows as one row group."""
        self._writer.write_table(pa.Table.from_batches(list(batches), VERSIONS_TABLE))

    def finish(self, covers: Range) -> None:
        """Record the covered range and give the file its name."""
        self._writer.add_key_value_metadata({_COVERS: json.dumps(asdict(covers))})
        self._writer.close()
        with self._unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        self._unfinished.replace(self._path)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._writer.close()
        self._unfinished.unlink(missing_ok=True)


def finished_ranges(folder: Path) -> list[Range]:
    """Read which ranges the files cover and remove unfinished files; raise if a file does not say it."""
    for unfinished in folder.glob(".*"):
        unfinished.unlink()
    return [_covered(path) for path in sorted(folder.glob("[!.]*.parquet"))]


def rows_of(folder: Path) -> int:
    """Count the rows of the finished ranges."""
    return sum(int(pq.read_metadata(path).num_rows) for path in folder.glob("[!.]*.parquet"))


def _covered(path: Path) -> Range:
    try:
        said = (pq.read_metadata(path).metadata or {})[_COVERS.encode()]
        return Range(**json.loads(said))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        raise MetadataError(
            f"the listing's file {path.name} is damaged",
            why="the keys that it covers are unknown",
            fix="delete the folder of this listing and list again",
        ) from None
