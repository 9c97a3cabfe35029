"""
A rehearsal: a state root whose clock can be advanced, to learn and to try things out.

A root is either a rehearsal or real, forever; a file in it says which. The file also says how far its clock
is ahead of the machine's. A rehearsal reaches nothing outside this machine (`ebbtide.storage.network`).
"""

from __future__ import annotations

import fcntl
import json
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from ebbtide.core.errors import AlreadyExists, BadInput, MetadataError, NotFound
from ebbtide.core.instant import Clock, format_instant, parse_instant
from ebbtide.engine.files import write_durably

FORMAT = 1
MOST_AHEAD = timedelta(days=36_525)
"""A century: dates further ahead could exceed the calendar."""
_FILE = "rehearsal.json"


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal root and its clock."""

    uid: str
    """The identity of the root; real roots have none."""
    begun: datetime
    """When it was set up, by the machine's clock."""
    ahead: timedelta = timedelta()
    """How far its clock is ahead of the machine's."""

    def to_json(self) -> str:
        """Return it as JSON."""
        plain = asdict(self) | {
            "format": FORMAT,
            "rehearsal": True,
            "begun": format_instant(self.begun),
            "ahead": self.ahead.total_seconds(),
        }
        return json.dumps(plain, indent=2, sort_keys=True)


def find_rehearsal(root: Path) -> Rehearsal | None:
    """Return the rehearsal of a root; None if the root is real or does not exist."""
    file = root / _FILE
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        known = plain["format"] == FORMAT and plain["rehearsal"] is True
        found = Rehearsal(str(plain["uid"]), parse_instant(plain["begun"]), timedelta(seconds=plain["ahead"]))
        known = known and timedelta() <= found.ahead <= MOST_AHEAD
    except FileNotFoundError:
        return None
    except (OSError, BadInput, ValueError, KeyError, TypeError, OverflowError):
        known = False
    if not known:
        raise MetadataError(
            f"{file} cannot be read",
            why="without it the time in this rehearsal is unknown",
            fix="set up a new folder with 'ebb init --rehearsal'",
        )
    return found


def begin_rehearsal(root: Path, now: datetime) -> Rehearsal:
    """Make a new root a rehearsal; refuse a real root that is not empty."""
    found = find_rehearsal(root)
    if found is not None:
        return found
    if root.exists() and any(root.iterdir()):
        raise AlreadyExists(
            f"{root} is a real root, and it cannot become a rehearsal",
            why="it records real runs",
            fix="set up the rehearsal in another folder",
        )
    root.mkdir(parents=True, exist_ok=True)
    begun = Rehearsal(uuid.uuid4().hex, now)
    write_durably(root / _FILE, begun.to_json())
    return begun


def advance(root: Path, by: timedelta) -> Rehearsal:
    """Advance the clock of a rehearsal; it never goes back."""
    if by <= timedelta():
        raise BadInput("the clock of a rehearsal only goes forward", fix="give a duration above zero")
    file = root / _FILE
    if not file.exists():
        raise NotFound(
            f"{root} is not a rehearsal",
            why="a real root uses the machine's clock",
            fix="set up a folder to rehearse in: ebb init --rehearsal FOLDER",
        )
    # A lock file of its own, because the file itself is replaced: two advances at once must both count.
    with (root / "rehearsal.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = find_rehearsal(root)
        if found is None or found.ahead + by > MOST_AHEAD:
            raise BadInput(
                f"the clock would be more than {MOST_AHEAD.days} days ahead", fix="use a shorter duration"
            )
        later = replace(found, ahead=found.ahead + by)
        write_durably(file, later.to_json())
    return later


@dataclass(frozen=True)
class RehearsalClock:
    """The clock of a rehearsal root: the machine's clock plus the time that the root is ahead."""

    root: Path
    machine: Clock

    def __call__(self) -> datetime:
        """Return the time in the rehearsal; stop if it is unknown."""
        found = find_rehearsal(self.root)
        if found is None:
            raise MetadataError(
                f"{self.root / _FILE} is gone",
                why="without it the time in this rehearsal is unknown",
                fix="set up a new folder with 'ebb init --rehearsal'",
            )
        return self.machine() + found.ahead
