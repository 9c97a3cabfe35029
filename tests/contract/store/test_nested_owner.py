"""The search for lakes inside a folder or prefix: it looks everywhere, or says that it could not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.services.flaky_proxy import access_denied

from ebbtide.core.errors import ForeignNamespace, Refused, StoreError
from ebbtide.storage import namespace as module
from ebbtide.storage.namespace import MARKER, Owner, enclosing_owner, nested_owner
from ebbtide.storage.store import StoreSpec, open_store

OWNER = Owner("inner", "uid", "catalog", datetime(2026, 1, 1, tzinfo=UTC))


def test_a_lake_is_found_wherever_it_lies(store):
    """A marker deep below many other folders is found, and the namespace's own marker is not a nested one."""
    store.write(MARKER, OWNER.to_json())
    for number in range(20):
        store.write(f"a/{number:02d}/x", b"")
    none = nested_owner(store)
    store.write(f"z/y/x/{MARKER}", OWNER.to_json())

    assert (None, ("z/y/x/", OWNER)) == (none, nested_owner(store))


def test_a_folder_has_no_limit(local_store):
    """A local folder is searched whole, also beyond the thousand folders that earlier versions looked at."""
    for number in range(1_100):
        Path(local_store._root, f"a/{number:04d}/b").mkdir(parents=True)
    local_store.write(f"z/y/{MARKER}", OWNER.to_json())

    assert ("z/y/", OWNER) == nested_owner(local_store)


def test_a_prefix_with_too_many_objects_is_refused(s3_store, monkeypatch):
    """Beyond the most keys that a search reads the answer is an error that says what to do, never `none`."""
    monkeypatch.setattr(module, "MOST_KEYS", 3)
    for number in range(3):
        s3_store.write(f"a{number}", b"")
    none = nested_owner(s3_store)
    s3_store.write("a3", b"")

    with pytest.raises(Refused, match=r"more than 3 objects.*What to do: use an empty prefix"):
        nested_owner(s3_store)
    assert none is None


def test_a_search_that_fails_is_no_answer(rig):
    """A listing that breaks off stops the search."""
    rig.store.write("a/b/c", b"")
    rig.break_listing()

    with pytest.raises(StoreError, match="a lake may lie there"):
        nested_owner(rig.store)


def test_a_nested_marker_that_cannot_be_read_stops(store):
    """A damaged marker is somebody's."""
    store.write(f"a/{MARKER}", b"{")

    with pytest.raises(ForeignNamespace, match="cannot be read"):
        nested_owner(store)


def test_links_are_not_followed(local_store, tmp_path):
    """No collector follows a link, so what it leads to lies outside; a ring of links ends nowhere."""
    outside = open_store(str(tmp_path / "outside"))
    outside.write(f"lake/{MARKER}", OWNER.to_json())
    Path(local_store._root, "link").symlink_to(tmp_path / "outside")
    Path(local_store._root, "ring").symlink_to(".")

    assert nested_owner(local_store) is None


def test_a_folder_that_is_not_there_holds_no_lake(tmp_path):
    """A namespace is often a folder that is still to be made."""
    assert nested_owner(open_store(str(tmp_path / "new"))) is None


def test_markers_above_that_may_not_be_read_are_passed_over(s3_store, proxy):
    """Credentials for one prefix of a bucket need not reach the prefixes above it."""
    proxy.inject(lambda request: request.path.endswith(MARKER), access_denied)

    assert enclosing_owner(StoreSpec(f"{s3_store.spec.url}/x", s3_store.spec.options)) is None


def test_markers_above_that_could_not_be_read_stop(local_store):
    """Any other failure is no answer: what lies above may be a lake."""
    Path(local_store._root, "_lakefs").mkdir()
    Path(local_store._root, MARKER).symlink_to("nowhere")

    with pytest.raises(StoreError, match="symbolic link"):
        enclosing_owner(StoreSpec(f"{local_store.spec.url}/x", {}))
