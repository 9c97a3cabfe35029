"""The table of removed items: small, right after any crash, and made anew if it is lost."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from tests.services.outcomes import FIRST, Desk, Happened, Killed, make_desk

from ebbtide.core.decision import EMPTY_BIN, Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.engine import removed_items as removed_segments
from ebbtide.engine.removed_items import FILE, ROWS_PER_GROUP, RemovedItems, removed_in
from ebbtide.engine.removed_table import RemovedItem, RemovedTable, RestoredItem, find_item
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.tables.digest import hash_addresses

DAY = timedelta(days=1)
STEPS = ["removed items written", "removed items listed", "removed items folded"]


@pytest.fixture
def desk(tmp_path) -> Desk:
    """Give an empty ledger and state root."""
    return make_desk(tmp_path)


def deleted(*addresses: str) -> list[Happened]:
    """Say of addresses that they were deleted."""
    return [Happened(one, Outcome.DELETED) for one in addresses]


def hashes(*addresses: str) -> list[int]:
    """Hash addresses, sorted."""
    return sorted(hash_addresses(addresses).tolist())


def gone(items: RemovedItems | RemovedTable) -> list[int]:
    """Give the hashes of what is gone."""
    return [int(one) for one in items.gone_hashes()]


def test_many_cycles_leave_a_table_of_a_few_segments(desk):
    """After many cycles of deleting and restoring the table has a few segments and no superseded rows."""
    for cycle in range(40):
        desk.run(*deleted("a", "b", f"only-{cycle}"))
        desk.table.folded(FIRST)
        desk.restore("a", until=FIRST + DAY)
        items = desk.table.folded(FIRST)

    assert len(items.segments) <= 6
    assert items.rows <= 60
    assert hashes("b", *(f"only-{n}" for n in range(40))) == gone(items)
    assert [] == desk.ledger.finished_attempts("uid", folded=False)
    assert len(items.segments) + 1 == len(list(desk.table.folder.iterdir()))


def test_runs_that_were_never_folded_are_folded_at_once(desk):
    """A state root of an earlier version, which has outcomes only, becomes a table of one segment."""
    for _ in range(100):
        desk.run(*deleted("a", "b"))
        desk.restore("a")
    last = desk.run(*deleted("c"))
    items = desk.table.folded(FIRST)

    assert (1, hashes("b", "c")) == (len(items.segments), gone(items))
    assert RemovedItem("c", FIRST, last, (f"rule of {last}",)) == find_item(
        desk.root, desk.ledger, "lake:x", "c"
    )


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_table_is_whole_and_the_next_fold_ends_it(desk, step):
    """Whenever a fold is killed, lookups and the next fold give what an undisturbed fold gives."""
    desk.run(*deleted("a", "b"))
    desk.table.folded(FIRST)
    desk.run(*deleted("c"))
    restore = desk.restore("a", until=FIRST + DAY)

    def die(name: str) -> None:
        if name == step:
            raise Killed

    with pytest.raises(Killed):
        desk.table.folded(FIRST, die)
    seen = [find_item(desk.root, desk.ledger, "lake:x", one) for one in "abcd"]
    snapshot = desk.table.snapshot(desk.root / "snapshot")
    items = desk.table.folded(FIRST)

    assert [RestoredItem, RemovedItem, RemovedItem, type(None)] == [type(one) for one in seen]
    assert hashes("b", "c") == gone(snapshot) == gone(items)
    assert {hashes("a")[0]: (FIRST + DAY, restore)} == items.holds()
    assert [] == desk.ledger.finished_attempts("uid", folded=False)
    assert {one.path.name for one in items.segments} | {"current.json"} == {
        place.name for place in desk.table.folder.iterdir()
    }


@pytest.mark.parametrize(
    "looked_up",
    [lambda desk: [row["outcome"] for row in desk.table.find("b")], lambda desk: gone(desk.table)],
)
def test_a_fold_in_the_middle_of_a_lookup_hides_nothing(desk, monkeypatch, looked_up):
    """Outcomes that are folded after a lookup read the pointer, and before it asks the ledger, are found."""
    desk.run(*deleted("a"))
    desk.table.folded(FIRST)
    desk.run(*deleted("b"))
    expected, missing = looked_up(desk), RemovedTable._missing

    def folding_first(table, pointer):
        monkeypatch.setattr(RemovedTable, "_missing", missing)
        desk.table.folded(FIRST)
        return missing(table, pointer)

    monkeypatch.setattr(RemovedTable, "_missing", folding_first)

    assert expected == looked_up(desk)
    assert expected


def test_a_lookup_of_all_that_is_gone_stops_at_a_damaged_segment(desk):
    """A segment that cannot be read is no empty one, and the error says how the table is made anew."""
    desk.run(*deleted("a", "b"))
    (segment,) = desk.table.folded(FIRST).segments
    file = segment.path / FILE
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes(byte ^ 255 for byte in content[40:60]) + content[60:])

    with pytest.raises(MetadataError, match=r"damaged.*What to do: remove the folder"):
        desk.table.gone_hashes()


def test_steps_are_those_that_are_killed(desk):
    """A fold reports the steps at which this file kills it."""
    desk.run(*deleted("a"))
    seen: list[str] = []
    desk.table.folded(FIRST, seen.append)
    desk.table.folded(FIRST, seen.append)

    assert STEPS == seen


def test_a_lost_table_is_made_anew_and_a_damaged_one_says_how(desk):
    """Without its folder the table is folded from all outcomes; a damaged pointer stops with the way out."""
    desk.run(*deleted("a", "b"))
    desk.restore("a")
    before = gone(desk.table.folded(FIRST))
    shutil.rmtree(desk.table.folder)
    anew = gone(desk.table.folded(FIRST))
    (desk.table.folder / "current.json").write_text('{"format": 1, "segments": []}')
    with pytest.raises(MetadataError, match="removed items is damaged") as damaged:
        desk.table.folded(FIRST)

    assert hashes("b") == before == anew
    assert "made anew" in damaged.value.fix


def test_outcomes_that_are_missing_stop_a_fold(desk):
    """A finished attempt whose outcomes are not there is never taken for one that removed nothing."""
    run_id = desk.run(*deleted("a"))
    shutil.rmtree(run_folder(desk.root, run_id).outcomes(0, 1))
    with pytest.raises(MetadataError, match=f"outcomes of run {run_id} are missing"):
        desk.table.folded(FIRST)
    with pytest.raises(MetadataError, match="are missing"):
        desk.table.find("a")


def test_attempts_that_did_not_finish_and_items_that_stayed_do_not_count(desk):
    """Only finished attempts and only outcomes after which an item is gone are recorded."""
    run_id = desk.begin()
    desk.attempt(run_id, deleted("never"), finish=False)
    desk.attempt(run_id, [Happened("a", Outcome.FAILED), Happened("b", Outcome.DELETED)])
    desk.attempt(run_id, [Happened("a", Outcome.ABSENT), Happened("c", Outcome.CHANGED)])
    desk.run(*deleted("in the bin"), collector=EMPTY_BIN)

    assert hashes("a", "b") == gone(desk.table.folded(FIRST))


def test_a_hold_lapses_and_is_dropped(desk):
    """A hold is kept until its end, and is dropped by the first fold of the whole table after it."""
    desk.run(*deleted("a", "b"))
    restore = desk.restore("a", "b", until=FIRST + 2 * DAY)
    held = desk.table.folded(FIRST + DAY).holds()
    desk.run(*deleted("c", "d"))
    lapsed = desk.table.folded(FIRST + 2 * DAY)

    assert dict.fromkeys(hashes("a", "b"), (FIRST + 2 * DAY, restore)) == held
    assert ({}, 2, hashes("c", "d")) == (lapsed.holds(), lapsed.rows, gone(lapsed))


def test_a_lapsed_hold_still_replaces_what_an_older_segment_says(desk):
    """The row of a restored item stays, also without its hold, as long as a segment says it is gone."""
    desk.run(*deleted(*(f"n{number}" for number in range(30))))
    desk.table.folded(FIRST)
    desk.restore("n1", until=FIRST + DAY)
    desk.table.folded(FIRST)
    desk.run(*deleted("m"))
    items = desk.table.folded(FIRST + 2 * DAY)

    assert 2 == len(items.segments)
    assert hashes("m", *(f"n{number}" for number in range(30) if number != 1)) == gone(items)


def test_segments_are_merged_as_streams(desk, monkeypatch):
    """Merged in small batches, with hashes that many rows share, the last row of each item is left."""
    monkeypatch.setattr(removed_segments, "_BATCH", 3)
    monkeypatch.setattr(removed_segments, "MOST_IN_MEMORY", 20)
    names = [f"n{number}" for number in range(100)]
    versions = [Happened("v", Outcome.DELETED, version=str(number)) for number in range(10)]
    desk.run(*deleted(*names), *versions)
    desk.table.folded(FIRST)
    desk.run(*deleted(*names[50:]), *versions[5:], *deleted(*(f"m{number}" for number in range(100))))
    items = desk.table.folded(FIRST)
    rows = pq.read_table(items.segments[0].path / FILE)

    assert (1, 210) == (len(items.segments), rows.num_rows)
    assert rows.column("hash").to_pylist() == sorted(rows.column("hash").to_pylist())
    assert {str(n): 1 if n < 5 else 2 for n in range(10)} == {
        row["version"]: row["run_id"] for row in desk.table.find("v")
    }


def test_a_lookup_reads_one_row_group(desk):
    """Rows are sorted by hash in small row groups, so that statistics lead a lookup to the right one."""
    names = [f"n{number}" for number in range(2 * ROWS_PER_GROUP)]
    desk.run(*deleted(*names))
    (segment,) = desk.table.folded(FIRST).segments
    groups = pq.read_metadata(segment.path / FILE)
    bounds = [groups.row_group(n).column(0).statistics for n in range(groups.num_row_groups)]

    assert 2 == groups.num_row_groups
    assert bounds[0].max < bounds[1].min
    assert ["n7"] == [row["address"] for row in desk.table.find("n7")]


def test_a_plan_keeps_what_it_knew(desk):
    """Links in a plan's folder show the table as it was, whatever is folded and removed later."""
    desk.run(*deleted("a", "b"))
    kept = desk.table.folded(FIRST).linked(desk.root / "plan")
    desk.restore("a", "b")
    later = desk.table.folded(FIRST)
    again = removed_in(desk.root / "plan")

    assert hashes("a", "b") == gone(kept) == gone(again)
    assert [] == gone(later)
    (again.segments[0].path / FILE).unlink()
    with pytest.raises(MetadataError, match="not whole"):
        again.gone_hashes()
    with pytest.raises(MetadataError, match="which of its rows were gone"):
        removed_in(desk.root / "nowhere")


@pytest.mark.parametrize("keep_size", [False, True])
def test_a_damaged_segment_stops_a_lookup(desk, keep_size):
    """A segment that was cut off, or is no longer Parquet, is damage, not an item that nobody removed."""
    desk.run(*deleted("a"))
    [segment] = desk.table.folded(FIRST).segments
    file = segment.path / "items.parquet"
    size = file.stat().st_size
    file.write_bytes(b"x" * (size if keep_size else size // 2))

    with pytest.raises(MetadataError):
        find_item(desk.root, desk.ledger, "lake:x", "a")
