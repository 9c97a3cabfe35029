"""Decoded ranges: what they say of each entry, and that a damaged one is made again."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.decoded import NAMESPACE, make_files, make_range

from ebbtide.core.errors import MetadataError
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.targets.repository.model import COMMITTED, RangeInfo


@pytest.fixture
def files(tmp_path):
    """Keep decoded ranges of a namespace in a folder."""
    return make_files(tmp_path)


def test_a_spelling_that_may_name_another_object_is_doubtful(files):
    """An address is canonical in its row; it is doubtful unless it was that, or a URL that ends in it."""
    info = make_range(files, ["data/1", f"{NAMESPACE}/data/2", "data//3", f"{NAMESPACE}/dat%61/4"])
    rows = files.rows(COMMITTED, info)

    assert ["data/1", "data/2", "data/3", "data/4"] == rows.column("address").to_pylist()
    assert [False, False, True, True] == rows.column("doubtful").to_pylist()


@pytest.mark.parametrize("part", ["rows", "hashes"])
def test_a_damaged_file_is_made_again(files, part):
    """A file with one bit altered is not believed: what it held is read from the range itself."""
    info = make_range(files, ["data/1", "data/2"])
    files.ensure(COMMITTED, info, again=False)
    (file,) = files.folder.rglob(f"*.{part}")
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(bytes(data))
    rows, hashes = files.rows(COMMITTED, info), files.hashes(COMMITTED, info)

    assert ["data/1", "data/2"] == rows.column("address").to_pylist()
    assert hash_addresses(["data/1", "data/2"]).tolist() == hashes.tolist()


def test_a_range_is_decoded_once(files):
    """The second time a range is asked for, nothing is decoded, unless it is to be read again."""
    info = make_range(files, ["data/1"])
    decoded = [files.ensure(COMMITTED, info, again=again) for again in (False, False, True)]

    assert [True, False, True] == decoded


def test_a_metarange_that_counts_differently_is_not_believed(files):
    """A range whose metarange speaks of another number of entries stops the run, decoded before or not."""
    info = make_range(files, ["data/1", "data/2"])
    files.ensure(COMMITTED, info, again=False)
    wrong = RangeInfo(info.id, info.min_key, info.max_key, 3)
    with pytest.raises(MetadataError, match="has 2 entries, its metarange says 3"):
        files.rows(COMMITTED, wrong)
    with pytest.raises(MetadataError, match="has 2 entries, its metarange says 3"):
        files.hashes(COMMITTED, wrong)
