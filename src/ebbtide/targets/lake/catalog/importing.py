"""Checking entries that come as tables and not through staging, before they become part of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.errors import BadInput, Refused
from ebbtide.storage.address import canonical, is_full
from ebbtide.storage.namespace import encloses
from ebbtide.targets.lake.catalog.model import Repository, RetiredRepository
from ebbtide.targets.lake.catalog.names import MAX_KEY_BYTES
from ebbtide.targets.lake.catalog.ranges import ENTRIES, METADATA, Table
from ebbtide.targets.lake.catalog.segments import CHANGES

Neighbour = Repository | RetiredRepository
"""Whoever may delete what lies in a namespace: a repository, or what is left of one."""

_PLAIN = r"^[A-Za-z0-9_=-][A-Za-z0-9_=.-]*(/[A-Za-z0-9_=-][A-Za-z0-9_=.-]*)*$"
"""Relative addresses of this form are canonical as they are; only others are looked at one by one."""


def checked(tables: Iterable[Table], namespace: str, others: Sequence[Neighbour]) -> Iterator[Table]:
    """Turn tables of entries into changes; refuse wrong columns, order, keys and addresses."""
    last: str | None = None
    for table in tables:
        if table.num_rows == 0:
            continue
        rows = _entries(table)
        keys = rows.column("key").combine_chunks()
        first = keys[0].as_py()
        ascending = pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py()
        if ascending is False or (last is not None and first <= last):
            raise BadInput(
                "the imported keys do not ascend",
                why="a range holds its keys in order, each once",
                fix="sort by key and drop duplicates, over all tables",
            )
        last = keys[-1].as_py()
        _check_keys(keys)
        _check_addresses(rows.column("address"), namespace, others)
        yield (
            rows.append_column("tombstone", pa.repeat(False, rows.num_rows))
            .select(CHANGES.names)
            .cast(CHANGES)
        )


class OwnAddresses:
    """Watches a stream of entries for addresses that the catalog itself gave out."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.seen = False

    def watched(self, tables: Iterable[Table]) -> Iterator[Table]:
        """Pass tables on, and see whether they have such an address."""
        for table in tables:
            found = pc.starts_with(table.column("address"), self._prefix)
            self.seen = self.seen or bool(pc.any(found).as_py())
            yield table


def check_foreign(address: str, others: Sequence[Neighbour]) -> None:
    """Refuse an address inside another repository's namespace: its runs do not know who else needs it."""
    for other in others if is_full(address) else ():
        if encloses(other.namespace, address):
            kind = "deleted repository" if isinstance(other, RetiredRepository) else "repository"
            raise Refused(
                f"{address!r} lies inside the namespace of {kind} {other.name!r}",
                why=f"runs over {other.name!r} would delete it without knowing of this reference",
                fix="copy the object to a place of its own, and refer to that",
            )


def _entries(table: Table) -> Table:
    """Take the columns of an entry, in their types, without nulls."""
    try:
        return table.select(ENTRIES.names).cast(ENTRIES)
    except (KeyError, ValueError, TypeError, pa.ArrowException) as wrong:
        raise BadInput(
            "the imported table has not the columns of an entry",
            why=str(wrong),
            fix=f"give {', '.join(f'{f.name}: {f.type}' for f in ENTRIES)}, without nulls",
        ) from wrong


def _check_keys(keys: pa.Array) -> None:
    """Refuse keys that staging would refuse too."""
    lengths = pc.binary_length(keys)
    bad = pc.or_(pc.equal(lengths, 0), pc.greater(lengths, MAX_KEY_BYTES))
    if pc.any(pc.or_(bad, pc.match_substring(keys, "\0"))).as_py():
        raise BadInput(
            "an imported key is empty, too long or has a NUL",
            why=f"a key is 1 to {MAX_KEY_BYTES} bytes of UTF-8 without NUL",
            fix="rename it",
        )


def _check_addresses(addresses: pa.ChunkedArray, namespace: str, others: Sequence[Neighbour]) -> None:
    """Refuse an address that a listing would spell in another way, of another repository, or of metadata."""
    for address in addresses.filter(pc.starts_with(addresses, METADATA)).slice(0, 1).to_pylist():
        raise BadInput(
            f"the imported address {address!r} lies below {METADATA}",
            why="metadata and the recycle bin are there: the bin's expiry would delete it",
            fix="restore the object first, or copy it to a place of its own",
        )
    unusual = addresses.filter(pc.invert(pc.match_substring_regex(addresses, _PLAIN)))
    for address in unusual.to_pylist():
        check_foreign(address, others)
        if is_full(address) and encloses(namespace, address):
            raise BadInput(
                f"the imported address {address!r} lies inside the namespace",
                why="a run knows the object by its relative address and would take it for garbage",
                fix="give the address relative to the namespace",
            )
        if canonical(address, namespace) != address:
            raise BadInput(
                f"the imported address {address!r} is not canonical",
                why="a run compares addresses as text and would take its object for garbage",
                fix=f"write it as {canonical(address, namespace)!r}",
            )
