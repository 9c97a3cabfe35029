"""Whatever runs, restores and crashes come in whatever order, the table is what a replay in a dict gives."""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta

import pytest
from tests.services.outcomes import FIRST, Desk, Happened, Killed, make_desk

from ebbtide.core.decision import RESTORE, Outcome
from ebbtide.engine import removed_items as removed_segments
from ebbtide.engine.removed_table import RemovedItem, RestoredItem, find_item
from ebbtide.engine.tables.digest import hash_addresses

ADDRESSES = [f"data/{number}" for number in range(40)]
DONE = [Outcome.DELETED, Outcome.RECYCLED, Outcome.ABSENT]
LEFT = [Outcome.FAILED, Outcome.DENIED, Outcome.CHANGED, Outcome.NOT_REACHED]
STEPS = ["removed items written", "removed items listed", "removed items folded", ""]

Last = dict[str, tuple[Outcome, int, datetime | None]]


def live(desk: Desk, chance: random.Random, last: Last, now: datetime) -> None:
    """Let one run or restore happen, with attempts that fail or die, and replay it in the dict."""
    some = chance.sample(ADDRESSES, chance.randint(1, 8))
    restores = chance.random() < 0.4
    run_id = desk.begin(RESTORE if restores else "lifecycle")
    until = now + timedelta(days=chance.randint(0, 5))
    for _ in range(chance.randint(1, 3)):
        rows = []
        for address in some:
            outcome = chance.choice([*LEFT, Outcome.RESTORED] if restores else [*LEFT, *DONE])
            rows.append(Happened(address, outcome, until if restores else None))
        finish = chance.random() < 0.8
        desk.attempt(run_id, rows, batch=chance.randint(0, 1), finish=finish)
        if finish:
            for row in rows:
                if row.outcome in DONE or row.outcome is Outcome.RESTORED:
                    last[row.address] = row.outcome, run_id, row.until
        # What is done is not tried again.
        some = [one for one in some if last.get(one, ("", 0))[1] != run_id]
        if not some:
            break


def fold(desk: Desk, chance: random.Random, now: datetime) -> None:
    """Fold, maybe be killed at a step of it, and maybe lose the whole table."""
    step = chance.choice(STEPS)

    def die(name: str) -> None:
        if name == step:
            raise Killed

    try:
        desk.table.folded(now, die)
    except Killed:
        return
    if chance.random() < 0.1:
        shutil.rmtree(desk.table.folder, ignore_errors=True)


def number(address: str) -> int:
    """Hash one address."""
    return int(hash_addresses([address])[0])


@pytest.mark.parametrize("seed", range(12))
def test_the_table_is_what_a_replay_gives(tmp_path, monkeypatch, seed):
    """Gone, held and looked up: each is as in a dict that replays all finished attempts in their order."""
    monkeypatch.setattr(removed_segments, "MOST_IN_MEMORY", 10)
    monkeypatch.setattr(removed_segments, "_BATCH", 4)
    chance, desk, last, now = random.Random(seed), make_desk(tmp_path), Last(), FIRST
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            live(desk, chance, last, now)
        now += timedelta(hours=chance.randint(0, 48))
        fold(desk, chance, now)
    before_folding = list(desk.table.gone_hashes())
    items = desk.table.folded(now)
    found = {one: find_item(desk.root, desk.ledger, "lake:x", one) for one in ADDRESSES}

    gone = {one: run for one, (outcome, run, _) in last.items() if outcome is not Outcome.RESTORED}
    back = {one: (until, run) for one, (outcome, run, until) in last.items() if outcome is Outcome.RESTORED}
    held = {number(one): hold for one, hold in back.items() if hold[0] and hold[0] > now}
    assert sorted(map(number, gone)) == [int(one) for one in items.gone_hashes()] == before_folding
    assert held == {key: hold for key, hold in items.holds().items() if hold[0] > now and key in held}
    assert gone == {one: b.run_id for one, b in found.items() if isinstance(b, RemovedItem)}
    assert {one: b.run_id for one, b in found.items() if isinstance(b, RestoredItem)}.items() <= {
        one: run for one, (_, run) in back.items()
    }.items()
    assert len(items.segments) <= 8
