"""Opening a store from what a user writes."""

from __future__ import annotations

import pytest

from ebbtide.core.errors import AddressError, BadInput
from ebbtide.storage.store import Store, StoreSpec, open_store


def test_a_path_opens_a_folder(tmp_path):
    """A plain path is a store, and two spellings of it are the same open store."""
    store = open_store(str(tmp_path))

    assert isinstance(store, Store)
    assert store is open_store(StoreSpec(f"file://{tmp_path}//"))


def test_options_make_another_store(tmp_path):
    """The same place with other options is opened on its own."""
    assert open_store(str(tmp_path)) is not open_store(StoreSpec(str(tmp_path), {"fsync": "yes"}))


def test_a_scheme_without_a_store_says_so():
    """Google's addresses are understood, but its stores are not opened yet."""
    with pytest.raises(BadInput, match="not supported yet"):
        open_store("gs://b/x")


def test_an_unknown_scheme_is_refused():
    """What is no address opens nothing."""
    with pytest.raises(AddressError):
        open_store("ftp://b/x")
