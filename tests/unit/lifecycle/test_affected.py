"""Looking hashes up among affected addresses."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.lake.metadata.affected import is_affected, make_folder, write_affected

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=30)


def _hashes(values):
    return np.array(values, dtype=np.int64)


@given(one=HASHES, other=HASHES, asked=HASHES)
def test_a_hash_is_affected_if_its_world_names_it(tmp_path_factory, one, other, asked):
    """Each hash is found exactly if it is among those of that very world."""
    folder = tmp_path_factory.mktemp("affected")
    make_folder(folder)
    for part, start in enumerate((0, 1)):
        found_by_task = {2: [_hashes(other[start::2])], 1: [_hashes(one[start::2]), _hashes(one[:1])]}
        write_affected(folder, part, found_by_task)
    wanted = _hashes(asked + one)
    found = {world: is_affected(folder, world, wanted).tolist() for world in (1, 2, 3)}

    assert {
        1: [value in set(one) for value in asked + one],
        2: [value in set(other) for value in asked + one],
        3: [False] * len(asked + one),
    } == found
