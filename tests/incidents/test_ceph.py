"""Incidents of Ceph's object gateway: its garbage collection queue."""

from __future__ import annotations

import pytest
from tests.services.lake import REPOSITORY, Lake

from ebbtide.core.errors import ObjectGone

pytestmark = pytest.mark.spark


def read_or_gone(lake: Lake, key: str, ref: str) -> bytes | str:
    """Read an object, or name the class of the error that says it was deleted."""
    try:
        return lake.catalog.read(REPOSITORY, ref, key)
    except ObjectGone as gone:
        return type(gone).__name__


def test_ceph_38228_a_read_that_takes_longer_than_the_collection(lake):
    """
    A read that took longer than an hour put the tail of a live object on the list of garbage.
    Only a plan makes work for deletes in Ebbtide: who reads on through a run finds all that is wanted.
    """
    before = lake.stored()
    reader = lake.catalog.ls(REPOSITORY, "main")
    entries = [next(reader)]
    manifest = lake.plan()
    lake.apply(manifest)
    entries += reader
    found = {entry.key: read_or_gone(lake, entry.key, "main") for entry in entries}

    kept = {key: key.encode() for key in ("keep/1", "keep/2", "raw/5", "raw/6")}

    assert before - lake.stored() == lake.due(manifest)
    assert (
        kept | {"keep/shared": b"raw/5"} | dict.fromkeys(("raw/1", "raw/2", "raw/3", "raw/4"), "ObjectGone")
        == found
    )
