"""Incidents of Delta Lake's VACUUM, in delta-rs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import data_files, entry
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.engine.apply import Applied
from ebbtide.targets.lake.catalog.ranges import ENTRIES

pytestmark = pytest.mark.spark

ESCAPED = {
    "raw/colon": "data/dt=00%3A00/1",
    "raw/percent": "data/100%/1",
    "raw/space": "data/a%20b/1",
    "raw/twice": "data/dt=00%253A00/1",
}
DECODED = {"keep/colon": "data/dt=00:00/1", "keep/space": "data/a b/1", "keep/tilde": "data/a~b/1"}
"""What careless decoding makes of the escaped names, and other objects that are wanted."""


@dataclass(frozen=True)
class Told:
    """A lake whose place was given as a relative path, after a run from another folder."""

    lake: Lake
    applied: Applied
    due: set[str]
    uploaded: dict[str, str]
    before: set[str]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Make a lake at a relative path, with odd names in it, go elsewhere, plan and apply."""
    folder, elsewhere = tmp_path_factory.mktemp("delta"), tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lake = make_lake(spark, folder, "objects")
        lake.policy(RAW_30_DAYS)
        uploaded = lake.upload("raw/1", "keep/1")
        lake.commit()
        rows = [entry(lake, key, address) for key, address in sorted((ESCAPED | DECODED).items())]
        for row in rows:
            lake.store.write(row["address"], row["key"].encode())
        lake.catalog.import_entries(REPOSITORY, "main", [pa.Table.from_pylist(rows, ENTRIES)], "odd names")
        patch.chdir(elsewhere)
        lake.day(40)
        manifest, before = lake.plan(), data_files(lake)
        applied = lake.apply(manifest)
        yield Told(lake, applied, lake.due(manifest), uploaded, before)
        lake.close()


def test_delta_rs_4646_names_with_percent_signs(told):
    """
    Vacuum reported files in percent-escaped folders as deleted, and none of them was.
    Ebbtide takes a stored name as it is: the escaped file goes, and the one it would decode to stays.
    """
    gone = told.before - data_files(told.lake)
    contents = {key: told.lake.catalog.read(REPOSITORY, "main", key) for key in DECODED}

    assert {*ESCAPED.values(), told.uploaded["raw/1"]} == told.due == gone
    assert len(gone) == told.applied.freed.objects
    assert {key: key.encode() for key in DECODED} == contents


def test_delta_rs_663_a_table_opened_by_a_relative_path(told):
    """
    Vacuum of a table that was opened by a relative path deleted nothing and said nothing.
    Ebbtide makes the place absolute when a repository is made, so a run from any folder deletes the same.
    """
    assert told.uploaded["raw/1"] in told.before
    assert told.uploaded["raw/1"] not in data_files(told.lake)
    assert b"keep/1" == told.lake.catalog.read(REPOSITORY, "main", "keep/1")
