"""
List many small files as a sweep does, on Spark's executors, and by a plain walk in one thread, and compare.

    python -m bench.listing --files 1000000 --partitions 100

The listing gives more than the walk does: which of the files are data objects, their addresses, hashes, sizes
and times, written as Parquet. Both run in turn on the same files, which lie in memory where there is room, so
only their ratio counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.engine.tables.contracts import LISTED
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.lake.repository import CatalogLayout
from ebbtide.targets.repository.uncommitted import list_objects

ROUNDS = 3
UID = "5b" * 16
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
BYTES_A_FILE = 8192


def fill(lake: Path, files: int, number: int) -> str:
    """Write one partition of files of nought to two bytes, and give its prefix."""
    prefix = f"repos/{UID}/branches/main-{'0c' * 6}/{number:018d}_{os.urandom(6).hex()}/"
    folder = lake / prefix
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    for i in range(files):
        name = os.urandom(16).hex()
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=descriptor)
        if i % 3:
            os.write(file, b"xy"[: i % 3])
        os.close(file)
    os.close(descriptor)
    return prefix


def roomy_folder(files: int) -> Path | None:
    """Choose shared memory if it has the room and the inodes; else the usual place for temporary folders."""
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    fits = room.f_bavail * room.f_frsize > BYTES_A_FILE * files and room.f_favail > 2 * files
    return SHARED_MEMORY if fits else None


def plain_walk(top: Path) -> tuple[int, int]:
    """Count files and bytes as the simplest program would: one thread, every file looked at."""
    files = size = 0
    folders = [str(top)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    files += 1
                    size += entry.stat(follow_symlinks=False).st_size
    return files, size


def listed(spark: SparkSession, lake: Path, prefixes: list[str], table: Path) -> None:
    """List as a sweep does, and write what it has found."""
    frame = spark.createDataFrame([(prefix,) for prefix in prefixes], "prefix string")
    LISTED.write(list_objects(frame, StoreSpec(str(lake)), CatalogLayout(UID), lake.as_uri()), table)


def totals(spark: SparkSession, table: Path) -> tuple[int, int]:
    """Count the files and bytes of an inventory; only data objects, which all of them are."""
    found = LISTED.read(spark, table).where("address is not null")
    return found.agg(f.count(f.lit(1)), f.sum("size")).toArrow().to_pylist()[0].values()


def main() -> None:
    """Write, list in turn, print; fail if the two do not see the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=100)
    options = parser.parse_args()
    each = options.files // options.partitions
    walks, inventories, same = [], [], True
    with (
        tempfile.TemporaryDirectory(prefix="ebbtide-tables-") as place,
        tempfile.TemporaryDirectory(prefix="ebbtide-listing-", dir=roomy_folder(options.files)) as lake_place,
    ):
        lake, table = Path(lake_place), Path(place) / "inventory"
        with ProcessPoolExecutor(2) as pool:
            prefixes = list(pool.map(partial(fill, lake, each), range(options.partitions)))
        with spark_session(SparkOptions(master="local[2]"), cache=Path(place)) as spark:
            for _ in range(ROUNDS):
                began = time.monotonic()
                listed(spark, lake, prefixes, table)
                between = time.monotonic()
                walked = plain_walk(lake)
                walks.append(time.monotonic() - between)
                inventories.append(between - began)
                same = same and walked == tuple(totals(spark, table))
                shutil.rmtree(table)
    files = each * options.partitions
    print(
        json.dumps(
            {
                "files": files,
                "partitions": options.partitions,
                "inventory_seconds": [round(seconds, 1) for seconds in inventories],
                "walk_seconds": [round(seconds, 1) for seconds in walks],
                "inventory_files_a_second": round(ROUNDS * files / sum(inventories)),
                "walk_files_a_second": round(ROUNDS * files / sum(walks)),
                "ratio": round(sum(inventories) / sum(walks), 2),
                "same": same,
            }
        )
    )
    if not same:
        sys.exit("the inventory and the walk saw different files")


if __name__ == "__main__":
    main()
