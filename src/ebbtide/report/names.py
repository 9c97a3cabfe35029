"""Names on the page: keys, branches and rules come from strangers, may be long, and may try to deceive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ebbtide.core.format import printable, shorten

LONGEST = 96
"""A longer name is cut in its middle; the page unfolds it whole."""


@dataclass(frozen=True)
class Name:
    """A name as it is shown, and whole."""

    short: str
    full: str

    @property
    def is_cut(self) -> bool:
        """Tell whether the page must offer the whole name."""
        return self.short != self.full


def name(value: object, *, absent: str = "(none)", longest: int = LONGEST) -> Name:
    """Make anything a name that can be shown."""
    full = printable(str(value)) if value is not None and str(value) else absent
    return Name(shorten(full, longest), full)


def names(value: object) -> tuple[Name, ...]:
    """Make names of a list column, whichever kind of sequence Arrow or Spark gave; null is none."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (name(value),)
    return tuple(name(one) for one in value)
