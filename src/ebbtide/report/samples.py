"""Sample rows of the decision and outcome tables, made ready to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from ebbtide.core.decision import Decision
from ebbtide.core.format import human_bytes, moment
from ebbtide.report.names import Name, name, names

Row = Mapping[str, object]
"""A row with the column names of DECISIONS or OUTCOMES."""


@dataclass(frozen=True)
class DecisionRow:
    """What a plan says of one object; one that is held has a reason."""

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
    """An object that should be gone and is not."""

    address: Name
    outcome: Name
    reason: Name
    rules: tuple[Name, ...]
    size: str
    at: str


def decision_row(row: Row) -> DecisionRow:
    """Read a row of DECISIONS; a column that is missing or null reads as absent."""
    paths = names(row.get("paths"))
    return DecisionRow(
        path=paths[0] if paths else name(None, absent="(no path)"),
        more_paths=paths[1:],
        address=_place(row),
        rules=names(row.get("rules")),
        reason=name(row.get("reason")),
        held_by=name(row.get("held_by"), absent="–"),
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
    """Name where an object is; in a bucket its key says that, so what is done with which version."""
    task = row.get("task")
    if not isinstance(task, Mapping):
        return name(row.get("address"))
    goal = f" to {task['goal']}" if task.get("goal") else ""
    doing = f"{task.get('action')}{goal}" if row.get("decision") != Decision.HELD else ""
    version = f"version {task['version']}" if task.get("version") else ""
    return name(", ".join(part for part in (doing, version) if part) or row.get("address"))


def example_path(*samples: Sequence[Row]) -> str | None:
    """Find a path that is short and plain enough to be an example on a command line."""
    for row in chain(*samples):
        for path in names(row.get("paths")):
            if len(path.full) <= 60 and path.full.isascii() and "\\" not in path.full:
                return path.full
    return None


def _moment(value: object, *, absent: str) -> str:
    return moment(value) if isinstance(value, datetime) else absent


def _size(value: object) -> str:
    return human_bytes(value) if isinstance(value, int) else "unknown"
