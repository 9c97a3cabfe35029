"""
Names and sample rows of a plan, ready to be shown.

Keys, branches and rules are named by users, may be long, and may try to deceive, so every one becomes a
:class:`Name` that is safe to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from ebbtide.core.decision import Decision
from ebbtide.core.format import human_bytes, moment, printable, shorten

LONGEST = 96
"""A longer name is cut in its middle; the page can unfold it."""


@dataclass(frozen=True)
class Name:
    """A name as it is shown, and in full."""

    short: str
    full: str

    @property
    def is_cut(self) -> bool:
        """Return True if the name is cut, so that the page must offer it in full."""
        return self.short != self.full


def name(value: object, *, absent: str = "(none)", longest: int = LONGEST) -> Name:
    """Make a name from any value."""
    full = printable(str(value)) if value is not None and str(value) else absent
    return Name(shorten(full, longest), full)


def names(value: object) -> tuple[Name, ...]:
    """Make names from a list column of Arrow or Spark; null has none."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (name(value),)
    return tuple(name(one) for one in value)


Row = Mapping[str, object]
"""A row with the column names of DECISIONS or OUTCOMES."""


@dataclass(frozen=True)
class DecisionRow:
    """The decision about one item; a held item has a reason."""

    path: Name
    more_paths: tuple[Name, ...]
    address: Name
    rules: tuple[Name, ...]
    reason: Name
    held_by: Name
    deadline: str
    size: str


@dataclass(frozen=True)
class TroubleRow:
    """An item that should be gone and is not."""

    address: Name
    outcome: Name
    reason: Name
    rules: tuple[Name, ...]
    size: str
    at: str


def decision_row(row: Row) -> DecisionRow:
    """Read a verdict with its decision; a column that is missing or null reads as absent."""
    paths = names(row.get("names"))
    return DecisionRow(
        path=paths[0] if paths else name(None, absent="(no path)"),
        more_paths=paths[1:],
        address=_place(row),
        rules=names(row.get("rules")),
        reason=name(row.get("hold")),
        held_by=name(row.get("holder"), absent="–"),
        deadline=_moment(row.get("deadline"), absent="never"),
        size=_size(row.get("size")),
    )


def trouble_row(row: Row) -> TroubleRow:
    """Read a row of OUTCOMES."""
    version = row.get("version")
    return TroubleRow(
        address=name(f"{row.get('address')} version {version}" if version else row.get("address")),
        outcome=name(row.get("outcome")),
        reason=name(row.get("reason"), absent="no reason given"),
        rules=names(row.get("rules")),
        size=_size(row.get("size")),
        at=_moment(row.get("at"), absent="–"),
    )


def _place(row: Row) -> Name:
    """Return the address of an object, or for a bucket the action and the version."""
    version, destination = row.get("version"), row.get("destination")
    if version is None and row.get("condition") is None:
        return name(row.get("address"))
    goal = f" to {destination}" if destination else ""
    doing = f"{row.get('action')}{goal}" if row.get("decision") != Decision.HELD else ""
    version = f"version {version}" if version else ""
    return name(", ".join(part for part in (doing, version) if part) or row.get("address"))


def example_path(*samples: Sequence[Row]) -> str | None:
    """Find a path that is short and plain enough to be an example on a command line."""
    for row in chain(*samples):
        for path in names(row.get("names")):
            if len(path.full) <= 60 and path.full.isascii() and "\\" not in path.full:
                return path.full
    return None


def _moment(value: object, *, absent: str) -> str:
    return moment(value) if isinstance(value, datetime) else absent


def _size(value: object) -> str:
    return human_bytes(value) if isinstance(value, int) else "unknown"
