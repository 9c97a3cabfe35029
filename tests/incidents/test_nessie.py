"""Incidents of Project Nessie: its garbage collection over Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import commit_foreign_range, entry, held_by, objects_folder, parquet_of
from tests.services.lake import FIRST_DAY, RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.core.errors import MetadataError, Refused
from ebbtide.core.manifest import Manifest
from ebbtide.state.runs import RunState
from ebbtide.targets.lake.catalog.ranges import ENTRIES

pytestmark = pytest.mark.spark

NEIGHBOUR = "neighbour"
KEYS = ("raw/1", "raw/2")


@dataclass(frozen=True)
class Told:
    """A lake after all stories of this file and one run over them."""

    lake: Lake
    manifest: Manifest
    outside: Path


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Run over a lake with a neighbour of nearly the same location and an entry outside its own."""
    folder = tmp_path_factory.mktemp("nessie")
    lake, outside = make_lake(spark, folder), folder / "elsewhere" / "file"
    lake.policy(RAW_30_DAYS)
    lake.catalog.create_repository(NEIGHBOUR, str(folder / "objects-too"))
    for key in KEYS:
        lake.catalog.upload(NEIGHBOUR, "main", key, key.encode())
    outside.parent.mkdir()
    outside.write_bytes(b"outside")
    lake.upload(*KEYS, "keep/1")
    lake.catalog.stage(REPOSITORY, "main", "raw/outside", outside.as_uri(), 7, created=FIRST_DAY)
    lake.commit()
    lake.day(40)
    manifest = lake.plan()
    lake.apply(manifest)
    yield Told(lake, manifest, outside)
    lake.close()


def test_nessie_12363_two_owners_of_one_location(told):
    """
    Two tables had one base location, and the sweep of one deleted the live files of the other.
    Ebbtide gives no two repositories places that overlap, and a run leaves the one next door alone.
    """
    catalog, own = told.lake.catalog, objects_folder(told.lake)
    places = (own, own / "inner", own.parent, f"{own.as_uri()}/", f"file://localhost{own.parent}/%6Fbjects")
    for place in places:
        with pytest.raises(Refused, match="overlaps"):
            catalog.create_repository("second-owner", str(place))
    contents = {key: catalog.read(NEIGHBOUR, "main", key) for key in KEYS}

    assert 2 == told.manifest.summary.due.objects
    assert {key: key.encode() for key in KEYS} == contents


def test_nessie_10817_a_file_outside_the_base_location(told):
    """
    A file that did not lie below its table's base location stopped the whole run.
    Ebbtide holds what lies outside the namespace, says so, and goes on with the rest.
    """
    address = told.outside.as_uri()

    assert address == held_by(told.lake, told.manifest)[address]
    assert b"outside" == told.lake.catalog.read(REPOSITORY, "main", "raw/outside")
    assert RunState.SUCCEEDED == told.lake.state(told.manifest)
    assert 1 == len(told.lake.stored())


def sstable(_lake: Lake, _statistics: str) -> bytes:
    """Write a range of a format that is no Parquet at all."""
    return b"an SSTable, say"


def newer_range(lake: Lake, statistics: str) -> bytes:
    """Write a range of a format to come, whose entries name a second file each."""
    rows = pa.Table.from_pylist([entry(lake, "keep/1", "data/1")], ENTRIES)
    return parquet_of(rows.append_column("statistics", pa.array([statistics])))


@pytest.mark.parametrize("unknown", [sstable, newer_range])
def test_nessie_9879_a_kind_of_reference_that_marking_does_not_know(spark, tmp_path, unknown):
    """
    Marking did not know that metadata refers to statistics files too, so the sweep deleted live ones.
    Ebbtide makes no plan from metadata of a kind that it does not know.
    """
    lake = make_lake(spark, tmp_path)
    lake.policy(RAW_30_DAYS)
    statistics = lake.upload("raw/statistics", "keep/2")["raw/statistics"]
    lake.commit()
    lake.catalog.create_branch(REPOSITORY, "newer", "main")
    commit_foreign_range(lake, "newer", unknown(lake, statistics), "keep/1")
    lake.day(40)
    with pytest.raises(MetadataError) as refused:
        lake.plan()

    assert 3 == refused.value.exit_code
    assert [RunState.ABANDONED] == [run.state for run in lake.ledger.runs()]
    assert statistics in lake.stored()
