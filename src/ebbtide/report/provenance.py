"""Who planned and applied a run, where, with which Ebbtide, and how long it took: from the run's events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from ebbtide.core.format import printable
from ebbtide.state.runs import RunState

Event = tuple[datetime, str, str]
"""When, who, what."""
_MACHINE = re.compile(r" \((Ebbtide \S+) on (.+)\)$")
_ENDS = (f"-> {RunState.SUCCEEDED}", f"-> {RunState.FAILED}")


def provenance(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Say of the plan and of its apply, if there was one, who did it, where and in what time."""
    began = [event for event in events if event[2].startswith("planning ") and " began" in event[2]]
    planned = [event for event in events if f"-> {RunState.PLANNED}" in event[2]]
    applying = [event for event in events if f"-> {RunState.APPLYING}" in event[2]]
    ended = [event for event in events if any(end in event[2] for end in _ENDS)]
    found = [("Planned by", _told(began[0], planned))] if began else []
    if applying:
        # An apply may have been interrupted and taken up again, by another one elsewhere.
        found.append(("Applied by", _told((applying[0][0], *applying[-1][1:]), ended)))
    return found


def duration(span: timedelta) -> str:
    """
    Write how long something took.

    >>> duration(timedelta(seconds=3.2)), duration(timedelta(minutes=61, seconds=5))
    ('3 s', '1 h 1 min')
    """
    seconds = max(0, round(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _told(began: Event, ended: Sequence[Event]) -> str:
    at, who, what = began
    machine = _MACHINE.search(what)
    where = f" on {machine[2]} with {machine[1]}" if machine else ""
    took = f", in {duration(ended[-1][0] - at)}" if ended and ended[-1][0] >= at else ""
    return printable(f"{who}{where}{took}")
