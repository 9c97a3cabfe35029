"""Looking hashes up in a file of affected addresses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.lake.lifecycle.affected import _of_world, _SortedWriter, is_affected

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=30)


@given(one=HASHES, other=HASHES, asked=HASHES)
def test_a_hash_is_affected_if_its_world_names_it(tmp_path_factory, one, other, asked):
    """Each hash is found exactly if it is among those of that very world."""
    file = tmp_path_factory.mktemp("affected") / "affected.arrow"
    pairs = sorted({(1, value) for value in one} | {(2, value) for value in other})
    columns = [pa.array([p[0] for p in pairs], pa.int32()), pa.array([p[1] for p in pairs], pa.int64())]
    _SortedWriter(file).write([pa.RecordBatch.from_arrays(columns, names=["world", "hash"])])
    wanted = np.array(asked + one, dtype=np.int64)
    found = {world: is_affected(file, world, wanted).tolist() for world in (1, 2, 3)}
    _of_world.cache_clear()

    assert {
        1: [value in set(one) for value in asked + one],
        2: [value in set(other) for value in asked + one],
        3: [False] * len(asked + one),
    } == found
