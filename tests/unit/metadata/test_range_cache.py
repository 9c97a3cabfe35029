"""The range cache: what decoders may give it, and what stops a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ebbtide.core.errors import MetadataError
from ebbtide.targets.repository.model import COMMITTED, RangeInfo
from ebbtide.targets.repository.range_cache import RangeCache

NAMESPACE = "s3://bucket/ns"


@dataclass(frozen=True)
class Decoder:
    """Gives one table for every range."""

    table: Any

    def ranges(self, source: str, metarange_id: str) -> Any:
        """Give nothing."""
        raise NotImplementedError(source, metarange_id)

    def entries(self, source: str, info: RangeInfo) -> Any:
        """Give the table."""
        assert (COMMITTED, "r") == (source, info.id)
        return self.table


def cache(keys: list[Any], addresses: list[Any]) -> RangeCache:
    """Make a cache, without a folder, of a range with these keys and addresses."""
    moment = pa.scalar(datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "address": addresses,
            "key": keys,
            "more": ["?"] * len(keys),
            "size": [1] * len(keys),
            "created": pa.repeat(moment, len(keys)),
        }
    )
    return RangeCache(None, Decoder(table), NAMESPACE)


def rows(keys: list[Any], addresses: list[Any], count: int | None = None) -> list[tuple[Any, ...]]:
    """Give key, address and doubt of each decoded row."""
    info = RangeInfo("r", "", "z", len(keys) if count is None else count)
    found = cache(keys, addresses).rows(COMMITTED, info).to_pylist()
    return [(row["key"], row["address"], row["doubtful"]) for row in found]


def test_bytes_are_read_as_text():
    """Keys and addresses may come as bytes; what is UTF-8 means the same as text."""
    text = rows(["a", "é"], ["x", f"{NAMESPACE}/y"])

    assert text == rows([b"a", "é".encode()], [b"x", f"{NAMESPACE}/y".encode()])
    assert [("a", "x", False), ("é", "y", False)] == text


def test_a_key_that_is_no_text_keeps_its_object():
    """Its object is held for ever, for no prefix can be compared with such a key; others are not."""
    found = rows([b"a", b"raw/\xc3\xa9", b"raw/\xff", b"z"], [b"1", b"2", b"3", b"4"])

    assert [("a", "1", False), ("raw/\\xff", "3", True), ("raw/é", "2", False), ("z", "4", False)] == found


def test_an_address_that_is_no_text_stops_the_run():
    """It cannot be compared with a listing, and then its object would look unreferenced."""
    with pytest.raises(MetadataError, match="address that is not UTF-8"):
        rows([b"a"], [b"\xff"])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_range_with_another_number_of_entries_stops_the_run(count):
    """A decoder that gives more or fewer entries than the metarange says is not believed."""
    with pytest.raises(MetadataError, match="has 2 entries, its metarange says"):
        rows(["a", "b"], ["1", "2"], count)


def test_keys_that_are_not_sorted_stop_the_run():
    """Rules are applied by bisection, which needs sorted keys."""
    with pytest.raises(MetadataError, match="not sorted"):
        rows(["b", "a"], ["1", "2"])
