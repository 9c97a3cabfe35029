"""
A rehearsal: a state root whose clock can be advanced, to learn and to try things out.

A root is a rehearsal or real for ever, which a file in it says. The file also has how far its clock is ahead
of the machine's. A rehearsal reaches nothing that is not on this machine (`ebbtide.storage.network`).
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
from ebbtide.engine.durability import write_durably

FORMAT = 1
MOST_AHEAD = timedelta(days=36_525)
"""A century: beyond it dates would run off the calendar somewhere."""
_FILE = "rehearsal.json"


@dataclass(frozen=True)
class Rehearsal:
    """What is known of a rehearsal root."""

    uid: str
    """The identity of the root; no real root has one of these."""
    begun: datetime
    """When it was set up, by the machine's clock."""
    ahead: timedelta = timedelta()
    """How far its clock is ahead of the machine's."""

    def to_json(self) -> str:
        """Write it for people and programs to read."""
        plain = asdict(self) | {
            "format": FORMAT,
            "rehearsal": True,
            "begun": format_instant(self.begun),
            "ahead": self.ahead.total_seconds(),
        }
        return json.dumps(plain, indent=2, sort_keys=True)


def find_rehearsal(root: Path) -> Rehearsal | None:
    """Say what is known of a rehearsal root; None if the root is a real one, or there is none."""
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
            why="without it nobody knows what time it is in this rehearsal",
            fix="set up a new folder with 'ebb init --rehearsal'",
        )
    return found


def begin_rehearsal(root: Path, now: datetime) -> Rehearsal:
    """Make a new root a rehearsal; a root that is real and holds something stays what it is."""
    found = find_rehearsal(root)
    if found is not None:
        return found
    if root.exists() and any(root.iterdir()):
        raise AlreadyExists(
            f"{root} is a real root, and it cannot become a rehearsal",
            why="what is recorded there is fact",
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
            f"{root} is no rehearsal",
            why="a real root goes by the machine's clock",
            fix="set up a folder to rehearse in: ebb init --rehearsal FOLDER",
        )
    # The folder is locked, not the file, which is replaced: of two who advance at once each one counts.
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
    """The clock of a rehearsal root: the machine's, and as far ahead as the root says at this moment."""

    root: Path
    machine: Clock

    def __call__(self) -> datetime:
        """Say what time it is in the rehearsal; if that is not known, stop."""
        found = find_rehearsal(self.root)
        if found is None:
            raise MetadataError(
                f"{self.root / _FILE} is gone",
                why="without it nobody knows what time it is in this rehearsal",
                fix="set up a new folder with 'ebb init --rehearsal'",
            )
        return self.machine() + found.ahead
