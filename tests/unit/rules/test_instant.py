"""Instants and midnights."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import (
    NEVER,
    days_after,
    days_before,
    format_instant,
    from_micros,
    next_midnight,
    parse_instant,
    to_micros,
)

INSTANTS = st.datetimes(timezones=st.just(UTC))


@pytest.mark.parametrize(
    "text", ["1998-01-20", "1998-01-20T00:00:00Z", "1998-01-20T00:00:00", "1998-01-20T02:00:00+02:00"]
)
def test_spellings_of_one_moment_are_one_instant(text):
    """Dates, times without a zone and times with an offset are read in UTC."""
    actual = parse_instant(text)

    assert datetime(1998, 1, 20, tzinfo=UTC) == actual


@pytest.mark.parametrize("text", ["", "yesterday", "20/01/1998", "0001-01-01T00:00:00+23:00"])
def test_what_is_no_time_is_refused(text):
    """A text that is no time is bad input that says how to write one."""
    with pytest.raises(BadInput):
        parse_instant(text)


@given(INSTANTS)
def test_formatting_and_reading_are_inverse(moment):
    """An instant that is written can be read back, except never, which is a word."""
    text = format_instant(moment)

    assert text == "never" or moment == parse_instant(text)


@given(INSTANTS)
def test_microseconds_are_exact(moment):
    """Instants cross into Arrow and back without loss."""
    actual = from_micros(to_micros(moment))

    assert moment == actual


@given(INSTANTS.filter(lambda moment: moment.year < 9999))
def test_the_next_midnight_is_the_first_that_is_not_before(moment):
    """Rounding up gives a midnight, not earlier and less than a day later."""
    actual = next_midnight(moment)

    assert actual == actual.replace(hour=0, minute=0, second=0, microsecond=0)
    assert timedelta(0) <= actual - moment < timedelta(days=1)


def test_what_runs_off_the_calendar_is_never():
    """Days that leave the calendar mean never, and dates stop at its first day."""
    after = days_after(datetime(1998, 1, 1, tzinfo=UTC), 10**9)
    before = days_before(date(1998, 1, 1), 10**7)

    assert NEVER == after
    assert date.min == before
