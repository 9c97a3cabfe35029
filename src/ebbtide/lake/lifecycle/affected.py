"""
Affected addresses: those whose references may differ from the last time they were added up.

They are kept as one sorted file, not in memory: executors map it and look their own hashes up in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

_MOST_BITS = 26
_HASHES = pa.schema([("world", pa.int32()), ("hash", pa.int64())])


def write_sorted(addresses: DataFrame, file: Path) -> int:
    """Write addresses as one sorted file, streaming through a single task, and count them."""
    in_order = addresses.distinct().repartition(1).sortWithinPartitions("world", "hash")
    written = in_order.mapInArrow(_SortedWriter(file), "rows long").toArrow().to_pylist()
    if not file.exists():
        # A partition without rows may never have come to the writer.
        _SortedWriter(file).write([])
    return sum(row["rows"] for row in written)


def is_affected(file: Path, world: int, hashes: Any) -> Any:
    """Say of each hash whether it is one of a world's affected addresses."""
    wanted, sieve = _of_world(file, world)
    found = sieve[hashes & (len(sieve) - 1)]
    # What passes the sieve is looked up; that is little, and the rest is certainly not wanted.
    passed = np.flatnonzero(found)
    if len(passed):
        places = np.minimum(np.searchsorted(wanted, hashes[passed]), len(wanted) - 1)
        found[passed] = wanted[places] == hashes[passed]
    return found


@lru_cache(4)
def _of_world(file: Path, world: int) -> tuple[Any, Any]:
    """Give a world's affected hashes, sorted, and a sieve of their lowest bits."""
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all().combine_chunks()
    numbers, hashes = np.asarray(table.column("world")), np.asarray(table.column("hash"))
    wanted = hashes[np.searchsorted(numbers, world) : np.searchsorted(numbers, world, side="right")]
    sieve = np.zeros(1 << min(_MOST_BITS, (16 * len(wanted)).bit_length()), dtype=bool)
    sieve[wanted & (len(sieve) - 1)] = True
    return wanted, sieve


@dataclass(frozen=True)
class _SortedWriter:
    """Writes the batches that come, as they come, into one Arrow file."""

    file: Path

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"rows": [self.write(batches)]})

    def write(self, batches: Iterable[Any]) -> int:
        """Write all batches; the file appears when it is whole."""
        fresh, rows = self.file.with_suffix(".tmp"), 0
        with pa.OSFile(str(fresh), "wb") as out, pa.ipc.new_file(out, _HASHES) as writer:
            for batch in batches:
                writer.write_batch(batch.cast(_HASHES))
                rows += batch.num_rows
        fresh.replace(self.file)
        return rows
