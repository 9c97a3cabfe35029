"""The breaker."""

import pytest

from ebbtide.errors import BreakerTripped
from ebbtide.plan.breaker import BreakerLimits, PlanSize, check_breaker, trip_reasons
from ebbtide.plan.manifest import Summary, Tally


@pytest.mark.parametrize(
    ("size", "trips"),
    [
        (PlanSize(0, 0, 0), False),
        (PlanSize(0, 0, 1000), False),
        (PlanSize(500, 0, 1000), False),
        (PlanSize(501, 0, 1000), True),
        (PlanSize(9, 0, 10), False),
        (PlanSize(10, 0, 10), True),
        (PlanSize(1, 101, 1000), True),
    ],
)
def test_what_trips_the_breaker(size, trips):
    """Too large a part, too many bytes or an emptied target trips; a few of a small target does not."""
    reasons = trip_reasons(size, BreakerLimits(0.5, 100, 100))

    assert trips == bool(reasons)


def test_the_breaker_stops_unless_overridden():
    """A tripped breaker is an error that says what to do, unless it was overridden."""
    check_breaker(["too much"], override=True)
    check_breaker([], override=False)
    with pytest.raises(BreakerTripped, match="--override-breaker"):
        check_breaker(["too much"], override=False)


def test_what_only_moves_is_not_counted_as_deleted():
    """A plan that sends everything elsewhere deletes nothing, and the breaker looks at what is deleted."""
    actions = (Tally("expire", 3, 30), Tally("transition", 7, 70))
    summary = Summary(Tally("due", 10, 100), Tally("held", 0, 0), 10, by_collector=actions)

    assert Tally("deleted", 3, 30) == summary.deleted
