"""Row counts: a table that is not whole is never read, least of all as one without rows."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebbtide.core.errors import MetadataError
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.tables import counted
from ebbtide.engine.tables.contracts import AFFECTED, NEWLY_REFERENCED
from ebbtide.engine.tables.counted import read_rows, write_rows
from ebbtide.engine.tables.row_counts import (
    RECORD,
    adopt_counts,
    check_counts,
    counted_files,
    counted_rows,
    link_table,
    record_counts,
)

ROWS = [{"hash": number, "reason": f"key-{number}"} for number in range(7)]


def make_table(folder, *parts):
    """Write a table whose files have so many rows each."""
    for number, rows in enumerate(parts):
        file = folder / f"kind=k{number}" / "part-0.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"hash": pa.array(range(rows), pa.int64())}), file)
    record_counts(folder, sum(parts))
    return folder


def test_a_record_has_the_rows_of_every_file(tmp_path):
    """The record names every file with its rows and its size, and the rows of all."""
    table = make_table(tmp_path / "table", 3, 4)
    said = json.loads((table / RECORD).read_text())

    assert 7 == said["rows"] == counted_rows(table)
    assert {"kind=k0/part-0.parquet": 3, "kind=k1/part-0.parquet": 4} == {
        name: rows for name, (rows, *_) in said["files"].items()
    }
    assert [table / name for name in sorted(said["files"])] == counted_files(table)


def test_rows_that_were_written_elsewhere_are_missed(tmp_path):
    """Files that executors wrote to another disk stop the run, with the folder and what to do."""
    folder = tmp_path / "plan"
    folder.mkdir()
    with pytest.raises(MetadataError) as stopped:
        record_counts(folder, 220)

    assert f"220 rows were written to {folder}, and the driver finds 0 there" == stopped.value.what
    assert "do not share the state root" in stopped.value.why
    assert not (folder / RECORD).exists()
    assert 3 == stopped.value.exit_code


def lose(table):
    """Remove a file."""
    (table / "kind=k1" / "part-0.parquet").unlink()


def lose_all(table):
    """Remove all files of the table, as on another disk with the same folders."""
    for file in table.rglob("*.parquet"):
        file.unlink()


def cut(table):
    """Cut a file short."""
    file = table / "kind=k0" / "part-0.parquet"
    file.write_bytes(file.read_bytes()[:-9])


def add(table):
    """Add a file."""
    shutil.copyfile(table / "kind=k0" / "part-0.parquet", table / "kind=k0" / "part-1.parquet")


def alter_footer(table):
    """Change a byte of a footer; the file keeps its size."""
    file = table / "kind=k0" / "part-0.parquet"
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)


def forget(table):
    """Remove the record."""
    (table / RECORD).unlink()


def garble(table):
    """Damage the record."""
    (table / RECORD).write_text('{"format": 1, "rows": 7, "files": {"a": ')


def contradict(table):
    """Let the record have another sum than its files."""
    said = json.loads((table / RECORD).read_text())
    (table / RECORD).write_text(json.dumps(said | {"rows": 8}))


DAMAGES = [lose, lose_all, cut, add, alter_footer, forget, garble, contradict, shutil.rmtree]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_table_that_is_not_whole_is_not_read(tmp_path, damage):
    """A missing, short or added file, and a record that is missing or damaged, stop whoever reads."""
    table = make_table(tmp_path / "table", 3, 4)
    damage(table)

    for read in (check_counts, counted_rows, counted_files):
        with pytest.raises(MetadataError, match="'table' is not whole"):
            read(table)
    with pytest.raises(MetadataError, match="'table' is not whole"):
        link_table(table, tmp_path / "linked")


def test_a_record_of_an_earlier_version_has_no_footers(tmp_path):
    """A record without the digests of footers is read, and names and sizes are compared."""
    table = make_table(tmp_path / "table", 3, 4)
    said = json.loads((table / RECORD).read_text())
    earlier = {name: count[:2] for name, count in said["files"].items()}
    (table / RECORD).write_text(json.dumps(said | {"files": earlier}))
    link_table(table, tmp_path / "linked")

    assert 7 == counted_rows(table) == counted_rows(tmp_path / "linked")
    cut(table)
    with pytest.raises(MetadataError, match="'table' is not whole"):
        check_counts(table)


def test_a_table_without_rows_is_whole(tmp_path):
    """Nothing was written and nothing is there: that is an empty table, and it says so."""
    (tmp_path / "plan").mkdir()
    record_counts(tmp_path / "plan", 0)

    assert 0 == counted_rows(tmp_path / "plan")
    assert [] == counted_files(tmp_path / "plan")


def test_a_linked_table_has_a_record_of_its_own(tmp_path):
    """Linked, a table or a partition of it is whole, also when the other name is gone."""
    table = make_table(tmp_path / "table", 3, 4)
    link_table(table, tmp_path / "all")
    link_table(table, tmp_path / "some", below="kind=k1/")
    shutil.rmtree(table)

    assert 7 == counted_rows(tmp_path / "all")
    assert 4 == counted_rows(tmp_path / "some")


def test_earlier_tables_are_adopted_where_somebody_vouches_for_them(tmp_path):
    """A table of an earlier version gets a record; one with other rows than are vouched for does not."""
    table = make_table(tmp_path / "table", 3, 4)
    forget(table)
    with pytest.raises(MetadataError, match="8 rows were written"):
        adopt_counts(table, 8)
    adopt_counts(table, 7)

    assert 7 == counted_rows(table)


def test_adopting_does_not_mend(tmp_path):
    """A record that is there is kept, whatever became of the files."""
    table = make_table(tmp_path / "table", 3, 4)
    lose(table)
    adopt_counts(table)

    with pytest.raises(MetadataError, match="is missing, which has 4 rows"):
        counted_rows(table)


def test_rows_without_spark_are_counted_too(tmp_path):
    """What is written without Spark has a record, and is not read without it."""
    write_rows(NEWLY_REFERENCED, ROWS, tmp_path / "kept")

    assert 7 == counted_rows(tmp_path / "kept")
    assert ROWS == read_rows(NEWLY_REFERENCED, tmp_path / "kept")
    forget(tmp_path / "kept")
    with pytest.raises(MetadataError, match="not whole"):
        read_rows(NEWLY_REFERENCED, tmp_path / "kept")


def test_a_run_folder_of_a_plan_without_items_is_whole(tmp_path):
    """The folder of a run may be named before there is anything in it; its plan is not an empty table."""
    with pytest.raises(MetadataError, match="the folder is not there"):
        counted_rows(run_folder(tmp_path, 1).plan)


@pytest.mark.spark
def test_spark_counts_what_it_writes(spark, tmp_path):
    """A table that Spark wrote has a record with the rows that its tasks counted, by partition too."""
    rows = spark.range(0, 1000, 1, 3).selectExpr("cast(id % 3 as int) as world", "id as hash")
    AFFECTED.write(rows, tmp_path / "table", partition_by="world")
    AFFECTED.write(rows.where("hash < 0"), tmp_path / "none")

    assert 1000 == counted_rows(tmp_path / "table") == AFFECTED.read(spark, tmp_path / "table").count()
    assert 0 == counted_rows(tmp_path / "none") == AFFECTED.read(spark, tmp_path / "none").count()


@pytest.mark.spark
@pytest.mark.parametrize("lost", ["*.parquet", "*00001*.parquet"], ids=["all", "some"])
def test_what_vanishes_between_executors_and_driver_stops_the_run(spark, tmp_path, monkeypatch, lost):
    """Executors that commit to another disk, all of them or one, cannot make a table come out smaller."""
    record = counted.record_counts

    def elsewhere(folder, written):
        for file in folder.glob(lost):
            file.unlink()
        record(folder, written)

    monkeypatch.setattr(counted, "record_counts", elsewhere)
    rows = spark.range(0, 220, 1, 3).selectExpr("1 as world", "id as hash")
    with pytest.raises(MetadataError, match=r"220 rows were written to .* the driver finds (0|147) there"):
        AFFECTED.write(rows, tmp_path / "table")
    with pytest.raises(MetadataError, match="not finished"):
        AFFECTED.read(spark, tmp_path / "table")


@pytest.mark.spark
def test_a_reader_on_spark_compares(spark, tmp_path):
    """Spark would read a folder without files as an empty table; the contract does not let it."""
    AFFECTED.write(spark.range(9).selectExpr("1 as world", "id as hash"), tmp_path / "table")
    lose_all(tmp_path / "table")

    with pytest.raises(MetadataError, match="is missing, which has"):
        AFFECTED.read(spark, tmp_path / "table")
