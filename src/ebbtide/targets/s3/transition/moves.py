"""
The manifest of moves: where versions went.

It is files and no database: an executor must write down where a version is *before* it removes the original,
and executors on many machines cannot share SQLite. So every writer appends JSON lines to files of its own
under the state root, which all nodes share, and each line is on disk before anything else happens. The
files are dealt over 256 folders by the key's hash; looking a key up reads one of them.
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
    """How far a move has come."""

    COPIED = "copied"
    """A whole copy is at the location; the original may still be there too."""
    MOVED = "moved"
    """The original is removed."""
    WITHDRAWN = "withdrawn"
    """The original changed before it was removed, so it stays, and the copy goes."""


@dataclass(frozen=True)
class Move:
    """One line of the manifest: a version, where it went, how far, and who says so."""

    bucket: str
    key: str
    version: str
    etag: str
    size: int
    modified: str
    """When the version was written; a copy has a time of its own."""
    location: str
    url: str
    rules: tuple[str, ...]
    run: int | None
    wave: int | None
    stage: Stage
    at: str
    writer: str

    def is_about(self, other: Move) -> bool:
        """Tell whether two lines speak of the same version and the same copy."""
        return (self.version, self.etag, self.url) == (other.version, other.etag, other.url)


@dataclass(frozen=True)
class Moves:
    """The manifest under a state root."""

    root: Path

    def append(self, move: Move) -> None:
        """Write a line down for good; when this returns a power cut cannot take it back."""
        folder = self._folder(move.bucket, move.key)
        file = folder / f"{move.writer}.jsonl"
        # A line begins with a break of its own: one that was cut off by a full disk must not swallow it.
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

    def lines(self, bucket: str, key: str) -> Iterator[Move]:
        """Give all lines about a key; those of one writer in their order."""
        folder = self._folder(bucket, key)
        try:
            for file in sorted(folder.glob("*.jsonl")):
                yield from (move for move in _read(file) if move.key == key)
        except OSError as broken:
            raise MetadataError(f"{folder} cannot be read: {broken.strerror}") from None

    def where(self, bucket: str, key: str) -> list[Move]:
        """Say where the versions of a key went, the last move first."""
        return sorted(standing(self.lines(bucket, key)), key=lambda move: move.at, reverse=True)

    def _folder(self, bucket: str, key: str) -> Path:
        shard = sha256(key.encode()).hexdigest()[:2]
        return self.root / _FOLDER / bucket / shard


def standing(lines: Iterable[Move]) -> list[Move]:
    """
    Add the lines up: of each copy the furthest stage that a writer has come to.

    What a writer says last replaces what it said before; no clocks of two machines are compared.
    """
    last: dict[tuple[str, str, str, str], Move] = {}
    for move in lines:
        last[move.version, move.etag, move.url, move.writer] = move
    found: dict[tuple[str, str, str], Move] = {}
    for move in last.values():
        place = (move.version, move.etag, move.url)
        known = found.get(place)
        if move.stage is not Stage.WITHDRAWN and (known is None or move.stage is Stage.MOVED):
            found[place] = move
    return list(found.values())


def others_hold(lines: Iterable[Move], own: Move) -> bool:
    """Tell whether another writer counts on the same copy."""
    return any(move.is_about(own) for move in standing(line for line in lines if line.writer != own.writer))


def others_withdrew(lines: Iterable[Move], own: Move) -> bool:
    """
    Tell whether another writer was about to remove the same copy, and so may still do it.

    A writer of another run that said so long ago is at work no more: it left the copy behind.
    """
    return any(
        move.stage is Stage.WITHDRAWN
        and move.writer != own.writer
        and move.is_about(own)
        and (move.run == own.run or abs(_time(own) - _time(move)) < _LONG_AGO)
        for move in lines
    )


def _time(move: Move) -> datetime:
    return datetime.fromisoformat(move.at)


def _read(file: Path) -> Iterator[Move]:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found = json.loads(line)
            yield replace(Move(**found), rules=tuple(found["rules"]), stage=Stage(found["stage"]))
        except (ValueError, TypeError, KeyError):
            # A line that was cut off was never acted upon: its writer did not go on to the original.
            continue


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
