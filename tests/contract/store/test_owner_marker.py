"""The owner marker, on every kind of store: one owner a namespace, whoever comes at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from ebbtide.core.errors import AddressError, ForeignNamespace
from ebbtide.storage.namespace import (
    MARKER,
    Owner,
    claim,
    enclosing_owner,
    read_owner,
    remove_owner,
    replace_owner,
)
from ebbtide.storage.store import StoreSpec, open_store


def owner(number: int) -> Owner:
    """Make an owner."""
    return Owner(f"r{number}", f"uid-{number}", "catalog", datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC))


def test_an_object_is_created_once(store):
    """Of many that create one key at once exactly one succeeds, and its content stays."""
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: store.create("a/b", f"{number}".encode()), range(8)))
    again = store.create("a/b", b"later")

    assert (1, False) == (sum(made), again)
    assert f"{made.index(True)}".encode() == store.read("a/b")


def test_a_key_that_must_not_be_sent_is_not_created(store):
    """A key that could reach another object is refused, as by every other operation."""
    with pytest.raises(AddressError):
        store.create("../a", b"")


def test_the_first_owner_stays(store):
    """Whoever claims a namespace that has an owner is told who that is."""
    none = read_owner(store)
    found = [claim(store, owner(number)) for number in (1, 2)]

    assert (None, [owner(1), owner(1)]) == (none, found)
    assert (("catalog", "uid-1"), False) == (found[0].identity, found[0].rehearsal)


def test_only_its_owner_removes_a_marker(store):
    """A marker goes when its owner asks, and not when another does."""
    claim(store, owner(1))
    remove_owner(store, owner(2).identity)
    kept = read_owner(store)
    remove_owner(store, owner(1).identity)

    assert (owner(1), None) == (kept, read_owner(store))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "created": "soon"}'])
def test_what_cannot_be_read_is_not_nobody(store, text):
    """A damaged marker, or one of a newer Ebbtide, stops."""
    store.write(MARKER, text)

    with pytest.raises(ForeignNamespace, match="cannot be read"):
        read_owner(store)


def test_a_marker_is_found_from_below(store):
    """A place inside a namespace, however deep, finds the namespace's owner; one beside it does not."""
    replace_owner(store, owner(1))
    inner = StoreSpec(f"{store.spec.url}/x/y", store.spec.options)

    found = enclosing_owner(inner)

    assert (store.spec.url, owner(1)) == found
    assert enclosing_owner(open_store(store.spec).spec) is None
