"""
Physical addresses: ``repos/<repo_uid>/branches/<branch_id>/<partition>/<object_uid>``.

A partition is named ``<descending time>_<instance>``, so in a listing the newest comes first and a scan that
has seen the older ones can stop early.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ebbtide.core.instant import NEVER, Clock, from_micros, to_micros

_END_OF_TIME = to_micros(NEVER)
_BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
_DIGITS = len(str(_END_OF_TIME))

PARTITION_LIFE = timedelta(hours=1)


BRANCHES = "branches/"
_PARTITION = re.compile(rf"(\d{{{_DIGITS}}})_[0-9a-f]{{12}}", re.ASCII)
_OBJECT = r"[0-9a-f]{32}"


def repository_path(repo_uid: str) -> str:
    """Return the folder of a repository's objects."""
    return f"repos/{repo_uid}/"


def branch_path(repo_uid: str, branch_id: str) -> str:
    """Return the folder of a branch's objects."""
    return f"{repository_path(repo_uid)}{BRANCHES}{branch_id}/"


def partition_began(name: str) -> datetime | None:
    """Return when a partition was begun; None if this is not the name of a partition."""
    found = _PARTITION.fullmatch(name)
    try:
        return from_micros(_END_OF_TIME - int(found[1])) if found else None
    except OverflowError:
        # A made-up name with an impossible time must not stop a listing.
        return _BEGINNING_OF_TIME


def object_pattern(repo_uid: str) -> str:
    """Return the pattern of a repository's data objects; no run removes anything else."""
    return rf"^{re.escape(repository_path(repo_uid))}{BRANCHES}([^/]+)/({_PARTITION.pattern})/{_OBJECT}$"


@dataclass
class _Open:
    """The partition that a branch is writing to."""

    rank: int
    opened: datetime
    used: int


class Partitions:
    """Gives out addresses; starts a new partition after a number of objects or an hour. Thread-safe."""

    def __init__(self, clock: Clock, objects: int) -> None:
        self._clock = clock
        self._objects = objects
        self._instance = uuid.uuid4().hex[:12]
        self._open: dict[str, _Open] = {}
        self._lock = threading.Lock()

    def address(self, repo_uid: str, branch_id: str) -> str:
        """Return an address that was never given out before."""
        partition = self._partition(branch_id)
        return f"{branch_path(repo_uid, branch_id)}{partition}/{os.urandom(16).hex()}"

    def _partition(self, branch_id: str) -> str:
        """Return the partition for the next object, and count the object."""
        now = self._clock()
        with self._lock:
            found = self._open.get(branch_id)
            if found is None or self._is_full(found, now):
                rank = _END_OF_TIME - to_micros(now)
                if found is not None:
                    # A clock that stands still or goes back must not reopen a partition, nor sort a
                    # new one behind an old one.
                    rank = min(rank, found.rank - 1)
                found = self._open[branch_id] = _Open(rank, now, 0)
            found.used += 1
            return f"{found.rank:0{_DIGITS}d}_{self._instance}"

    def _is_full(self, partition: _Open, now: datetime) -> bool:
        """Return True if it is time for a new partition."""
        return partition.used >= self._objects or now - partition.opened >= PARTITION_LIFE
