"""Looking hashes up among affected addresses; a host that does not find all of them stops."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import MetadataError
from ebbtide.targets.repository.affected import finish_folder, is_affected, make_folder, write_affected

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=30)


def _hashes(values):
    return np.array(values, dtype=np.int64)


@given(one=HASHES, other=HASHES, asked=HASHES)
def test_a_hash_is_affected_if_its_world_names_it(tmp_path_factory, one, other, asked):
    """Each hash is found exactly if it is among those of that very world."""
    folder = tmp_path_factory.mktemp("affected")
    make_folder(folder)
    noted = 0
    for part, start in enumerate((0, 1)):
        found_by_task = {2: [_hashes(other[start::2])], 1: [_hashes(one[start::2]), _hashes(one[:1])]}
        noted += write_affected(folder, part, found_by_task)
    finish_folder(folder, noted)
    wanted = _hashes(asked + one)
    found = {world: is_affected(folder, world, wanted).tolist() for world in (1, 2, 3)}

    assert {
        1: [value in set(one) for value in asked + one],
        2: [value in set(other) for value in asked + one],
        3: [False] * len(asked + one),
    } == found


THREE = np.array([5, 9, 12], dtype=np.int64)


def noted(folder, *, wanted=3):
    """Write three addresses as a task does, and record so many as the driver does."""
    make_folder(folder)
    written = write_affected(folder, 0, {0: [THREE]})
    finish_folder(folder, wanted)
    return written


def test_all_that_tasks_wrote_is_found(tmp_path):
    """Each hash is said to be affected or not, by world."""
    assert 3 == noted(tmp_path / "affected")
    assert [True, False, True] == list(is_affected(tmp_path / "affected", 0, np.array([5, 6, 12])))
    assert not is_affected(tmp_path / "affected", 1, THREE).any()


def test_tasks_that_wrote_elsewhere_stop_the_driver(tmp_path):
    """More addresses were written than the driver finds."""
    with pytest.raises(MetadataError, match=r"4 rows were written to .* the driver finds 3"):
        noted(tmp_path / "affected", wanted=4)


@pytest.mark.parametrize("lost", ["sorted", "sorted/00000.arrow", "sorted/_total"])
def test_an_executor_that_does_not_find_them_stops(tmp_path, lost):
    """On another disk nothing is there, or not all: what is affected would look unaffected."""
    noted(tmp_path / "affected")
    place = tmp_path / "affected" / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()

    with pytest.raises(MetadataError, match="affected addresses"):
        is_affected(tmp_path / "affected", 0, THREE)
