"""Linking while a run deletes: whether the object is still there is asked with the gate open."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.services.lake import SettableClock

from ebbtide.core.errors import Busy, Refused
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog.catalog import Catalog


@pytest.fixture
def catalog(tmp_path):
    """Give a catalog with an empty repository, where nobody waits long for the gate."""
    made = Catalog(f"sqlite:///{tmp_path}/c.db", clock=SettableClock(), fence_wait=timedelta(0))
    made.create_repository("lake", str(tmp_path / "objects"))
    yield made
    made.close()


def test_a_link_waits_for_the_gate(catalog):
    """A run may be about to delete what it took for an upload that nobody will link any more."""
    given = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(given.address, b"k")
    catalog.close_fence("lake", "7")
    with pytest.raises(Busy):
        catalog.link_physical_address("lake", "main", "k", given.token, size=1)
    catalog.open_fence("lake", "7")
    catalog.link_physical_address("lake", "main", "k", given.token, size=1)

    assert b"k" == catalog.read("lake", "main", "k")


def test_a_link_asks_again_when_the_gate_is_open(catalog, monkeypatch):
    """What was deleted between the first look and the gate is not linked."""
    given = catalog.get_physical_address("lake", "main", "k")
    store = catalog.store("lake")
    store.write(given.address, b"k")
    refer = catalog._referring

    def after_a_run(repo):
        store.delete([DeleteRequest(given.address)])
        return refer(repo)

    monkeypatch.setattr(catalog, "_referring", after_a_run)
    with pytest.raises(Refused, match="cannot be linked"):
        catalog.link_physical_address("lake", "main", "k", given.token, size=1)

    assert [] == list(catalog.ls("lake", "main"))
