"""What every store promises of a move: the content is under one key at least, and never over another."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.contract.store.test_contract import ODD_KEYS, keys_of

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.storage import s3_copy
from ebbtide.storage.local import LocalStore
from ebbtide.storage.s3 import S3Store
from ebbtide.storage.s3_copy import ObjectMover, Sizes
from ebbtide.storage.s3_objects import S3Objects
from ebbtide.storage.store import MoveRequest, Store, StoreSpec

BIN = "_lakefs/recycle/000007-0123456789ab/items/"


def moved(store: Store, *pairs: tuple[str, str]) -> list[Outcome]:
    """Move, and give what became of each."""
    results = store.move([MoveRequest(*pair) for pair in pairs])

    assert [source for source, _ in pairs] == [result.key for result in results]
    return [result.outcome for result in results]


@pytest.mark.parametrize("key", [*ODD_KEYS[:-1], "/".join(["l" * 200] * 3)])
def test_what_is_moved_there_and_back_is_as_it_was(store, key):
    """Whatever a key is, its bytes are under the new one alone, and after the way back under the old."""
    store.write(key, b"content")
    there = moved(store, (key, BIN + key))
    seen = keys_of(store), store.read(BIN + key)
    back = moved(store, (BIN + key, key))

    assert ([Outcome.DELETED], ([BIN + key], b"content")) == (there, seen)
    assert ([Outcome.DELETED], [key], b"content") == (back, keys_of(store), store.read(key))


def test_another_content_is_never_overwritten(store):
    """A target that has other bytes, also as many, is taken: both objects stay what they are."""
    store.write("a", b"old")
    store.write("b", b"new")
    store.write("c", b"longer")

    assert [Outcome.TAKEN, Outcome.TAKEN] == moved(store, ("a", "b"), ("a", "c"))
    assert [b"old", b"new", b"longer"] == [store.read(key) for key in "abc"]


def test_a_move_goes_on_where_an_earlier_one_was_killed(store):
    """With the copy made the source goes; with the source gone it is done; with neither it is absent."""
    store.write("both", b"1")
    store.write(BIN + "both", b"1")
    store.write(BIN + "done", b"2")
    pairs = [(key, BIN + key) for key in ("both", "done", "neither")]

    assert [Outcome.DELETED, Outcome.DELETED, Outcome.ABSENT] == moved(store, *pairs)
    assert [BIN + "both", BIN + "done"] == keys_of(store)
    assert [Outcome.DELETED, Outcome.DELETED, Outcome.ABSENT] == moved(store, *pairs)


def test_a_move_can_ask_for_one_content_alone(store):
    """With an etag only that content is moved; another is left where it is."""
    store.write("a", b"old")
    old = store.stat("a").etag
    store.write("a", b"newer")
    refused = store.move([MoveRequest("a", "b", old)])[0].outcome
    moved_on = store.move([MoveRequest("a", "b", store.stat("a").etag)])[0].outcome

    assert (Outcome.CHANGED, Outcome.DELETED) == (refused, moved_on)
    assert (["b"], b"newer") == (keys_of(store), store.read("b"))


def test_many_are_moved_in_their_order(store):
    """Each request has its result, in order, and one that cannot be sent fails by itself."""
    keys = [f"p/{number:02d}" for number in range(20)]
    for key in keys:
        store.write(key, key.encode())
    pairs = [(key, BIN + key) for key in keys]
    outcomes = moved(store, *pairs[:10], ("p/../up", BIN + "up"), ("p/10", "p/../up"), *pairs[10:])
    failed = [Outcome.FAILED] * 2

    assert [Outcome.DELETED] * 10 + failed + [Outcome.DELETED] * 10 == outcomes
    assert [BIN + key for key in keys] == keys_of(store)
    assert keys == [store.read(BIN + key).decode() for key in keys]


def test_an_empty_list_moves_nothing(store):
    """Nothing asked is nothing done."""
    assert [] == list(store.move([]))


def test_a_file_that_has_two_names_loses_the_old_one(local_store):
    """Killed between link and unlink, one file has both names; the next move finds it the same."""
    local_store.write("a/1", b"1")
    root = Path(local_store._root)
    (root / "b").mkdir()
    os.link(root / "a/1", root / "b/1")

    assert [Outcome.DELETED] == moved(local_store, ("a/1", "b/1"))
    assert (["b/1"], b"1") == (keys_of(local_store), local_store.read("b/1"))


@pytest.mark.parametrize("links", [True, False])
def test_a_disk_without_links_moves_too(local_store, monkeypatch, links):
    """Where links cannot be made a file is renamed, and never over another."""
    if not links:

        def refusing(*_names, **_more):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refusing)
    for key in ("a", "b", "taken"):
        # Put there as an upload does, which needs no link.
        local_store.write(key, key.encode(), unknown=True)

    assert [Outcome.DELETED, Outcome.TAKEN] == moved(local_store, ("a", "x/a"), ("b", "taken"))
    assert ["b", "taken", "x/a"] == keys_of(local_store)


def test_a_file_that_may_not_go_keeps_its_name(local_rig):
    """Where the old name cannot be taken away the file is denied, and is where it was."""
    local_rig.store.write("in/1", b"1")
    local_rig.deny("in/1")

    assert [Outcome.DENIED] == moved(local_rig.store, ("in/1", "out/one"))
    assert ["in/1"] == keys_of(local_rig.store)


def test_a_disk_that_is_not_mounted_moves_nothing(tmp_path):
    """A missing root is an error, and not a folder in which nothing is."""
    with pytest.raises(EbbtideError, match="there is no folder"):
        LocalStore(StoreSpec(str(tmp_path / "nowhere"))).move([MoveRequest("a", "b")])


def test_a_bucket_that_is_not_there_moves_nothing(s3_store):
    """An answer that there is no such object is not believed of a bucket that does not exist."""
    spec = StoreSpec("s3://no-such-bucket-at-all/x", s3_store.spec.options)

    assert [Outcome.FAILED] == moved(S3Store(spec), ("a", "b"))


def test_a_large_object_is_copied_in_parts(s3_store):
    """Above the size of one copy an object goes in parts, and is proven by its bytes: etags differ."""
    size = 11 * 1024**2
    data = os.urandom(size)
    s3_store.write("large", data)
    small = ObjectMover(s3_store._mover.objects, Sizes(one_copy=1024, server_part=5 * 1024**2))
    (there,) = small.move([MoveRequest("large", BIN + "large")])

    assert (Outcome.DELETED, [BIN + "large"]) == (there.outcome, keys_of(s3_store))
    assert data == s3_store.read(BIN + "large")


def killed_at(store: Store, owner: Any, name: str, *, before: bool) -> int:
    """Move an object in a process that is killed just before or after a step; give how it ended."""
    child = os.fork()
    if child == 0:
        plain = getattr(owner, name)

        def deadly(*arguments: Any, **options: Any) -> Any:
            result = None if before else plain(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, deadly)
        store.move([MoveRequest("a", BIN + "a")])
        os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", ["link", "unlink"])
def test_a_rename_that_is_killed_loses_and_doubles_nothing(local_store, step, before):
    """Whenever the process dies the file is there, whole, and the next move ends it."""
    local_store.write("a", b"content")
    ended = killed_at(local_store, os, step, before=before)
    found = {key: local_store.read(key) for key in keys_of(local_store)}

    assert signal.SIGKILL == ended
    assert {b"content"} == set(found.values())
    assert [Outcome.DELETED] == moved(local_store, ("a", BIN + "a"))
    assert ([BIN + "a"], b"content") == (keys_of(local_store), local_store.read(BIN + "a"))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", ["copy_to_key", "has_same_bytes"])
def test_a_copy_that_is_killed_loses_and_doubles_nothing(s3_store, step, before):
    """Killed before or after the copy, the proof and so before the delete: the next move ends it."""
    s3_store.write("a", b"content")
    ended = killed_at(S3Store(s3_store.spec), s3_copy, step, before=before)
    found = {key: s3_store.read(key) for key in keys_of(s3_store)}

    assert signal.SIGKILL == ended
    assert b"content" == found["a"]
    assert [Outcome.DELETED] == moved(s3_store, ("a", BIN + "a"))
    assert ([BIN + "a"], b"content") == (keys_of(s3_store), s3_store.read(BIN + "a"))


def test_a_delete_after_a_copy_that_is_killed_was_done(s3_store):
    """Killed when the source is gone, the next move finds that it was done."""
    s3_store.write("a", b"content")
    ended = killed_at(S3Store(s3_store.spec), S3Objects, "remove_same", before=False)

    assert (signal.SIGKILL, [BIN + "a"]) == (ended, keys_of(s3_store))
    assert [Outcome.DELETED] == moved(s3_store, ("a", BIN + "a"))
    assert b"content" == s3_store.read(BIN + "a")
