"""Writers that link, commit and upload all the while a sweep is planned and applied lose nothing."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from tests.services.lake import REPOSITORY, make_lake

pytestmark = pytest.mark.spark

LINKED = 120


@pytest.mark.long
def test_what_is_linked_while_a_sweep_runs_is_never_lost(spark, tmp_path):
    """Objects older than the grace period are linked during plan and apply, and each stays readable."""
    lake = make_lake(spark, tmp_path, token_life=timedelta(days=9), fence_wait=timedelta(minutes=5))
    given = {f"k{n}": lake.catalog.get_physical_address(REPOSITORY, "main", f"k{n}") for n in range(LINKED)}
    for key, place in given.items():
        lake.write(place.address, key.encode())
    garbage = lake.upload(*(f"g{n}" for n in range(20)))
    lake.catalog.reset(REPOSITORY, "main")
    lake.upload("kept")
    lake.day(3)
    done, linked = threading.Event(), []

    def write() -> None:
        for number, (key, place) in enumerate(given.items()):
            lake.catalog.link_physical_address(REPOSITORY, "main", key, place.token, size=len(key))
            linked.append(key)
            lake.upload(f"new{number}")
            if number % 10 == 9:
                lake.commit()
            if done.wait(0.1):
                return

    writer = threading.Thread(target=write)

    def let_link(_step: str) -> None:
        """Let the writer get on between two steps of the plan, however little the machine gives it."""
        enough = len(linked) + 3
        while len(linked) < enough and writer.is_alive():
            done.wait(0.01)

    writer.start()
    try:
        manifest = lake.plan_uncommitted(batch_size=4, on_step=let_link)
        lake.apply(manifest, override_breaker=True)
    finally:
        done.set()
        writer.join()
    readable = {key for key in linked if lake.catalog.read(REPOSITORY, "main", key) == key.encode()}

    assert set(garbage.values()) == lake.due(manifest)
    assert len(linked) > 10
    assert set(linked) == readable
    assert {place.address for place in given.values()} <= lake.stored()
