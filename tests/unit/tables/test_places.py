"""Folders that a person may have: with spaces, accents, brackets and percent signs in their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ebbtide.engine.tables.contracts import NEWLY_REFERENCED


@pytest.mark.spark
def test_tables_in_folders_of_any_name(spark: SparkSession, tmp_path: Path):
    """A table is written where it was said, and read back, whatever the name of its folder."""
    folder = tmp_path / "My données 100% [v1] {a,b} %20?*"
    NEWLY_REFERENCED.write(spark.createDataFrame([(7, "kept")], NEWLY_REFERENCED.schema), folder)
    read = NEWLY_REFERENCED.read(spark, folder).collect()

    assert [(7, "kept")] == [tuple(row) for row in read]
    assert list(folder.glob("*.parquet"))
    assert [folder] == list(tmp_path.iterdir())
