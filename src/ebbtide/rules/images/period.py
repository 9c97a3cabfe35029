"""
How long an image lives: a number of days, months or years.

Days are 24 hours. Months and years are those of the calendar in UTC: the same day and time of a later month,
or its last day if that month is shorter, so that the 31st of January and a month is the end of February.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime
from enum import StrEnum

from ebbtide.rules.instant import NEVER, days_after


class Unit(StrEnum):
    """What a period is counted in."""

    DAYS = "days"
    MONTHS = "months"
    YEARS = "years"


@dataclass(frozen=True)
class Period:
    """So many days, months or years."""

    number: int
    unit: Unit = Unit.DAYS

    def after(self, moment: datetime) -> datetime:
        """Give the moment at which the period that begins then is over; off the calendar is never."""
        if self.unit is Unit.DAYS:
            return days_after(moment, self.number)
        return months_after(moment, self.number * (12 if self.unit is Unit.YEARS else 1))

    def __str__(self) -> str:
        """Write it as people do: ``1 day``, ``6 months``."""
        return f"{self.number} {self.unit if self.number != 1 else self.unit.removesuffix('s')}"


def months_after(moment: datetime, months: int) -> datetime:
    """Add calendar months; a day that the month does not have becomes its last."""
    moment = moment.astimezone(UTC)
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if year > MAXYEAR:
        return NEVER
    day = min(moment.day, monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
