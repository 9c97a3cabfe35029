"""The inventory of a store: listed on the executors, one prefix at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.engine.tables.contracts import INVENTORY
from ebbtide.engine.tables.digest import address_hash
from ebbtide.storage.address import canonical_column
from ebbtide.storage.store import Store, StoreSpec, open_store

_TASKS_A_CORE = 8
_ROWS = "key string, same boolean, other string, size bigint, last_modified timestamp, etag string"


def inventory(
    prefixes: DataFrame, store: StoreSpec, namespace: str | None, *, merged: bool = False
) -> DataFrame:
    """
    List prefixes of a store, each in one task; a listing that fails half-way stops the job.

    A prefix that does not end with a slash is the key of one object, and only that object is listed. A key
    that is not spelled as its canonical address has no address and no hash: Ebbtide never writes such a key,
    so there is nothing to compare it with, and callers leave it alone. With `merged` it has the address that
    all its spellings share, to find objects under any spelling.
    """
    rows = _dealt(prefixes).mapInArrow(_Lister(store, namespace, merged), _ROWS)
    # Nearly every key is its own address, so equal strings are not sent from Python twice.
    address = f.when(f.col("same"), f.col("key")).otherwise(f.col("other"))
    listed = rows.withColumn("address", address)
    # Spark hashes a null like any value, so that it would be compared.
    hashed = f.when(f.col("address").isNotNull(), address_hash("address"))
    return INVENTORY.check(listed.withColumn("hash", hashed))


def _dealt(prefixes: DataFrame) -> DataFrame:
    """
    Distribute prefixes round-robin so that the numbers of prefixes per task differ by at most one.

    How long a listing is, is known only afterwards; so tasks are small, and a core that is done early takes
    the next. The numbers force one order: without them Spark would skip this repartition.
    """
    cores = prefixes.sparkSession.sparkContext.defaultParallelism
    tasks = max(1, min(_TASKS_A_CORE * cores, prefixes.count()))
    numbered = prefixes.select("prefix", f.row_number().over(Window.orderBy("prefix")).alias("number"))
    return numbered.repartition(tasks)


@dataclass(frozen=True)
class _Lister:
    """Lists prefixes on an executor."""

    store: StoreSpec
    namespace: str | None
    merged: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for prefix in batch.column("prefix").to_pylist():
                for found in store.list(prefix) if _is_folder(prefix) else _one(store, prefix):
                    yield self._with_addresses(found)

    def _with_addresses(self, found: Any) -> Any:
        keys = found.column("key")
        address = canonical_column(keys, self.namespace, odd_as_null=True)
        same = _are_same(keys, address)
        columns = {
            "key": keys,
            "same": same,
            "other": pc.if_else(same, None, address) if self.merged else pa.nulls(len(keys), pa.string()),
            "size": found.column("size"),
            "last_modified": found.column("last_modified"),
            "etag": found.column("etag"),
        }
        return pa.RecordBatch.from_pydict(columns)


def are_addresses(keys: Any, namespace: str) -> Any:
    """Return for each key whether it is spelled as its canonical address, as Ebbtide writes all keys."""
    return _are_same(keys, canonical_column(keys, namespace, odd_as_null=True))


def _are_same(keys: Any, addresses: Any) -> Any:
    # A key may look like a URL; an address that looks like this names another object.
    inside = pc.invert(pc.match_substring(addresses, "://"))
    return pc.fill_null(pc.and_(pc.equal(addresses, keys), inside), False)


def _is_folder(prefix: str) -> bool:
    return not prefix or prefix.endswith("/")


def _one(store: Store, key: str) -> Iterator[Any]:
    """List one object; in key order it comes before all others whose keys start with its key."""
    for found in store.list(key):
        if found.num_rows:
            if found.column("key")[0].as_py() == key:
                yield found.slice(0, 1)
            return
