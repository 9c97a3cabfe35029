"""What every store promises, whatever is behind it."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import AddressError, BadInput, EbbtideError, NotFound
from ebbtide.storage import store as store_module
from ebbtide.storage.listing import LISTING_SCHEMA
from ebbtide.storage.store import LISTING_COLUMNS, DeleteRequest, Store, open_store

ODD_KEYS = [
    "plain",
    "with space/and more ",
    "é/中/\U0001f30a",
    "dt=00:00/x:y",
    "dt=00%3A00/100%",
    "a+b",
    "q?x#y&z=1;,@!$'()*~[]{}|^`\"<>",
    "_hidden/_SUCCESS",
    ".dot/.file",
    "..two",
    "/".join(["l" * 200] * 4),
]


def keys_of(store: Store, prefix: str = "", start_after: str = "") -> list[str]:
    """List the keys alone."""
    return [key for batch in store.list(prefix, start_after=start_after) for key in batch["key"].to_pylist()]


def fill(store: Store, keys: list[str]) -> None:
    """Write an object for each key, several at a time."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: store.write(key, key.encode()), keys))


def outcomes(store: Store, *requests: DeleteRequest) -> list[tuple[str, Outcome]]:
    """Delete, and give what became of each key."""
    return [(result.key, result.outcome) for result in store.delete(requests)]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_is_kept_to_the_letter(store, key):
    """What is written under a key is listed, read and described under that key, and deleted by it alone."""
    store.write("other", b"stays")
    store.write(key, b"content")
    seen = (store.read(key), store.stat(key).key, keys_of(store, key[:1]))
    deleted = store.delete([DeleteRequest(key)])[0].outcome

    assert (b"content", key, True) == (*seen[:2], key in seen[2])
    assert (Outcome.DELETED, ["other"]) == (deleted, keys_of(store))


def test_an_empty_object_is_an_object(store):
    """An object without a byte is listed with size 0 and read as nothing."""
    store.write("_empty", b"")
    sizes = [size for batch in store.list() for size in batch["size"].to_pylist()]

    assert ([0], b"") == (sizes, store.read("_empty"))


def test_a_listing_has_the_promised_columns(store):
    """Batches have the columns and types that the rest of Ebbtide is built on, and agree with stat."""
    store.write("a", b"12345")
    (row,) = pa.Table.from_batches(store.list(), LISTING_SCHEMA).to_pylist()
    info = store.stat("a")

    assert LISTING_COLUMNS == tuple(row)
    assert (5, "a", info.etag) == (row["size"], row["key"], row["etag"])
    assert timedelta(seconds=2) > abs(info.last_modified - row["last_modified"])
    assert timedelta(minutes=5) > abs(datetime.now(UTC) - info.last_modified)


def test_an_empty_store_lists_nothing(store):
    """A listing without objects ends without a row and without an error."""
    store.write("gone", b"")
    store.delete([DeleteRequest("gone")])

    assert [] == keys_of(store)


def test_keys_come_in_the_order_of_their_bytes(store):
    """The whole key counts, so a folder sorts by its name with the slash: a-b, a.b, a/b, a0b, ab."""
    keys = ["a-b", "a.b", "a/b", "a0b", "ab", "b/c.d", "b/c/d", "b/c0", "é", "中", "\U0001f30a"]
    fill(store, keys[::-1])

    assert keys == keys_of(store)


def test_a_listing_crosses_pages_without_loss(store):
    """More than a thousand objects come out once each, in order, also when it starts in the middle."""
    keys = [f"p/{i:05d}" for i in range(1007)]
    fill(store, [*keys, "q"])

    assert keys == keys_of(store, "p/")
    assert [*keys[999:], "q"] == keys_of(store, start_after="p/00998")


def test_a_prefix_is_plain_text(store):
    """A prefix need not end at a folder, and the folder of that name is no special case."""
    fill(store, ["data/a", "data/ab/c", "data/b", "dat", "other/data/a"])

    assert ["data/a", "data/ab/c"] == keys_of(store, "data/a")
    assert ["dat", "data/a", "data/ab/c", "data/b"] == keys_of(store, "dat")
    assert [] == keys_of(store, "nothing/here")


def test_a_listing_starts_after_the_given_key(store):
    """The key that is named is left out, whether it exists or not; everything behind it comes."""
    fill(store, ["a.b", "a/b", "a/c/d", "a0", "b"])

    assert ["a/b", "a/c/d", "a0", "b"] == keys_of(store, start_after="a.b")
    assert ["a/c/d", "a0", "b"] == keys_of(store, start_after="a/bb")
    assert ["a0", "b"] == keys_of(store, start_after="a/c/d")
    assert ["a/c/d"] == keys_of(store, "a/", start_after="a/b")
    assert [] == keys_of(store, start_after="c")


def test_a_listing_that_breaks_raises(rig):
    """A listing that fails half-way never looks like a short one."""
    fill(rig.store, ["a/b", "c"])
    rig.break_listing()

    with pytest.raises(EbbtideError):
        keys_of(rig.store)


def test_children_are_the_names_one_step_below(store):
    """Objects come by their name, folders once with a slash, in key order; what lies deeper does not come."""
    fill(store, ["a-b", "a/b", "a/c/d", "a/c/e/f", "a0", "ab/x", "b"])

    assert ["a-b", "a/", "a0", "ab/", "b"] == list(store.children(""))
    assert ["b", "c/"] == list(store.children("a/"))
    assert ["d", "e/"] == list(store.children("a/c/"))


@pytest.mark.parametrize("key", ODD_KEYS)
def test_children_are_named_to_the_letter(store, key):
    """Step by step along the children, every odd key is found as it was written."""
    store.write(key, b"")
    walked = ""
    while not walked or walked.endswith("/"):
        (name,) = store.children(walked)
        walked += name

    assert key == walked


def test_a_folder_that_is_not_there_has_no_children(store):
    """Neither a name that nobody wrote, nor that of an object, nor what was deleted has any."""
    fill(store, ["a", "gone/x"])
    store.delete([DeleteRequest("gone/x")])

    assert [[], [], []] == [list(store.children(folder)) for folder in ("nothing/", "a/", "gone/")]


def test_more_than_a_page_of_children(store):
    """More than a thousand names come out once each, in order, objects and folders alike."""
    names = sorted([f"{i:05d}/" if i % 2 else f"{i:05d}" for i in range(1007)])
    fill(store, [f"p/{name}x" if name.endswith("/") else f"p/{name}" for name in names])

    assert names == list(store.children("p/"))


@pytest.mark.parametrize("prefix", ["a", "a/b", "/a"])
def test_children_of_half_a_folder_are_refused(store, prefix):
    """A prefix that does not end at a folder's slash is bad input, whatever it begins."""
    store.write("a/b/c", b"")

    with pytest.raises(BadInput, match="is not a folder"):
        list(store.children(prefix))


def test_children_that_cannot_be_had_raise(rig):
    """A folder that cannot be read never looks like an empty one."""
    fill(rig.store, ["a/b", "c"])
    rig.break_listing()

    for prefix in ("", "a/"):
        with pytest.raises(EbbtideError):
            list(rig.store.children(prefix))


def test_a_missing_object_is_not_found(store):
    """Reading, describing and copying what is not there raises NotFound, also below an object or above it."""
    store.write("a/b", b"")
    for missing in ("x", "a", "a/b/c"):
        for ask in (store.read, store.stat, lambda key: store.copy(key, "y")):
            with pytest.raises(NotFound):
                ask(missing)

    assert ["a/b"] == keys_of(store)


def test_a_copy_has_the_same_bytes(store):
    """A copy reads like its source and lives on without it."""
    store.write("a b/%+?", b"content")
    store.copy("a b/%+?", "c/é")
    store.delete([DeleteRequest("a b/%+?")])

    assert (b"content", ["c/é"]) == (store.read("c/é"), keys_of(store))


def test_a_reader_sees_the_old_or_the_new(store):
    """While an object is overwritten again and again, every read gives one whole content."""
    contents = [bytes([65 + i]) * 200_000 for i in range(2)]
    store.write("x", contents[0])
    done = threading.Event()

    def overwrite() -> None:
        for i in range(15):
            store.write("x", contents[i % 2])
        done.set()

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(overwrite)
        seen = {store.read("x")}
        while not done.is_set() and not writing.done():
            seen.add(store.read("x"))
        writing.result()

    assert set() == seen - set(contents)


def test_write_describes_what_it_wrote(store):
    """The answer to a write is what stat says afterwards."""
    written = store.write("x", b"123")

    assert (written, 3) == (store.stat("x"), written.size)


def test_a_delete_answers_for_each_request_in_order(store):
    """There is one result for each request, in the order of the requests, also for one made twice."""
    fill(store, ["a", "b", "c"])
    keys = ["c", "a", "c", "b"]
    results = store.delete([DeleteRequest(key) for key in keys])

    assert (keys, []) == ([result.key for result in results], keys_of(store))


def test_deleting_what_is_absent_is_no_failure(store):
    """An absent object is absent afterwards; a store that can tell says so."""
    expected = Outcome.ABSENT if store.reports_absence else Outcome.DELETED

    assert [("nothing/here", expected)] == outcomes(store, DeleteRequest("nothing/here"))
    assert [("x", Outcome.ABSENT)] == outcomes(store, DeleteRequest("x", "some-etag"))


def test_one_denied_key_does_not_hide_the_others(rig):
    """If the store refuses one key, that one stays and is reported; its neighbours are deleted."""
    fill(rig.store, ["a", "kept", "z"])
    rig.deny("kept")

    assert [("a", Outcome.DELETED), ("kept", Outcome.DENIED), ("z", Outcome.DELETED)] == outcomes(
        rig.store, *map(DeleteRequest, ["a", "kept", "z"])
    )
    assert ["kept"] == keys_of(rig.store)


def test_a_delete_on_condition_spares_changed_content(store):
    """With an etag only that very content is deleted; another content stays and is reported as changed."""
    old = store.write("x", b"old").etag
    new = store.write("x", b"new!").etag

    assert [("x", Outcome.CHANGED)] == outcomes(store, DeleteRequest("x", old))
    assert b"new!" == store.read("x")
    assert [("x", Outcome.DELETED)] == outcomes(store, DeleteRequest("x", new))
    assert [] == keys_of(store)


def test_many_deletes_go_in_pages(store):
    """More requests than fit one page are all answered."""
    keys = [f"k/{i:04d}" for i in range(260)]
    fill(store, keys)

    assert [(key, Outcome.DELETED) for key in keys] == outcomes(store, *map(DeleteRequest, keys))
    assert [] == keys_of(store)


@pytest.mark.parametrize("key", ["", "..", "../x", "a/../../x", "a/./b", "a\0b", "\ud800"])
def test_a_key_that_could_reach_elsewhere_is_refused(store, key):
    """A key that servers or disks would resolve to another object is never sent."""
    for ask in (store.read, store.stat, lambda key: store.write(key, b""), lambda key: store.copy("x", key)):
        with pytest.raises((AddressError, NotFound)):
            ask(key)

    assert [(key, Outcome.FAILED)] == outcomes(store, DeleteRequest(key))


def test_a_store_opens_again_from_its_pickled_spec(store):
    """What an executor needs crosses as a spec, and the store that it opens sees the same objects."""
    store.write("x", b"1")
    again = open_store(pickle.loads(pickle.dumps(store.spec)))  # noqa: S301 (our own bytes)

    assert isinstance(again, Store)
    assert ["x"] == keys_of(again)


def test_no_two_processes_share_an_open_store(store, monkeypatch):
    """A process opens a store once; after a fork the child opens its own."""
    first, second = open_store(store.spec), open_store(store.spec)
    monkeypatch.setattr(store_module, "getpid", lambda: -1)

    assert (True, False) == (first is second, first is open_store(store.spec))


def test_an_unknown_key_is_written_like_any_other(store):
    """A key that was just made up holds what was written, and is described like any other."""
    written = store.write("made/up/key", b"abc", unknown=True)

    assert b"abc" == store.read("made/up/key")
    assert written == store.stat("made/up/key")
