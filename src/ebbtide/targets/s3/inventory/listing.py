"""
List a bucket on the executors: range by range, long ones split again, and resumable.

Each range that is done is a file. A listing that was interrupted goes on with what no file covers; it is the
same listing only if bucket and rules are the same.
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
from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import MetadataError
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket, version_batch
from ebbtide.storage.s3_versions import MOST
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.inventory.details import Details, described, described_uploads
from ebbtide.targets.s3.inventory.files import RangeFile, finished_ranges, rows_of
from ebbtide.targets.s3.inventory.ranges import Range, around, missing, rest_of, split
from ebbtide.targets.s3.inventory.scope import covering_prefixes, matches, tag_matches, upload_prefixes
from ebbtide.targets.s3.rules.configuration import Configuration

_RESULT = "rows bigint, rest string"
_BLOCK = 65_536
_STEP = "listing the bucket"
_NOTE, _FILES = "listing.json", "versions"


@dataclass(frozen=True)
class Limits:
    """How a listing is dealt out."""

    pages: int = 200
    """So many pages a task lists of one range before it hands the rest back to be split."""
    ranges_a_core: int = 4
    threads: int = 16
    """So many tags or locks a task asks for at a time."""
    rows_a_page: int = MOST


DEFAULT_LIMITS = Limits()


def list_bucket(
    spark: SparkSession,
    spec: StoreSpec,
    configuration: Configuration,
    folder: Path,
    *,
    left_out: Sequence[str] = (),
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress = no_progress,
) -> DataFrame:
    """
    List all that an enabled rule can match, as the contract VERSIONS; a page that cannot be had raises.

    Below the prefixes that are left out versions are passed over where that saves time, and listed elsewhere.
    What an earlier call with the same bucket and rules finished in this folder is not listed again.
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
    """Make sure that the files are here and cover all: executors may have written to a disk of their own."""
    if missing(planned, finished_ranges(files)):
        raise MetadataError(
            f"the listing in {files} is not whole",
            why="files that the executors wrote are not there",
            fix="use a folder that all executors and the driver share",
        )


def _details(bucket: VersionedBucket, configuration: Configuration) -> Details:
    """Ask the bucket once what its versions must be asked."""
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
    """Give the ranges that this folder's listing was begun with, or begin one."""
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
        # Where there is no order each range is the whole listing, and two of them would be two.
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
    """Remove what another listing left in this folder, and nothing else that may lie there."""
    shutil.rmtree(folder / _FILES, ignore_errors=True)
    (folder / _FILES).mkdir(parents=True)


def _read_note(note: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(note.read_text())
    except ValueError:
        raise MetadataError(
            "the note of how a listing was begun is damaged",
            why="nobody knows which ranges it is made of",
            fix=f"delete {note.parent} and list again",
        ) from None
    return found


def _split(bucket: VersionedBucket, whole: Range, wanted: int) -> list[Range]:
    """Split a range, if the server keeps an order by which that means anything."""
    return split(whole, bucket.folders, bucket.next_key, wanted) if bucket.ordered else [whole]


def _list_ranges(spark: SparkSession, lister: _Lister) -> tuple[list[Range], int]:
    """List ranges, one a task; give what was left of those that were too long, and how many rows were had."""
    count = len(lister.ranges)
    with own_errors():
        found = spark.range(0, count, 1, count).mapInArrow(lister, _RESULT).collect()
    return [Range(**json.loads(row.rest)) for row in found if row.rest], sum(row.rows for row in found)


@dataclass(frozen=True)
class _Lister:
    """Lists ranges on an executor; a range comes as its number."""

    spec: StoreSpec
    details: Details
    limits: Limits
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
        """List one range into its file; give its rows and what is left of it."""
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
