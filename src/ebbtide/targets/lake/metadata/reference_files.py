"""
Reference files: every range is decoded, checked and hashed once, and what came out is kept beside the runs.

A range never changes, so neither does what it references. A range has two files: `rows`, what the entries
say, and `hashes`, the hashes of their addresses alone, so that a run which looks for a few addresses need
not open the rest. A file that is missing or damaged is made again from the range itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.errors import MetadataError
from ebbtide.engine.sealed import mark_used, read_sealed, write_sealed
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.storage.address import canonical_column
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import read_range

_COLUMNS = ("key", "address", "created", "size")
_WRITING = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class ReferenceFiles:
    """The decoded ranges of one namespace; without a folder nothing is kept and all comes from the store."""

    folder: Path | None
    store: StoreSpec
    namespace: str

    def rows(self, kind: str, info: RangeInfo) -> Any:
        """Give a range's rows: key, canonical address, created, size, doubtful, hash."""
        content = read_sealed(self._file(info, "rows")) if self.folder else None
        table = None if content is None else pa.ipc.open_stream(content).read_all()
        # A metarange that speaks of another number of rows is told so by reading the range itself.
        return table if table is not None and table.num_rows == info.count else self._decode(kind, info)

    def hashes(self, kind: str, info: RangeInfo) -> Any:
        """Give the hashes of a range's addresses, in the order of its rows."""
        content = read_sealed(self._file(info, "hashes")) if self.folder else None
        hashes = None if content is None else np.frombuffer(content, dtype=np.int64)
        if hashes is not None and len(hashes) == info.count:
            return hashes
        return np.asarray(self._decode(kind, info).column("hash"))

    def ensure(self, kind: str, info: RangeInfo, *, again: bool) -> bool:
        """See to it that a range is decoded; tell whether it had to be."""
        files = [self._file(info, part) for part in ("rows", "hashes")]
        try:
            if not again:
                for file in files:
                    mark_used(file)
                return False
        except FileNotFoundError:
            pass
        self._decode(kind, info)
        return True

    def _decode(self, kind: str, info: RangeInfo) -> Any:
        """Read a range from the store, and keep what it says."""
        table = read_range(open_store(self.store), kind, info, _COLUMNS).combine_chunks()
        _check_sorted(info, table.column("key"))
        table = _with_canonical_addresses(table, self.namespace)
        hashes = hash_addresses(table.column("address").to_pylist())
        table = table.append_column("hash", pa.array(hashes))
        if self.folder:
            file = self._file(info, "rows")
            file.parent.mkdir(parents=True, exist_ok=True)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema, options=_WRITING) as writer:
                writer.write_table(table)
            write_sealed(file, sink.getvalue().to_pybytes())
            write_sealed(self._file(info, "hashes"), hashes.tobytes())
        return table

    def _file(self, info: RangeInfo, part: str) -> Path:
        # A range's name is the digest of its bytes: whatever folder it lies in, it is the same range.
        assert self.folder is not None  # noqa: S101 - asked only where there is one
        return self.folder / info.id[:2] / f"{info.id}.{part}"


def _check_sorted(info: RangeInfo, keys: Any) -> None:
    # Bisection on keys that are not sorted would give rules to keys that they do not match.
    # A staged range may hold a key twice: once from a commit under way, once from after it began.
    if len(keys) > 1 and not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        raise MetadataError(f"range {info.id} is not sorted by key", fix="restore it from a backup")


def _with_canonical_addresses(table: Any, namespace: str) -> Any:
    """Give addresses their canonical form and mark those that may name another object than that form."""
    raw = table.column("address")
    address = canonical_column(raw, namespace)
    doubtful = np.zeros(table.num_rows, dtype=bool)
    for i in np.flatnonzero(np.asarray(pc.not_equal(raw.combine_chunks(), address))):
        # A full URL that ends in the very same key names the same object; any other spelling may not.
        doubtful[i] = not raw[i].as_py().endswith("/" + address[i].as_py())
    return table.set_column(1, "address", address).append_column("doubtful", pa.array(doubtful))
