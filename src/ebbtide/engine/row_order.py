"""Putting a stream of rows in order, however many there are: sorted pieces on disk, merged when read."""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import IO, Any

Row = dict[str, Any]
_MOST_IN_MEMORY = 100_000


def in_order(rows: Iterable[Row], key: Callable[[Row], Any], most: int = _MOST_IN_MEMORY) -> Iterator[Row]:
    """Give rows in the order of a key; no more than `most` of them are in memory while they are sorted."""
    source = iter(rows)
    with ExitStack() as held:
        pieces: list[IO[bytes]] = []
        while piece := sorted(islice(source, most), key=key):
            if not pieces and len(piece) < most:
                yield from piece
                return
            file = held.enter_context(tempfile.TemporaryFile())
            for row in piece:
                pickle.dump(row, file)
            file.seek(0)
            pieces.append(file)
        yield from heapq.merge(*(_read(file) for file in pieces), key=key)


def _read(file: IO[bytes]) -> Iterator[Row]:
    while True:
        try:
            yield pickle.load(file)  # noqa: S301 - what this process wrote a moment ago
        except EOFError:
            return
