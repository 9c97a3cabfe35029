"""
Reading for uncommitted garbage, in the order on which its safety rests.

1. `survey`, `list_branch_paths`   what is stored
2. `note_uploads`                  which uploads may still be linked
3. the catalog's snapshot          what is staged (the "GC commit") and what is committed, in one transaction

An object moves from an upload to staging to a commit, never back. Who reads in the same order cannot miss it:
what was not yet staged when 3 was read was listed while its upload was open or young, and is held for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import MetadataError
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.contracts import LISTED, UPLOADS
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.model import Repository, Snapshot
from ebbtide.targets.lake.rulebook import SweepRules
from ebbtide.targets.lake.uncommitted.listing import list_branch_paths, list_levels
from ebbtide.targets.lake.uncommitted.sweeps import Survey, survey
from ebbtide.targets.lake.witness import witnessed

_UPLOADS = pa.schema([("address", pa.string()), ("expires", pa.timestamp("us", tz="UTC"))])


@dataclass(frozen=True)
class Listed:
    """What was read before the snapshot."""

    survey: Survey
    everything: DataFrame
    """All that was listed: hashes."""
    objects: DataFrame
    """The data objects among it."""
    uploads: DataFrame
    at: datetime
    """When the listing began."""


def read_listing(
    spark: SparkSession,
    catalog: Catalog,
    repository: Repository,
    rules: SweepRules,
    folder: Path,
    began: datetime,
    on_progress: OnProgress = no_progress,
) -> Listed:
    """List what is stored, then note which uploads are open; the snapshot must be taken after this."""
    store = catalog.store(repository.name)
    spec = witnessed(store)
    found = survey(store, repository, catalog.branch_ids(repository.name), rules)
    with watch(spark, "listing", on_progress):
        LISTED.write(list_branch_paths(spark, found, spec, repository), folder / "listed")
    listed = LISTED.read(spark, folder / "listed")
    everything = listed.select("hash").unionByName(list_levels(spark, found, spec))
    uploads = note_uploads(spark, catalog, repository.name, folder / "uploads")
    return Listed(found, everything, listed.where("address is not null"), uploads, began)


def note_uploads(spark: SparkSession, catalog: Catalog, repository: str, folder: Path) -> DataFrame:
    """Write down, page by page, which addresses may still be linked and until when."""
    folder.mkdir(parents=True)
    noted = 0
    with pq.ParquetWriter(folder / "uploads.parquet", _UPLOADS) as writer:
        for page in catalog.open_uploads(repository):
            writer.write_table(page.cast(_UPLOADS))
            noted += page.num_rows
    record_counts(folder, noted)
    return UPLOADS.read(spark, folder)


def check_history(listed: Listed, snapshot: Snapshot) -> None:
    """Stop if an earlier run has seen a commit that is not there any more: then references may be lost."""
    for sweep in listed.survey.sweeps:
        if sweep.newest_commit is not None and sweep.newest_commit not in snapshot.commits:
            raise MetadataError(
                f"commit {sweep.newest_commit}, which an earlier run saw, is not in the catalog any more",
                why="a catalog that was restored from an older copy does not know what was written since,"
                " and all of that would look like garbage",
                fix="restore a newer copy of the catalog; or bring back what the namespace still has, and"
                f" accept the rest as lost, with 'ebb lake recover {snapshot.repository.name}'",
            )
