"""Incidents of Apache Hudi: its cleaner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import make_undeletable, objects_folder
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.core.errors import PartlyApplied
from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark

WRITERS = {"early": "batch 0 started", "late": "batch 0 deleted"}
"""Branches whose only object is due, and when a writer fills the partition that this leaves empty."""


@dataclass(frozen=True)
class Told:
    """A lake whose run met every kind of trouble, and was then applied again and planned anew."""

    lake: Lake
    addresses: dict[str, str]
    first: dict[str, tuple[str, str]]
    state_after_first: RunState
    second: Applied
    state_after_second: RunState
    next_plan: Manifest
    partition_was_there: dict[str, bool]


def write_where_told(lake: Lake, branch: str, address: str) -> bool:
    """Write to an address that was handed out long ago; say if its partition was there."""
    was_there = (objects_folder(lake) / address).parent.is_dir()
    lake.store.write(address, branch.encode())
    return was_there


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Plan; lose one object and lock another; apply while writers come; repair, apply again, plan anew."""
    lake = make_lake(spark, tmp_path_factory.mktemp("hudi"), token_life=timedelta(days=60))
    lake.policy(RAW_30_DAYS)
    tickets, there = {}, {}
    for branch in WRITERS:
        lake.catalog.create_branch(REPOSITORY, branch, "main")
        lake.upload("raw/only", branch=branch)
        lake.commit(branch)
        tickets[branch] = lake.catalog.get_physical_address(REPOSITORY, branch, "raw/new")
    addresses = lake.upload("raw/absent", "raw/stuck", "raw/done", "keep/1")
    lake.commit()
    lake.day(40)
    manifest = lake.plan()
    (objects_folder(lake) / addresses["raw/absent"]).unlink()
    aside = make_undeletable(lake, addresses["raw/stuck"])

    def write(step: str) -> None:
        for branch, moment in WRITERS.items():
            if step == moment:
                there[branch] = write_where_told(lake, branch, tickets[branch].address)

    with suppress(PartlyApplied):
        lake.apply(manifest, on_step=write)
    for branch, ticket in tickets.items():
        lake.catalog.link_physical_address(REPOSITORY, branch, "raw/new", ticket.token, size=len(branch))
        lake.commit(branch)
    first, failed = lake.outcomes(manifest), lake.state(manifest)
    aside.replace(objects_folder(lake) / addresses["raw/stuck"])
    second = lake.apply(manifest)
    yield Told(lake, addresses, first, failed, second, lake.state(manifest), lake.plan(), there)
    lake.close()


def test_hudi_11600_a_writer_fills_a_partition_that_was_empty(told):
    """
    The cleaner saw an empty partition, a writer filled it, and the cleaner deleted it with the new data.
    Ebbtide deletes objects by name and folders only while they are empty, so what is written meanwhile stays.
    """
    contents = {branch: told.lake.catalog.read(REPOSITORY, branch, "raw/new") for branch in WRITERS}

    assert {"early": True, "late": False} == told.partition_was_there
    assert {branch: branch.encode() for branch in WRITERS} == contents


def test_hudi_17816_a_delete_error_that_nobody_saw(told):
    """
    The cleaner swallowed the error of a delete and called itself done, and the old file came back to life.
    Ebbtide gives each object its outcome: one that failed fails the run, and applying again does the rest.
    """
    stuck = told.addresses["raw/stuck"]
    outcome, reason = told.first[stuck]

    assert ("failed", RunState.FAILED) == (outcome, told.state_after_first)
    assert "symbolic link" in reason
    assert "deleted" == told.first[told.addresses["raw/done"]][0]
    assert RunState.SUCCEEDED == told.state_after_second
    assert {"absent": 1, "deleted": 4} == {name: t.objects for name, t in told.second.outcomes.items()}
    assert stuck not in told.lake.stored()


def test_hudi_18034_a_file_that_was_gone_already(told):
    """
    A file that was gone already counted as a failure, so a million of them were planned again for ever.
    Ebbtide calls it absent, which is as good as deleted, and no later plan names it.
    """
    assert ("absent", "") == told.first[told.addresses["raw/absent"]]
    assert set() == told.lake.due(told.next_plan)
    assert b"keep/1" == told.lake.catalog.read(REPOSITORY, "main", "keep/1")
