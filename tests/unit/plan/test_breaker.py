"""The breaker."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ebbtide.core.breaker import (
    ROUTINE,
    SHARES,
    BreakerLimits,
    PlanSize,
    Routine,
    Share,
    check_breaker,
    plan_size,
    routine_after,
    trip_reasons,
)
from ebbtide.core.errors import BreakerTripped
from ebbtide.core.manifest import Manifest, Summary, Tally

LIMITS = BreakerLimits(0.5, 100, 100)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def reasons(*shares: tuple[int, ...], due_bytes: int = 0) -> list[str]:
    """Say why a plan with such shares trips: due, known, and of the due ones how many are routine."""
    return trip_reasons(PlanSize(tuple(Share("things", *share) for share in shares), due_bytes), LIMITS)


@pytest.mark.parametrize(
    ("share", "trips"),
    [
        ((0, 0), False),
        ((0, 1000), False),
        ((500, 1000), False),
        ((501, 1000), True),
        ((9, 10), False),
        ((10, 10), True),
        ((900, 1000, 900), False),
        ((1000, 1000, 1000), False),
        ((1000, 1000, 999), True),
        ((900, 1000, 850), False),
        ((901, 1000, 800), True),
        ((949, 1000, 901), False),
    ],
)
def test_what_trips_the_breaker(share, trips):
    """Too large a part of what routine leaves, or an emptied target, trips; a few of a small one do not."""
    assert trips == bool(reasons(share))


def test_bytes_and_every_share_count():
    """Too many bytes trip though they are routine, and a small share hides no large one."""
    assert reasons((1, 1000, 1), due_bytes=101)
    assert reasons((100, 10_000), (100, 100))
    assert not reasons((100, 10_000), (99, 1000), due_bytes=100)


def test_a_reason_says_what_the_fraction_refers_to():
    """Whoever reads it learns of what the plan deletes so much, and what is not counted."""
    assert ["it deletes 60% of the 200 things, the limit is 50%"] == reasons((120, 200))
    aside = " (not counting 50 that became due since the last run)"
    assert [f"it deletes 60% of the 200 things{aside}, the limit is 50%"] == reasons((170, 250, 50))
    assert ["it deletes all 7 things; nothing would be left"] == reasons((7, 7))


def test_a_plan_without_shares_is_measured_by_its_known_objects():
    """Plans of lakes and registries, and those of earlier versions, have one share."""
    summary = Summary(Tally("due", 3, 30), Tally("held", 0, 0), 10)

    assert PlanSize((Share("known objects of lake:r", 3, 10),), 30) == plan_size(summary, {}, "lake:r")
    shares = [{"of": "x", "due": 1, "known": 2, "routine": 0}]
    assert PlanSize((Share("x", 1, 2),), 30) == plan_size(summary, {SHARES: shares}, "lake:r")


def test_nothing_is_routine_for_a_new_or_changed_policy():
    """Only after a run by the very same policy can ageing be a matter of routine."""
    summary = Summary(Tally("due", 0, 0), Tally("held", 0, 0), 0)
    last = Manifest(1, "t", "u", "n", "bucket", NOW, NOW, "p", "hash", {}, 0, "d", summary)

    assert routine_after(None, "hash") is None
    assert routine_after(last, "another") is None
    assert Routine(NOW, frozenset()) == routine_after(last, "hash")
    assert Routine(NOW, frozenset({"expire r"})) == routine_after(
        replace(last, extra={ROUTINE: ["expire r"]}), "hash"
    )


def test_the_breaker_stops_unless_overridden():
    """A tripped breaker is an error that says what to do, unless it was overridden."""
    check_breaker(["too much"], override=True)
    check_breaker([], override=False)
    with pytest.raises(BreakerTripped, match="--override-breaker"):
        check_breaker(["too much"], override=False)


def test_what_only_moves_is_not_counted_as_deleted():
    """A plan that sends everything elsewhere deletes nothing, and the breaker looks at what is deleted."""
    actions = (Tally("expire", 3, 30), Tally("transition", 7, 70))
    summary = Summary(Tally("due", 10, 100), Tally("held", 0, 0), 10, by_action=actions)

    assert Tally("deleted", 3, 30) == summary.deleted
