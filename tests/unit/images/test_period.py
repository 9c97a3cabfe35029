"""Periods: days of 24 hours, months and years of the calendar."""

from __future__ import annotations

import pytest

from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.oci.policies.policy import Period, Unit


@pytest.mark.parametrize(
    ("since", "number", "unit", "expected"),
    [
        ("2018-01-01T10:30:00Z", 5, Unit.DAYS, "2018-01-06T10:30:00Z"),
        ("2018-03-31T00:00:00+02:00", 1, Unit.MONTHS, "2018-04-30T22:00:00Z"),
        ("2018-01-31", 1, Unit.MONTHS, "2018-02-28"),
        ("2020-01-31", 1, Unit.MONTHS, "2020-02-29"),
        ("2018-01-31", 2, Unit.MONTHS, "2018-03-31"),
        ("2018-12-15", 1, Unit.MONTHS, "2019-01-15"),
        ("2018-11-30", 15, Unit.MONTHS, "2020-02-29"),
        ("2020-02-29", 1, Unit.YEARS, "2021-02-28"),
        ("2020-02-29", 4, Unit.YEARS, "2024-02-29"),
        ("2018-02-02", 1, Unit.YEARS, "2019-02-02"),
    ],
)
def test_a_period_ends_where_the_calendar_says(since, number, unit, expected):
    """Days are 24 hours; a month or year later is the same day, or the last of a shorter month."""
    assert parse_instant(expected) == Period(number, unit).after(parse_instant(since))


@pytest.mark.parametrize("unit", list(Unit))
def test_what_runs_off_the_calendar_is_never(unit):
    """A period that ends after the year 9999 does not end."""
    assert NEVER == Period(2**31 - 1, unit).after(parse_instant("2018-01-01"))


@pytest.mark.parametrize(("number", "expected"), [(1, "1 month"), (6, "6 months")])
def test_a_period_is_written_as_people_do(number, expected):
    """One is singular, more are plural."""
    assert expected == str(Period(number, Unit.MONTHS))
