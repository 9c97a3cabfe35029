"""The manifest of moves: lines that last, read back by key, added up without comparing clocks."""

from dataclasses import replace

import pytest

from ebbtide.targets.s3.model import bucket_name
from ebbtide.targets.s3.transition.moves import (
    MoveLog,
    MoveRecord,
    Stage,
    others_hold,
    others_withdrew,
)

LINE = MoveRecord(
    bucket="logs",
    key="a/ü.log",
    version="null",
    etag="e1",
    size=3,
    modified="2026-01-01T00:00:00Z",
    location="COLD",
    url="s3://cold/a/ü.log/null",
    rules=("old", "older"),
    run=7,
    wave=0,
    stage=Stage.COPIED,
    at="2026-02-01T00:00:00Z",
    writer="one",
)
MOVED = replace(LINE, stage=Stage.MOVED)
WITHDRAWN = replace(LINE, stage=Stage.WITHDRAWN)


@pytest.fixture
def moves(tmp_path):
    """Make an empty manifest."""
    return MoveLog(tmp_path / "state")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        ([LINE], [Stage.COPIED]),
        ([LINE, MOVED], [Stage.MOVED]),
        ([LINE, WITHDRAWN], []),
        ([LINE, WITHDRAWN, replace(LINE, writer="two")], [Stage.COPIED]),
        ([LINE, replace(MOVED, writer="two")], [Stage.MOVED]),
        ([replace(MOVED, writer="a"), LINE], [Stage.MOVED]),
        ([LINE, replace(WITHDRAWN, writer="two")], [Stage.COPIED]),
        ([MOVED, replace(MOVED, etag="e2", url="s3://cold/2")], [Stage.MOVED, Stage.MOVED]),
        ([replace(LINE, key="another")], []),
        ([replace(LINE, bucket="another")], []),
    ],
)
def test_lines_add_up_to_where_things_are(moves, lines, expected):
    """A writer's last word counts, a finished move beats a begun one, and a withdrawn copy is nowhere."""
    for line in lines:
        moves.append(line)

    assert expected == [move.stage for move in moves.where("logs", "a/ü.log")]


def test_a_line_comes_back_as_it_was_written(moves):
    """Everything about a move is read back, also the rules and characters outside ASCII."""
    moves.append(LINE)

    assert [LINE] == list(moves.lines("logs", "a/ü.log"))


def test_the_last_move_comes_first(moves):
    """Of a key that was moved again and again the newest move is shown first."""
    later = replace(MOVED, etag="e2", url="s3://cold/2", at="2026-03-01T00:00:00Z")
    for line in (MOVED, later):
        moves.append(line)

    assert [later, MOVED] == moves.where("logs", "a/ü.log")


def test_a_line_that_was_cut_off_hides_no_other(moves):
    """What a full disk or a crash left of a line is passed over; the lines before and behind it count."""
    moves.append(LINE)
    [file] = (moves.root / "moves" / "logs").rglob("*.jsonl")
    with file.open("a") as out:
        out.write('\n{"bucket": "lo')
    moves.append(MOVED)

    assert [Stage.MOVED] == [move.stage for move in moves.where("logs", "a/ü.log")]


def test_writers_see_what_others_count_on_and_withdraw():
    """Who is about to remove a copy, or to count on one, sees the other's line but not his own."""
    own, other = WITHDRAWN, replace(LINE, writer="two")

    assert [True, False, False] == [
        others_hold([own, other], own),
        others_hold([LINE, own], own),
        others_hold([replace(other, url="s3://elsewhere")], own),
    ]
    assert [True, False] == [others_withdrew([own, other], other), others_withdrew([own], own)]


@pytest.mark.parametrize(
    ("run", "at", "expected"),
    [
        (7, "2026-02-01T00:00:00Z", True),
        (7, "2027-02-01T00:00:00Z", True),
        (8, "2026-02-01T00:59:59Z", True),
        (8, "2026-02-01T01:00:00Z", False),
    ],
)
def test_a_withdrawal_of_long_ago_counts_in_its_own_run_only(run, at, expected):
    """A copy that a dead writer of another run left behind can be taken over after an hour."""
    own = replace(LINE, writer="two", run=run, at=at)

    assert expected == others_withdrew([WITHDRAWN, own], own)


@pytest.mark.parametrize("text", ["logs", "s3://logs", "s3://logs/"])
def test_a_bucket_may_be_written_as_an_address(text):
    """BUCKET and s3://BUCKET mean the same."""
    assert "logs" == bucket_name(text)
