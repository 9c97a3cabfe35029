"""What a folder brings with it that buckets do not have: links, empty folders, races, a disk that is away."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import AddressError, NotFound, StoreError, UnsafeEntry
from ebbtide.storage.local import LocalStore
from ebbtide.storage.local_walk import TEMPORARY
from ebbtide.storage.store import DeleteRequest, StoreSpec


@pytest.fixture
def root(local_store: LocalStore) -> Path:
    """Give the folder of the store."""
    return Path(local_store._root)


def keys_of(store: LocalStore, prefix: str = "") -> list[str]:
    """List the keys alone."""
    return [key for batch in store.list(prefix) for key in batch["key"].to_pylist()]


def outcome(store: LocalStore, key: str, etag: str | None = None) -> Outcome:
    """Delete one key, and give what became of it."""
    return store.delete([DeleteRequest(key, etag)])[0].outcome


def test_half_written_objects_are_not_listed(local_store, root):
    """The folder for temporary files is no part of the store, at the root and only there."""
    local_store.write("x", b"")
    local_store.write(f"a/{TEMPORARY}/y", b"")
    (root / TEMPORARY / "half").write_bytes(b"")

    assert [f"a/{TEMPORARY}/y", "x"] == keys_of(local_store)
    assert [] == keys_of(local_store, f"{TEMPORARY}/")
    assert Outcome.FAILED == outcome(local_store, f"{TEMPORARY}/half")


def test_children_are_no_temporary_and_no_empty_folders(local_store, root):
    """What is no part of a listing is no child either, as far as one look into a folder tells."""
    local_store.write("x", b"")
    local_store.write(f"a/{TEMPORARY}/y", b"")
    (root / "empty").mkdir()

    assert ["a/", "x"] == list(local_store.children(""))
    assert [f"{TEMPORARY}/"] == list(local_store.children("a/"))
    assert [[], [], []] == [list(local_store.children(p)) for p in (f"{TEMPORARY}/", "empty/", "a/../")]


def test_children_stop_where_a_listing_stops(local_store, root, tmp_path):
    """Links, special files, names that are no UTF-8 and a missing root raise."""
    local_store.write("pipes/x", b"")
    os.mkfifo(root / "pipes" / "pipe")
    local_store.write("bytes/x", b"")
    with open(os.fsencode(root) + b"/bytes/\xff", "wb"):  # noqa: PTH123 (bytes)
        pass
    local_store.write("links/x", b"")
    (root / "links" / "link").symlink_to(root / "pipes")

    for folder in ("pipes/", "bytes/", "links/", "links/link/"):
        with pytest.raises(StoreError):
            list(local_store.children(folder))
    with pytest.raises(NotFound, match="no folder"):
        list(LocalStore(StoreSpec(str(tmp_path / "away"))).children(""))


def test_a_failed_write_leaves_the_old_content_and_no_rest(local_store, root, monkeypatch):
    """If the disk fails at the last step, readers still see the old content and nothing lies around."""
    local_store.write("x", b"old")
    replace = os.replace

    def failing(source, target):
        if str(target) != str(root / "x"):
            return replace(source, target)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(StoreError, match="No space left"):
            local_store.write("x", b"new")

    assert (b"old", []) == (local_store.read("x"), list((root / TEMPORARY).iterdir()))


def test_an_empty_folder_does_not_stay_behind(local_store, root):
    """A delete takes the folders that it emptied with it, up to the root, and leaves the others."""
    local_store.write("a/b/c/d", b"")
    local_store.write("a/x", b"")
    outcome(local_store, "a/b/c/d")
    first = (root / "a/b").exists()
    outcome(local_store, "a/x")

    assert (False, False, True) == (first, (root / "a").exists(), root.exists())


def test_a_writer_does_not_feel_the_tidying(local_store):
    """Writes into a folder that deletes keep emptying and removing all succeed."""
    done = threading.Event()

    def emptying() -> None:
        while not done.is_set():
            outcome(local_store, "a/b/other")
            local_store.write("a/b/other", b"")

    thread = threading.Thread(target=emptying)
    thread.start()
    try:
        for i in range(300):
            local_store.write(f"a/b/{i}", b"x")
            found = outcome(local_store, f"a/b/{i}")
            assert Outcome.DELETED == found
    finally:
        done.set()
        thread.join()


def test_a_link_stops_the_listing(local_store, root):
    """A symbolic link is neither followed nor skipped: the listing raises and names it."""
    local_store.write("a", b"")
    (root / "link").symlink_to(root / "a")

    with pytest.raises(UnsafeEntry, match="link") as stopped:
        keys_of(local_store)
    with pytest.raises(UnsafeEntry, match="not followed"):
        local_store.read("link")
    assert 3 == stopped.value.exit_code
    assert Outcome.FAILED == outcome(local_store, "link")


def test_no_key_leads_out_through_a_link(local_store, root, tmp_path):
    """A folder that is a link is refused on every way in, and what lies behind it stays untouched."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"stays")
    (root / "link").symlink_to(tmp_path / "outside")

    for ask in (local_store.read, local_store.stat, lambda key: local_store.write(key, b"")):
        with pytest.raises(AddressError, match="symbolic link"):
            ask("link/x")
    with pytest.raises(StoreError):
        keys_of(local_store, "link/")
    assert (Outcome.FAILED, b"stays") == (
        outcome(local_store, "link/x"),
        (tmp_path / "outside" / "x").read_bytes(),
    )


def test_a_special_file_stops_the_listing(local_store, root):
    """A pipe or a socket is no object, and is not skipped in silence."""
    os.mkfifo(root / "pipe")

    with pytest.raises(StoreError, match="pipe"):
        keys_of(local_store)


def test_a_name_that_is_no_utf8_stops_the_listing(local_store, root):
    """A name that cannot be written as a key raises instead of being mangled."""
    with open(os.fsencode(root) + b"/\xff", "wb"):  # noqa: PTH123 (bytes)
        pass

    with pytest.raises(StoreError, match="not UTF-8"):
        keys_of(local_store)


def test_a_missing_root_is_not_an_empty_store(tmp_path):
    """A disk that is not mounted raises, on listing and on deleting, and never reads as empty."""
    store = LocalStore(StoreSpec(str(tmp_path / "away")))

    with pytest.raises(NotFound, match="no folder"):
        keys_of(store)
    with pytest.raises(NotFound, match="no folder"):
        outcome(store, "x")


def test_a_file_and_a_folder_cannot_share_a_name(local_store):
    """A write that would need a file and a folder of one name is refused and changes nothing."""
    local_store.write("a/b", b"1")

    for key in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(StoreError, match="one name"):
            local_store.write(key, b"2")
    assert (["a/b"], b"1") == (keys_of(local_store), local_store.read("a/b"))


def test_a_folder_is_no_object_to_delete(local_store):
    """The name of a folder names no object, so there is nothing to delete."""
    local_store.write("a/b", b"")

    assert (Outcome.ABSENT, ["a/b"]) == (outcome(local_store, "a"), keys_of(local_store))


def test_content_that_changes_after_the_look_is_put_back(local_store, monkeypatch):
    """If a writer comes between the look and the delete on condition, the new content survives."""
    etag = local_store.write("a", b"old").etag
    rename = os.rename

    def overtaken(source, target):
        if str(source) == f"{local_store._root}/a":
            local_store.write("a", b"new")
        rename(source, target)

    monkeypatch.setattr(os, "rename", overtaken)

    assert (Outcome.CHANGED, b"new") == (outcome(local_store, "a", etag), local_store.read("a"))


def test_a_copy_is_no_link(local_store):
    """The bytes of a copy are its own."""
    local_store.write("a", b"1")
    local_store.copy("a", "b")

    assert local_store.stat("a").etag.split("-")[2] != local_store.stat("b").etag.split("-")[2]


def test_fsync_is_an_option(tmp_path, monkeypatch):
    """With fsync=yes a write waits for the disk before the object becomes visible."""
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    LocalStore(StoreSpec(str(tmp_path), {"fsync": "yes"})).write("a", b"")

    assert 1 == len(synced)


def test_an_unknown_key_that_exists_is_refused(local_store):
    """Writing in place never touches an object that is there: a reader might be reading it."""
    local_store.write("k", b"old")
    with pytest.raises(StoreError):
        local_store.write("k", b"new", unknown=True)

    assert b"old" == local_store.read("k")
