"""Hashes of addresses, the anti-join by hash, and digests of tables that ignore the order of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xxhash
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

_SEED = 42
_CHUNKS = 4
_CHUNK_DIGITS = 15


def address_hash(address: Column | str) -> Column:
    """
    Hash a canonical address to 64 bits, the key of every join between items and references.

    A collision can only make garbage look referenced, never something live look like garbage.
    """
    return f.xxhash64(address)


def hash_addresses(addresses: Iterable[str]) -> Any:
    """Return the same numbers as `address_hash`, as an array, for addresses outside Spark."""
    hashed = (xxhash.xxh64_intdigest(address.encode(), _SEED) for address in addresses)
    return np.fromiter(hashed, dtype=np.uint64).view(np.int64)


def table_digest(frame: DataFrame, columns: list[str]) -> str:
    """
    Digest a multiset of rows: SHA-256 of each row, summed in four chunks of 60 bits.

    Sums do not depend on order, so the digest needs no sort and no shuffle of the rows.
    """
    sums = frame.agg(f.count(f.lit(1)).alias("rows"), *digest_totals(columns)).toArrow().to_pylist()[0]
    return digest_of(sums)


def digest_totals(columns: list[str]) -> list[Column]:
    """Return the aggregates that, with the number of `rows`, make the digest of a table."""
    row = f.sha2(f.to_json(f.struct(*columns), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"}), 256)
    return [
        f.sum(
            f.conv(f.substring(row, 1 + i * _CHUNK_DIGITS, _CHUNK_DIGITS), 16, 10).cast("decimal(38,0)")
        ).alias(f"c{i}")
        for i in range(_CHUNKS)
    ]


def digest_of(sums: Mapping[str, Any]) -> str:
    """Return the digest of a table from the aggregates of its rows."""
    return _digest(str(sums[name] or 0) for name in ["rows", *(f"c{i}" for i in range(_CHUNKS))])


def _digest(sums: Iterable[str]) -> str:
    return hashlib.sha256("|".join(sums).encode()).hexdigest()


EMPTY = _digest(["0"] * (1 + _CHUNKS))
"""The digest of a table without rows."""


def without(rows: DataFrame, others: DataFrame, on: Sequence[str] = ("hash",)) -> DataFrame:
    """
    Return the rows whose hash is in no row of the others.

    Safe because a collision can only make garbage look referenced, and so keep it. A row without a hash
    cannot be compared and would look unreferenced, so it is left out.
    """
    known = rows.dropna(subset=list(on))
    return known.join(others.select(*on).hint("shuffle_hash"), list(on), "left_anti")
