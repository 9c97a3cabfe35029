"""
What registries tell: the notifications of Docker's distribution, read strictly.

Pulls are left out, because a scan itself counts as one, and so is all that is not about a manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.names import is_digest, is_repository, is_tag

PUSH, DELETE = "push", "delete"
LARGEST_ENVELOPE = 8 * 2**20
_BLOB = "application/octet-stream"
_UNSET = 1
"""The year of a time that a registry has not set."""


@dataclass(frozen=True)
class Event:
    """A manifest was pushed or deleted, under a tag or by its digest; of a delete only one may be told."""

    action: str
    repository: str
    tag: str
    """Empty if it was pushed or deleted by its digest."""
    digest: str
    at: datetime


def read_events(body: bytes) -> list[Event]:
    """Read an envelope of events; BadInput if it is none, and then nothing in it counts."""
    if len(body) > LARGEST_ENVELOPE:
        raise _bad(f"it is larger than {LARGEST_ENVELOPE} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _bad("it is not JSON") from None
    rows = document.get("events") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise _bad("it has no list of events")
    return [event for row in rows for event in _read(row)]


def _read(row: object) -> Sequence[Event]:
    """Read one event; none if it is of no use here."""
    if not isinstance(row, Mapping):
        raise _bad("an event is no object")
    action, target = row.get("action"), row.get("target")
    if not isinstance(action, str):
        raise _bad("an event has no action")
    if action not in (PUSH, DELETE):
        return ()
    if not isinstance(target, Mapping):
        raise _bad(f"a {action} has no target")
    if target.get("mediaType") == _BLOB or "/blobs/" in str(target.get("url") or ""):
        return ()
    tag, digest = _name(target, "tag", is_tag), _name(target, "digest", is_digest)
    repository = _name(target, "repository", is_repository)
    if not repository or not (digest or (action == DELETE and tag)):
        raise _bad(f"a {action} does not say what it is about")
    return (Event(action, repository, tag, digest, _time(row)),)


def _name(target: Mapping[str, Any], name: str, is_good: Any) -> str:
    value = target.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not is_good(value):
        raise _bad(f"{str(value)[:200]!r} is no {name}")
    return value


def _time(row: Mapping[str, Any]) -> datetime:
    text = row.get("timestamp")
    try:
        found = parse_instant(text) if isinstance(text, str) else None
    except BadInput:
        found = None
    if found is None or found.year == _UNSET:
        raise _bad("an event has no time")
    return found


def _bad(why: str) -> BadInput:
    return BadInput(
        "a notification cannot be understood", why=why, fix="send notifications of the distribution registry"
    )
