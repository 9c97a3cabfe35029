"""An S3 store over many seeds of a server that fails on purpose: it says what is true, or it raises."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.contract.store.conftest import FAST
from tests.services.failing_store import FailingStore
from tests.services.fault_plan import PRESETS, Fault

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.storage.s3 import S3Store
from ebbtide.storage.store import DeleteRequest, StoreSpec

KEYS = [f"d{number % 3}/k{number:02d} é" for number in range(8)]
SPARED = KEYS[6:]


@dataclass
class Bench:
    """A prefix of a bucket, and a store on it that goes through the failing one; notes what it met."""

    failing: FailingStore
    bucket: str
    prefix: str
    met: set[Fault] = field(default_factory=set)

    def store(self, *, ordered: bool = False) -> S3Store:
        """Open the prefix through the faults."""
        options = {**self.failing.options, "ordered": "yes" if ordered else "no"}
        return S3Store(StoreSpec(f"s3://{self.bucket}/{self.prefix}", options), FAST)

    def fill(self, *keys: str) -> None:
        """Write objects, whose content is their key, past all faults."""
        for key in keys:
            self.failing.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}", Body=key.encode())

    def etags(self) -> dict[str, str]:
        """List what is really there, past all faults, in key order."""
        rows = self.failing.real(self.bucket, f"{self.prefix}/")
        return {key.removeprefix(f"{self.prefix}/"): rows[key].etag for key in sorted(rows)}

    def content(self, key: str) -> bytes | None:
        """Read an object past all faults; None if there is none."""
        if key not in self.etags():
            return None
        return self.failing.client.get_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}")["Body"].read()

    def wrong_seeds(self, preset: str, seeds: int, act: Callable[[], bool]) -> list[int]:
        """Try an act under many seeds of a preset, and name those under which it came out wrong."""
        wrong = []
        for seed in range(seeds):
            self.failing.follow(PRESETS[preset].of_seed(seed))
            wrong += [] if act() else [seed]
            self.failing.behave()
            self.met |= {made.fault for made in self.failing.log}
        return wrong


@pytest.fixture
def bench(failing_store: FailingStore, store_bucket: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Give a prefix with the test's name: a seed means the same in each session only if keys do."""
    yield Bench(failing_store, store_bucket, re.sub(r"\W+", "-", request.node.name))
    failing_store.behave()


def rows_of(store: S3Store) -> list[tuple[str, str]]:
    """List keys and etags."""
    rows = (row for batch in store.list() for row in batch.to_pylist())
    return [(row["key"], row["etag"]) for row in rows]


def works(act: Callable[[], object]) -> bool:
    """Tell whether an act succeeds; if not, it must be with one of our errors."""
    try:
        act()
    except EbbtideError:
        return False
    return True


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "sorted-here"])
@pytest.mark.parametrize(("preset", "seeds"), [("listing", 20), ("storm", 10), ("skewed", 3)])
def test_a_listing_is_whole_or_raises(bench, preset, seeds, ordered):
    """However pages overlap, repeat keys, are empty or break off, each key comes once, in order, or none."""
    bench.fill(*KEYS)
    store, expected, whole = bench.store(ordered=ordered), list(bench.etags().items()), []

    def act() -> bool:
        listed: list[tuple[str, str]] = []
        whole.append(works(lambda: listed.extend(rows_of(store))))
        return not whole[-1] or expected == listed

    assert [] == bench.wrong_seeds(preset, seeds, act)
    assert any(whole)
    assert (preset == "skewed") == (not bench.met)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "sorted-here"])
@pytest.mark.parametrize(("preset", "seeds"), [("listing", 15), ("storm", 10)])
def test_the_children_of_a_folder_are_whole_or_raise(bench, preset, seeds, ordered):
    """However pages of folders overlap, repeat, are empty or break off, each name comes once, or none."""
    bench.fill(*KEYS, *(f"e{number}" for number in range(5)))
    store, whole = bench.store(ordered=ordered), []
    expected = ["d0/", "d1/", "d2/", "e0", "e1", "e2", "e3", "e4"]

    def act() -> bool:
        listed: list[str] = []
        whole.append(works(lambda: listed.extend(store.children(""))))
        return not whole[-1] or expected == listed

    assert [] == bench.wrong_seeds(preset, seeds, act)
    assert any(whole)
    assert bench.met


def test_a_stale_listing_still_gives_each_key_once(bench):
    """Keys that are gone may be listed, new ones may not; what is old is always there, once and in order."""
    old, new = KEYS[:5], KEYS[5:]
    store = bench.store()

    def act() -> bool:
        bench.fill(*old)
        for key in new:
            store.write(key, b"")
        store.delete([DeleteRequest(key) for key in old[:2]])
        listed = [key for key, _ in rows_of(store)]
        bench.failing.behave()
        store.delete([DeleteRequest(key) for key in new])
        return sorted(set(listed)) == listed and set(old[2:]) <= set(listed) <= set(KEYS)

    assert [] == bench.wrong_seeds("stale", 10, act)
    assert {Fault.GHOST, Fault.HIDDEN} <= bench.met


@pytest.mark.parametrize(
    ("preset", "seeds", "kind"),
    [
        ("busy", 10, Fault.RESET),
        ("stuck", 10, Fault.REFUSED),
        ("refusing", 10, Fault.REFUSED),
        ("forgetful", 10, Fault.LOST),
        ("storm", 15, Fault.LOST),
        pytest.param("storm", 50, Fault.LOST, marks=pytest.mark.long),
    ],
)
def test_deletes_tell_the_truth(bench, preset, seeds, kind):
    """What is `deleted` or `absent` is gone, nothing else is touched, and a later try settles the rest."""
    store = bench.store()

    def act() -> bool:
        bench.fill(*KEYS)
        etags = bench.etags()
        asked = [DeleteRequest(key, etags[key] if key < "d1" else None) for key in KEYS if key not in SPARED]
        results = store.delete(asked)
        bench.failing.behave()
        left, gone = set(bench.etags()), {result.key for result in results if result.outcome.is_gone}
        pairs = zip(asked, results, strict=True)
        again = store.delete([request for request, result in pairs if not result.outcome.is_final])
        settled = {result.key for result in again if result.outcome.is_gone}
        in_order = [request.key for request in asked] == [result.key for result in results]
        return in_order and not gone & left and set(SPARED) <= left and gone | settled == set(KEYS[:6])

    assert [] == bench.wrong_seeds(preset, seeds, act)
    assert kind in bench.met
    assert SPARED == list(bench.etags())


@pytest.mark.parametrize(
    ("preset", "seeds"), [("forgetful", 10), ("storm", 15), pytest.param("storm", 50, marks=pytest.mark.long)]
)
def test_a_write_or_copy_is_whole_or_not_there(bench, preset, seeds):
    """What says that it worked did; what raises left the object as it was before or as it was to be."""
    store = bench.store()
    bench.fill("old")

    def act() -> bool:
        written = works(lambda: store.write("new", b"new"))
        copied = works(lambda: store.copy("old", "copy"))
        read: list[bytes] = []
        works(lambda: read.append(store.read("old")))
        bench.failing.behave()
        found = bench.content("new"), bench.content("copy")
        store.delete([DeleteRequest("new"), DeleteRequest("copy")])
        expected = ({b"new"} if written else {b"new", None}), ({b"old"} if copied else {b"old", None})
        return found[0] in expected[0] and found[1] in expected[1] and read in ([b"old"], [])

    assert [] == bench.wrong_seeds(preset, seeds, act)
    assert {Fault.LOST, Fault.CUT} <= bench.met


def test_a_seed_can_be_played_again(bench):
    """The same seed makes the same faults, whatever the threads do; another seed makes others."""

    def played(seed: int) -> list:
        bench.fill(*KEYS)
        etags = bench.etags()
        bench.failing.follow(PRESETS["storm"].of_seed(seed))
        bench.store().delete([DeleteRequest(key, etags[key]) for key in KEYS])
        works(lambda: rows_of(bench.store()))
        bench.failing.behave()
        return sorted(bench.failing.log)

    first, second = played(1), played(1)

    assert first
    assert second == first
    assert played(2) != first


def test_no_outcome_is_changed_where_nobody_changed_anything(bench):
    """A conditional delete whose answer was lost is not mistaken for one that met other content."""
    store = bench.store()
    outcomes: set[Outcome] = set()

    def act() -> bool:
        bench.fill(*KEYS)
        results = store.delete([DeleteRequest(key, etag) for key, etag in bench.etags().items()])
        outcomes.update(result.outcome for result in results)
        return Outcome.CHANGED not in {result.outcome for result in results}

    assert [] == bench.wrong_seeds("storm", 15, act)
    assert {Outcome.DELETED, Outcome.FAILED} <= outcomes
