"""Whatever a plan says, a run over a repository deletes and moves no metadata."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from tests.services.planned_rows import planned_row

from ebbtide.core.manifest import RECYCLE, Manifest, Summary, Tally
from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.repository.collector import RepositoryCollector
from ebbtide.targets.repository.rules import RepositoryRules

NOW = datetime(2026, 11, 1, tzinfo=UTC)
BIN = "_lakefs/recycle/"


def plan(extra: dict[str, Any]) -> Manifest:
    """Make a manifest without rows."""
    summary = Summary(Tally("due", 0, 0), Tally("held", 0, 0), 1)
    said = ("lake:lake", "uid", "n", "lifecycle", NOW, NOW, "", "", {}, 0, "", summary)
    return Manifest(1, *said, extra=extra)


@pytest.mark.parametrize("extra", [{}, {RECYCLE: {"days": 7, "folder": "000001-0123456789ab"}}])
@pytest.mark.parametrize("address", ["_lakefs/committed/1.parquet", f"{BIN}000000-x/items/a"])
def test_a_run_denies_metadata(tmp_path, extra, address):
    """An actor denies an address below _lakefs/, with a bin and without one, and the object stays."""
    spec = StoreSpec(tmp_path.as_uri())
    store = open_store(spec)
    store.write(address, b"1")
    contents = SimpleNamespace(root=BIN, write=lambda _label: None)
    repository = SimpleNamespace(store_spec=lambda: spec, bin=lambda: contents)
    collector = RepositoryCollector(SimpleNamespace(), repository, RepositoryRules())
    actor = collector.actor(plan(extra), Attempt(DeleteOptions(), 1, 0, resumed=False))
    (done,) = actor([planned_row(address)])

    assert ["denied"] == done.column("outcome").to_pylist()
    assert b"1" == store.read(address)
