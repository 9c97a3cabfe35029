"""The rows of a bucket's plan, as the deleter works with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

NULL = "null"
"""The version of what was written without versioning. It is the only one that can be replaced."""


class Planned(NamedTuple):
    """One item of the plan, and what must still be so of it; None is what the plan does not know."""

    number: int
    """Its place among the rows of the task."""
    key: str
    action: str | None
    version: str
    """The version's id or the upload's."""
    etag: str | None = None
    micros: int | None = None
    """When it was written."""
    latest: bool = False
    newer: int = 0
    """How many newer versions of its key, all of them noncurrent, must be there."""
    kept: str | None = None
    """Why it must not be touched."""


def planned_items(batches: Iterable[Any]) -> Iterator[Planned]:
    """Read the rows of a task, numbered from 0."""
    number = 0
    for batch in batches:
        required = batch.column("condition")
        parts = [
            *(batch.column(name).to_pylist() for name in ("action", "version")),
            *(
                pc.struct_field(required, name).to_pylist()
                for name in ("etag", "is_latest", "newer_versions")
            ),
        ]
        written = batch.column("created").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        keys, kept = batch.column("address").to_pylist(), batch.column("kept_because").to_pylist()
        for key, action, version, etag, latest, newer, micros, why in zip(
            keys, *parts, written, kept, strict=True
        ):
            tag = (etag or "").strip('"') or None
            yield Planned(
                number, key, action, version or NULL, tag, micros, bool(latest), newer or 0, kept=why
            )
            number += 1
