"""What real runs leave on disk, read without Spark: decisions, batches and outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from tests.services.lake import Lake

from ebbtide.core.decision import CollectorName
from ebbtide.core.manifest import Manifest
from ebbtide.engine.removed_items import GONE
from ebbtide.engine.run_folder import RunFolder, outcome_folders
from ebbtide.engine.run_tables import stream_decisions

_BY_CHANCE = "labels"
"""The holders that tasks happened to see first."""


def decided(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Give a plan's decisions by address, with nothing in them that may differ between two plans."""
    found = {}
    for row in stream_decisions(folder):
        row.pop(_BY_CHANCE)
        found[row["address"]] = row
    return found


def batches_of(folder: RunFolder) -> dict[int, dict[str, CollectorName]]:
    """Give the addresses of a plan's batches, and who found each."""
    found: dict[int, dict[str, CollectorName]] = {}
    for row in _rows(folder.plan):
        found.setdefault(int(row["batch"]), {})[row["address"]] = CollectorName(row["collector"])
    return found


def outcomes_of(lake: Lake, manifest: Manifest) -> dict[str, str]:
    """Give the last outcome of each item of a run, as far as its batches are finished."""
    folders = outcome_folders(lake.shop.root, lake.ledger, manifest.run_id)
    rows = sorted((row for folder in folders for row in _rows(folder)), key=lambda row: row["attempt"])
    return {row["address"]: row["outcome"] for row in rows}


def recorded_gone(lake: Lake) -> set[str]:
    """Give all addresses that the outcomes of any run call gone."""
    return {
        row["address"]
        for run in lake.ledger.runs()
        for folder in outcome_folders(lake.shop.root, lake.ledger, run.run_id)
        for row in _rows(folder)
        if row["outcome"] in GONE
    }


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    files = [file for file in sorted(folder.rglob("*.parquet")) if file.is_file()]
    for file in files:
        part = ds.partitioning(flavor="hive")
        yield from ds.dataset(file, partitioning=part, partition_base_dir=str(folder)).to_table().to_pylist()
