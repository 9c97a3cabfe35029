"""Polite deletes by a clock of our own: order, pages and waits."""

from __future__ import annotations

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import BadInput
from ebbtide.storage.rate_limit import Backoff, TokenBucket, polite_delete, prefix_of, spread
from ebbtide.storage.store import DeleteRequest, DeleteResult


class Recorder:
    """A store that deletes everything and notes when; its clock moves only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pages: list[tuple[float, list[str]]] = []

    def clock(self) -> float:
        """Tell the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def delete(self, requests):
        """Note the page and say that all is deleted."""
        self.pages.append((self.now, [request.key for request in requests]))
        return [DeleteResult(request.key, Outcome.DELETED) for request in requests]


def run(keys: list[str], rate: float, page: int) -> tuple[Recorder, list[str]]:
    """Delete the keys politely and give the recorder and the keys of the results."""
    store = Recorder()
    requests = [DeleteRequest(key) for key in keys]
    results = polite_delete(store, requests, rate, page, clock=store.clock, sleep=store.sleep)
    return store, [result.key for result in results]


def test_a_prefix_is_the_first_two_folders():
    """Deep folders share a prefix; a key at the root has the empty one."""
    assert ["", "a", "a/b", "a/b"] == [prefix_of(key) for key in ("x", "a/x", "a/b/x", "a/b/c/d/x")]


def test_requests_take_turns_over_prefixes():
    """No prefix gets a second request before every other had its first; none is lost."""
    requests = [DeleteRequest(key) for key in ("a/1", "a/2", "a/3", "b/1", "c/1", "c/2")]

    assert ["a/1", "b/1", "c/1", "a/2", "c/2", "a/3"] == [one.key for one in spread(requests)]


def test_pages_have_the_given_size():
    """Requests go out in full pages and a last one with the rest; every request has its result."""
    keys = [f"{i}/x" for i in range(7)]
    store, results = run(keys, rate=100, page=3)

    assert ([3, 3, 1], sorted(keys)) == ([len(page) for _, page in store.pages], sorted(results))


def test_one_prefix_is_held_to_its_rate():
    """After the first second's worth, a prefix gets no more keys a second than the rate."""
    store, _ = run([f"a/{i:03d}" for i in range(40)], rate=10, page=5)

    assert [0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0] == pytest.approx([when for when, _ in store.pages])


def test_many_prefixes_do_not_wait_for_each_other():
    """The limit is one for each prefix: four of them take no longer than one."""
    store, _ = run([f"{i % 4}/{i:03d}" for i in range(160)], rate=10, page=20)

    assert 3.0 == pytest.approx(store.pages[-1][0])


def test_a_page_above_the_rate_waits_longer_but_goes():
    """A bucket may go into debt, so a low rate slows pages down instead of stopping them."""
    store, results = run([f"a/{i}" for i in range(4)], rate=0.5, page=4)

    assert (4, pytest.approx(7.0)) == (len(results), store.now)


def test_a_bucket_holds_no_more_than_a_second():
    """A long rest does not save up tokens for a burst."""
    bucket = TokenBucket(rate=10, tokens=10, filled_at=0)

    assert [0.0, 1.0] == [bucket.take(10, now=100), bucket.take(10, now=100)]


def test_nothing_to_delete_asks_nothing():
    """An empty list makes no request."""
    assert [] == run([], rate=1, page=1)[0].pages


@pytest.mark.parametrize(("rate", "page"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_that_never_deletes_is_refused(rate, page):
    """A rate or a page of nothing is a mistake, not a pause."""
    with pytest.raises(BadInput):
        run(["a"], rate, page)


def test_back_off_doubles_up_to_its_longest():
    """The bound of the random wait doubles from try to try, and there is no wait before the first."""
    waits: list[float] = []
    backoff = Backoff(tries=5, first=1, longest=5, sleep=waits.append, draw=lambda _low, high: high)

    assert ([0, 1, 2, 3, 4], [1, 2, 4, 5]) == (list(backoff.attempts()), waits)
