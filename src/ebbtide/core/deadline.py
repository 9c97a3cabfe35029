"""
The deadline algebra: the one idea behind every collector. Read this first.

An *item* can be deleted. A *reference* is one way in which it is still reachable. A *rule* says when a
reference that it matches lapses. A *hold* keeps an item whatever the rules say::

    lapse(reference) = the EARLIEST moment over the rules that match it    (none matches: never)
    deadline(item)   = the LATEST lapse over its references                (one that never lapses keeps it)
    due(item, now)   = deadline(item) <= now, and no hold

Everything else in Ebbtide gathers references and rules fast enough to evaluate these three lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from ebbtide.core.instant import NEVER


def lapse(moments: Iterable[datetime | None]) -> datetime:
    """Return when a reference lapses, given the moment of each rule (None: the rule does not match)."""
    return min((moment for moment in moments if moment is not None), default=NEVER)


def deadline(lapses: Iterable[datetime]) -> datetime:
    """
    Return when an item may go, given the lapses of all its references.

    An item without references is not "due since ever": its collector must say from when it counts (an
    unreferenced upload from its last write plus the grace period), so an empty input is refused.
    """
    known = list(lapses)
    if not known:
        raise ValueError("an item without references has no deadline of its own")
    return max(known)


def due(item_deadline: datetime, now: datetime, holds: Collection[object] = ()) -> bool:
    """Return True if an item may be deleted now."""
    return item_deadline <= now and not holds
