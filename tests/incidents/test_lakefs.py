"""Incidents of lakeFS: its Spark garbage collection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import commit_unchecked, entry, held_by, objects_folder
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.core.manifest import Manifest
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark

STRAYS = ("_lakefs/dummy", "_lakefs/committed/notes.parquet", "_lakefs/staged/7f01")
OTHER_SPELLINGS = {"keep/url": "raw/url", "keep/java": "raw/java"}
"""Keys of another writer, and those of the objects that they name too."""


@dataclass(frozen=True)
class Told:
    """A lake after all stories of this file and one run over them."""

    lake: Lake
    manifest: Manifest
    addresses: dict[str, str]


def name_by_full_addresses(lake: Lake, addresses: dict[str, str]) -> None:
    """Let another writer refer to two objects, by the URL of each and as Java writes that of a file."""
    folder = objects_folder(lake)
    lake.catalog.create_branch(REPOSITORY, "foreign", "main")
    java = entry(lake, "keep/java", f"file:{folder}/{addresses['raw/java']}")
    url = entry(lake, "keep/url", f"file://{folder}/{addresses['raw/url']}")
    commit_unchecked(lake, "foreign", [java, url])


def copy_shallowly_and_deeply(lake: Lake) -> None:
    """Copy one object on its branch, which shares it, and to another branch, which does not."""
    lake.catalog.create_branch(REPOSITORY, "apart", "main")
    lake.catalog.copy(REPOSITORY, "main", "raw/source", "keep/shallow")
    lake.commit()
    lake.catalog.copy(REPOSITORY, "apart", "raw/source", "keep/deep", source_ref="main")
    lake.commit("apart")


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Tell all stories on one lake, then plan and apply once."""
    lake = make_lake(spark, tmp_path_factory.mktemp("lakefs"))
    lake.policy(RAW_30_DAYS)
    addresses = lake.upload("raw/url", "raw/java", "raw/source", "raw/gone")
    lake.commit()
    name_by_full_addresses(lake, addresses)
    copy_shallowly_and_deeply(lake)
    for stray in STRAYS:
        lake.store.write(stray, b'7f01"\n}\n')
    lake.day(40)
    manifest = lake.plan()
    lake.apply(manifest)
    yield Told(lake, manifest, addresses)
    lake.close()


def test_lakefs_4658_relative_and_absolute_addresses_of_one_object(told):
    """
    Uncommitted objects were written down by relative paths and listed by absolute ones, so live ones went.
    Ebbtide compares one canonical form, so an entry holds its object however its address is spelled.
    """
    held = held_by(told.lake, told.manifest)
    holders = {new: held[told.addresses[old]] for new, old in OTHER_SPELLINGS.items()}
    contents = {new: told.lake.store.read(told.addresses[old]) for new, old in OTHER_SPELLINGS.items()}

    assert {new: f"{new} on branch foreign" for new in OTHER_SPELLINGS} == holders
    assert {new: old.encode() for new, old in OTHER_SPELLINGS.items()} == contents


def test_lakefs_10199_a_shallow_copy_outlives_its_source(told):
    """
    A shallow copy could lose its object when the source was collected, and readers got 410 Gone.
    Ebbtide keeps a shared object for its second name, and copies the data where branches would share it.
    """
    read = told.lake.catalog.read

    assert "keep/shallow on branch main" == held_by(told.lake, told.manifest)[told.addresses["raw/source"]]
    assert b"raw/source" == read(REPOSITORY, "main", "keep/shallow")
    assert b"raw/source" == read(REPOSITORY, "apart", "keep/deep")


def test_lakefs_8518_a_stray_file_among_the_metadata(told):
    """
    A file that somebody had put under _lakefs/ stopped every run with "Bad magic".
    Ebbtide reads the metadata that commits name and no other file, and leaves the stray one alone.
    """
    lake = told.lake
    strays = {stray: lake.store.read(stray) for stray in STRAYS}

    assert RunState.SUCCEEDED == lake.state(told.manifest)
    assert {told.addresses["raw/gone"]} == set(lake.outcomes(told.manifest))
    assert told.addresses["raw/gone"] not in lake.stored()
    assert dict.fromkeys(STRAYS, b'7f01"\n}\n') == strays


def test_lakefs_4713_an_empty_repository(spark, tmp_path):
    """
    A run over a repository without any object failed.
    Ebbtide plans nothing there, applies that, and the run succeeded.
    """
    lake = make_lake(spark, tmp_path)
    lake.policy(RAW_30_DAYS)
    manifest = lake.plan()
    applied = lake.apply(manifest)

    assert (0, 0) == (manifest.summary.due.objects, manifest.summary.known_objects)
    assert {} == applied.outcomes
    assert RunState.SUCCEEDED == lake.state(manifest)
