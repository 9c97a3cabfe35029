"""Incidents of Apache Paimon: removing orphan files."""

from __future__ import annotations

import pytest
from tests.incidents.outsiders import objects_folder
from tests.services.lake import REPOSITORY

from ebbtide.core.errors import MetadataError
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark


def test_paimon_7710_metadata_that_goes_away_while_it_is_read(lake):
    """
    A snapshot expired while its files were marked, so none counted as used and all old ones were deleted.
    Ebbtide stops when metadata that a commit names is not there; nothing read is never nothing used.
    """
    before = lake.stored()

    def expire(step: str) -> None:
        if step == "run begun":
            for file in (objects_folder(lake) / "_lakefs" / "committed").iterdir():
                file.rename(lake.shop.root.parent / file.name)

    with pytest.raises(MetadataError, match="is missing") as stopped:
        lake.plan(on_step=expire)
    for file in lake.shop.root.parent.glob("*.parquet"):
        file.rename(objects_folder(lake) / "_lakefs" / "committed" / file.name)
    contents = {
        entry.key: lake.catalog.read(REPOSITORY, "main", entry.key)
        for entry in lake.catalog.ls(REPOSITORY, "main")
    }

    assert 3 == stopped.value.exit_code
    assert [RunState.ABANDONED] == [run.state for run in lake.ledger.runs()]
    assert before == lake.stored()
    assert {key: key.encode() for key in contents} | {"keep/shared": b"raw/5"} == contents
