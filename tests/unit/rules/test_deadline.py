"""The deadline algebra."""

from datetime import UTC, datetime

import pytest

from ebbtide.core.deadline import deadline, due, lapse
from ebbtide.core.instant import NEVER

EARLY = datetime(1998, 1, 10, tzinfo=UTC)
LATE = datetime(1998, 1, 20, tzinfo=UTC)


def test_the_earliest_matching_rule_ends_a_reference():
    """A reference lapses at the earliest moment over the rules that match it."""
    actual = lapse([LATE, None, EARLY])

    assert EARLY == actual


def test_a_reference_that_no_rule_matches_never_lapses():
    """Without a matching rule a reference lasts for ever."""
    actual = lapse([None, None])

    assert NEVER == actual


def test_the_latest_reference_keeps_an_item():
    """An item's deadline is the latest lapse over its references."""
    actual = deadline([EARLY, LATE])

    assert LATE == actual


def test_one_reference_for_ever_keeps_an_item_for_ever():
    """One reference that never lapses keeps its item."""
    actual = deadline([EARLY, NEVER])

    assert NEVER == actual


def test_an_item_without_references_has_no_deadline_of_its_own():
    """No references is never read as 'due'."""
    with pytest.raises(ValueError, match="without references"):
        deadline([])


@pytest.mark.parametrize(
    ("item_deadline", "holds", "expected"),
    [(LATE, (), True), (EARLY, (), True), (NEVER, (), False), (EARLY, ("pin",), False)],
)
def test_due_is_a_deadline_that_has_come_and_no_hold(item_deadline, holds, expected):
    """An item is due from the very moment of its deadline, unless something holds it."""
    actual = due(item_deadline, LATE, holds)

    assert expected == actual
