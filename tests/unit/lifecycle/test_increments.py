"""Visiting ranges: which addresses a change affects, and which it does not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.lifecycle.decoded import make_files, make_range

from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.targets.repository.affected import finish_folder, is_affected, make_folder
from ebbtide.targets.repository.increments import _RangeComparer
from ebbtide.targets.repository.model import COMMITTED

OLD, NEW = ["data/1", "data/2"], ["data/1", "data/new"]
"""The same row, and one that differs, in two versions of a range."""


@pytest.mark.parametrize(
    ("old", "new", "affected"),
    [
        (("main", "main"), ("main", ""), {"data/new"}),
        (("main", "main"), ("slow", ""), {"data/1", "data/new"}),
        (("main", "main"), ("", "main"), {"data/new"}),
        (("main", "main"), ("", "slow"), {"data/1", "data/new"}),
        (("main", "main"), ("slow", "main"), {"data/1", "data/new"}),
        (("slow", "main"), ("main", ""), {"data/1", "data/2", "data/new"}),
        (("", "main"), ("main", ""), {"data/1", "data/2", "data/new"}),
        (("main", "main"), ("slow", "slow"), set()),
    ],
    ids=[
        "came, reached as one that stayed",
        "came, reached otherwise",
        "went, was reached as one that stayed",
        "went, was reached otherwise",
        "stayed, is reached otherwise",
        "came, and what has the same row is reached otherwise",
        "came, and what has the same row went",
        "nothing changed",
    ],
)
def test_what_a_change_affects(tmp_path, old, new, affected):
    """A row of a changed range affects its address unless the same row, reached the same way, has stayed."""
    files, folder = make_files(tmp_path), tmp_path / "affected"
    make_folder(folder)
    units = [
        {
            "world": 0,
            "folder": COMMITTED,
            "range_id": info.id,
            "min_key": info.min_key,
            "max_key": info.max_key,
            "count": info.count,
            "now": now,
            "before": before,
        }
        for info, (now, before) in ((make_range(files, OLD), old), (make_range(files, NEW), new))
    ]
    (counts,) = _RangeComparer({0: files}, folder, again=False)([pa.RecordBatch.from_pylist(units)])
    finish_folder(folder, counts.to_pylist()[0]["affected"])
    everything = ["data/1", "data/2", "data/new"]
    found = is_affected(folder, 0, hash_addresses(everything))

    assert affected == {everything[place] for place in np.flatnonzero(found)}
    assert len(affected) == counts.to_pylist()[0]["affected"]
