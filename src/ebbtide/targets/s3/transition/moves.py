"""
The log of moves: where versions were moved to.

It consists of files, because an executor must record where a version is *before* it removes the original, and
executors on many machines cannot share SQLite. Each writer appends JSON lines to its own files under the
state root, which all nodes share, and each line is on disk before the move continues. The files are spread
over 256 folders by the hash of the key, so that a lookup reads one folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from threading import Lock

from ebbtide.core.errors import MetadataError

_FOLDER = "moves"
_LONG_AGO = timedelta(hours=1)
_appending = Lock()


class Stage(StrEnum):
    """How far a move has progressed."""

    COPIED = "copied"
    """A complete copy is at the location; the original may still exist."""
    MOVED = "moved"
    """The original is removed."""
    WITHDRAWN = "withdrawn"
    """The original changed before it was removed, so it stays and the copy is removed."""


@dataclass(frozen=True)
class MoveRecord:
    """One line of the log: a version, where it went, how far the move is, and the writer."""

    bucket: str
    key: str
    version: str
    etag: str
    size: int
    modified: str
    """When the version was written; the copy has another time."""
    location: str
    url: str
    rules: tuple[str, ...]
    run: int | None
    wave: int | None
    """The batch. Lines keep the name of earlier versions, which would skip a line with another key."""
    stage: Stage
    at: str
    writer: str

    def is_about(self, other: MoveRecord) -> bool:
        """Return True if two records are about the same version and the same copy."""
        return (self.version, self.etag, self.url) == (other.version, other.etag, other.url)


@dataclass(frozen=True)
class MoveLog:
    """The log of moves under a state root."""

    root: Path

    def append(self, move: MoveRecord) -> None:
        """Append a record durably: after this returns it survives a power failure."""
        folder = self._folder(move.bucket, move.key)
        file = folder / f"{move.writer}.jsonl"
        # A line starts with a line break, so that a line truncated by a full disk does not damage it.
        line = "\n" + json.dumps(asdict(move), ensure_ascii=True) + "\n"
        with _appending:
            known = file.exists()
            folder.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="ascii") as out:
                out.write(line)
                out.flush()
                os.fsync(out.fileno())
            if not known:
                for parent in (folder, *list(folder.parents)[:3]):
                    _sync_folder(parent)

    def lines(self, bucket: str, key: str) -> Iterator[MoveRecord]:
        """Yield all records of a key; those of one writer in their order."""
        folder = self._folder(bucket, key)
        try:
            for file in sorted(folder.glob("*.jsonl")):
                yield from (move for move in _read(file) if move.key == key)
        except OSError as broken:
            raise MetadataError(f"{folder} cannot be read: {broken.strerror}") from None

    def where(self, bucket: str, key: str) -> list[MoveRecord]:
        """Return where the versions of a key went, the latest move first."""
        return sorted(current_records(self.lines(bucket, key)), key=lambda move: move.at, reverse=True)

    def _folder(self, bucket: str, key: str) -> Path:
        shard = sha256(key.encode()).hexdigest()[:2]
        return self.root / _FOLDER / bucket / shard


def current_records(lines: Iterable[MoveRecord]) -> list[MoveRecord]:
    """
    Return one record per copy, with the furthest stage that a writer has reached.

    The last record of a writer replaces its earlier ones. The clocks of two machines are never compared.
    """
    last: dict[tuple[str, str, str, str], MoveRecord] = {}
    for move in lines:
        last[move.version, move.etag, move.url, move.writer] = move
    found: dict[tuple[str, str, str], MoveRecord] = {}
    for move in last.values():
        place = (move.version, move.etag, move.url)
        known = found.get(place)
        if move.stage is not Stage.WITHDRAWN and (known is None or move.stage is Stage.MOVED):
            found[place] = move
    return list(found.values())


def others_hold(lines: Iterable[MoveRecord], own: MoveRecord) -> bool:
    """Return True if another writer uses the same copy."""
    return any(
        move.is_about(own) for move in current_records(line for line in lines if line.writer != own.writer)
    )


def others_withdrew(lines: Iterable[MoveRecord], own: MoveRecord) -> bool:
    """
    Return True if another writer recorded that it removes the same copy, and may still do it.

    A record of another run that is more than an hour old is ignored: its writer left the copy behind.
    """
    return any(
        move.stage is Stage.WITHDRAWN
        and move.writer != own.writer
        and move.is_about(own)
        and (move.run == own.run or abs(_time(own) - _time(move)) < _LONG_AGO)
        for move in lines
    )


def _time(move: MoveRecord) -> datetime:
    return datetime.fromisoformat(move.at)


def _read(file: Path) -> Iterator[MoveRecord]:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found = json.loads(line)
            yield replace(MoveRecord(**found), rules=tuple(found["rules"]), stage=Stage(found["stage"]))
        except (ValueError, TypeError, KeyError):
            # A truncated line had no effect: its writer did not continue to the original.
            continue


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
