"""Incidents of Apache Amoro: cleaning orphan files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import commit_unchecked, entry, objects_folder
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.core.errors import Refused
from ebbtide.targets.lake.catalog.model import PhysicalAddress

pytestmark = pytest.mark.spark

TENANT = "tenant"
"""A second repository, whose entries point into the place of the first."""
EPOCH = (0, 0)


@dataclass(frozen=True)
class Told:
    """A lake after all stories of this file and one run over them."""

    lake: Lake
    addresses: dict[str, str]
    pending: PhysicalAddress


def share_with_tenant(lake: Lake, address: str) -> None:
    """Let another repository refer to an object of the lake, if the catalog lets it."""
    lake.catalog.create_repository(TENANT, str(objects_folder(lake).with_name("tenant")))
    with suppress(Refused):
        place = f"{objects_folder(lake).as_uri()}/{address}"
        lake.catalog.stage(TENANT, "main", "table/1", place, len("raw/shared"))
        lake.catalog.commit(TENANT, "main", "a table with a copied location")


def write_with_lost_times(lake: Lake) -> tuple[str, PhysicalAddress]:
    """Write two objects whose times the store does not know, and link only one of them."""
    linked, pending = (
        lake.catalog.get_physical_address(REPOSITORY, "main", key) for key in ("raw/linked", "raw/pending")
    )
    for ticket in (linked, pending):
        lake.store.write(ticket.address, b"fresh")
        os.utime(objects_folder(lake) / ticket.address, EPOCH)
    lake.catalog.link_physical_address(REPOSITORY, "main", "raw/linked", linked.token, size=5)
    return linked.address, pending


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Tell all stories on one lake, then plan and apply once."""
    lake = make_lake(spark, tmp_path_factory.mktemp("amoro"))
    lake.policy(RAW_30_DAYS)
    addresses = lake.upload("raw/shared", "keep/1")
    lake.commit()
    share_with_tenant(lake, addresses["raw/shared"])
    lake.catalog.create_branch(REPOSITORY, "foreign", "main")
    lake.store.write("data/by-url", b"garbage")
    full = f"{objects_folder(lake).as_uri()}/data/by-url"
    commit_unchecked(lake, "foreign", [entry(lake, "raw/by-url", full)])
    lake.day(40)
    addresses["raw/linked"], pending = write_with_lost_times(lake)
    lake.apply(lake.plan())
    yield Told(lake, addresses, pending)
    lake.close()


def test_amoro_4292_a_location_that_two_tables_share(told):
    """
    Cleaning one table deleted the files of others, whose location had been copied with their definition.
    Ebbtide deletes no object that an entry of another repository of its catalog still names.
    """
    catalog = told.lake.catalog
    contents = {e.key: catalog.read(TENANT, "main", e.key) for e in catalog.ls(TENANT, "main")}

    assert dict.fromkeys(contents, b"raw/shared") == contents


def test_amoro_2925_a_store_that_does_not_know_how_old_a_file_is(told):
    """
    The store gave no access time, so files counted as old, and new ones went before they were committed.
    Ebbtide counts from when an entry was written, and lets an object alone that nothing refers to yet.
    """
    catalog, pending = told.lake.catalog, told.pending
    catalog.link_physical_address(REPOSITORY, "main", "raw/pending", pending.token, size=5)
    contents = {key: catalog.read(REPOSITORY, "main", key) for key in ("raw/linked", "raw/pending")}

    assert dict.fromkeys(contents, b"fresh") == contents


def test_amoro_1981_full_addresses_hide_garbage(told):
    """
    Addresses with the scheme s3a matched nothing in the listing, so garbage was never deleted.
    Ebbtide finds the object behind a full address inside the namespace, and deletes that one.
    """
    assert "data/by-url" not in told.lake.stored()
    assert b"keep/1" == told.lake.catalog.read(REPOSITORY, "main", "keep/1")
