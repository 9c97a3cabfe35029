"""
The range cache: every range is decoded, checked and hashed once, and the result is kept in the state root.

A range never changes, so neither does what it references. A range has two files: `rows`, its entries, and
`hashes`, only the hashes of their addresses, so that a run that looks for a few addresses does not open the
rest. A file that is missing or damaged is made again from the range itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.errors import MetadataError
from ebbtide.engine.files import mark_used, read_sealed, write_sealed
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.storage.address import canonical_column
from ebbtide.targets.repository.model import RangeInfo
from ebbtide.targets.repository.protocol import RangeDecoder

_COLUMNS = ["key", "address", "created", "size"]
_WRITING = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class RangeCache:
    """The decoded ranges of one namespace; without a folder nothing is kept and every range is decoded."""

    folder: Path | None
    decoder: RangeDecoder
    namespace: str

    def rows(self, source: str, info: RangeInfo) -> Any:
        """Return the rows of a range: key, canonical address, created, size, doubtful, hash."""
        content = read_sealed(self._file(info, "rows")) if self.folder else None
        table = None if content is None else pa.ipc.open_stream(content).read_all()
        # If a metarange states another number of rows, decoding the range itself reports it.
        return table if table is not None and table.num_rows == info.count else self._decode(source, info)

    def hashes(self, source: str, info: RangeInfo) -> Any:
        """Return the hashes of the addresses of a range, in the order of its rows."""
        content = read_sealed(self._file(info, "hashes")) if self.folder else None
        hashes = None if content is None else np.frombuffer(content, dtype=np.int64)
        if hashes is not None and len(hashes) == info.count:
            return hashes
        return np.asarray(self._decode(source, info).column("hash"))

    def ensure(self, source: str, info: RangeInfo, *, again: bool) -> bool:
        """Decode a range if it is not in the cache, or `again`; return True if it was decoded."""
        files = [self._file(info, part) for part in ("rows", "hashes")]
        try:
            if not again:
                for file in files:
                    mark_used(file)
                return False
        except FileNotFoundError:
            pass
        self._decode(source, info)
        return True

    def _decode(self, source: str, info: RangeInfo) -> Any:
        """Decode a range, check it, and keep the result."""
        table = self.decoder.entries(source, info).select(_COLUMNS).combine_chunks()
        if table.num_rows != info.count:
            raise MetadataError(
                f"range {info.id} has {table.num_rows} entries, its metarange says {info.count}",
                why="a reference may be missing",
                fix="restore the file from a backup of the namespace, then plan again",
            )
        table, escaped = _as_text(info, table)
        _check_sorted(info, table.column("key"))
        table = _with_canonical_addresses(table, self.namespace, escaped)
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
        # A range's id identifies its content: whatever its source, it is the same range.
        assert self.folder is not None  # noqa: S101 - asked only where there is one
        return self.folder / info.id[:2] / f"{info.id}.{part}"


def _as_text(info: RangeInfo, table: Any) -> tuple[Any, Any]:
    """
    Turn binary keys and addresses into text, and mark the rows whose key is not UTF-8.

    Escapes change the order of keys, so such a table is sorted again. Marked rows keep their object forever,
    because prefixes of rules cannot be compared with their keys. An address must be text: if it could not be
    compared with a listing, its object would look unreferenced.
    """
    escaped = np.zeros(table.num_rows, dtype=bool)
    if _is_binary(table.column("address")):
        try:
            addresses = [value.decode() for value in table.column("address").to_pylist()]
        except UnicodeDecodeError as broken:
            raise MetadataError(
                f"range {info.id} has an address that is not UTF-8",
                why="it cannot be compared with what the store lists, so nothing may be deleted",
                fix="rename the object, or exclude the repository",
            ) from broken
        table = table.set_column(1, "address", pa.array(addresses, pa.string()))
    if _is_binary(table.column("key")):
        raw = table.column("key").to_pylist()
        keys = [value.decode(errors="backslashreplace") for value in raw]
        escaped = np.array([key.encode() != value for key, value in zip(keys, raw, strict=True)], dtype=bool)
        table = table.set_column(0, "key", pa.array(keys, pa.string()))
    if escaped.any():
        marked = table.append_column("escaped", pa.array(escaped)).sort_by("key").combine_chunks()
        return marked.drop_columns(["escaped"]), np.asarray(marked.column("escaped"))
    return table, escaped


def _is_binary(column: Any) -> bool:
    return bool(pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type))


def _check_sorted(info: RangeInfo, keys: Any) -> None:
    # Bisection on keys that are not sorted would apply rules to keys that they do not match.
    # A staged range may hold a key twice: once from a commit under way, once from after it began.
    if len(keys) > 1 and not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        raise MetadataError(f"range {info.id} is not sorted by key", fix="restore it from a backup")


def _with_canonical_addresses(table: Any, namespace: str, escaped: Any) -> Any:
    """Make addresses canonical and mark as doubtful those that may name another object than that form."""
    raw = table.column("address")
    address = canonical_column(raw, namespace)
    doubtful = escaped.copy()
    for i in np.flatnonzero(np.asarray(pc.not_equal(raw.combine_chunks(), address))):
        # A full URL that ends with the same key names the same object; any other spelling may not.
        doubtful[i] |= not raw[i].as_py().endswith("/" + address[i].as_py())
    return table.set_column(1, "address", address).append_column("doubtful", pa.array(doubtful))
