"""
The table contracts: every table that is written by one step and read by another, in one place.

A table is checked against its contract when it is written and when it is read, so a step never works on
columns that mean something else. Its rows are counted as well: see `row_counts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import MetadataError
from ebbtide.engine.tables.counted import read_counted, write_counted

STRINGS = t.ArrayType(t.StringType(), containsNull=False)


@dataclass(frozen=True)
class Contract:
    """A table's name and columns."""

    name: str
    schema: t.StructType
    optional: tuple[str, ...] = ()
    """Columns that only some front doors have something to say in; where one is missing it is null."""

    @property
    def columns(self) -> list[str]:
        """The column names, in order."""
        return self.schema.fieldNames()

    def check(self, frame: DataFrame) -> DataFrame:
        """Give the frame with the contract's columns in order; stop if one is missing or of another type."""
        absent = [name for name in self.optional if name not in frame.columns]
        for name in absent:
            frame = frame.withColumn(name, f.lit(None).cast(self.schema[name].dataType))
        found = {field.name: field.dataType for field in frame.schema}
        for field in self.schema:
            if field.name not in found:
                raise self._broken(f"column {field.name!r} is missing")
            if _loose(found[field.name]) != _loose(field.dataType):
                raise self._broken(
                    f"column {field.name!r} is {found[field.name].simpleString()}, not"
                    f" {field.dataType.simpleString()}"
                )
        return frame.select(*self.columns)

    def write(self, frame: DataFrame, folder: Path, *, partition_by: str | None = None) -> None:
        """Write the table as Parquet; it appears whole or not at all."""
        # Most values are there once: looking for repeated ones costs more than it saves, and zstd finds them.
        options = {"parquet.enable.dictionary": "false"}
        write_counted(self.check(frame), folder, partition_by=partition_by, options=options)

    def read(self, spark: SparkSession, *folders: Path) -> DataFrame:
        """Read the table from one folder or several that are whole; none at all is an empty table."""
        return self.check(read_counted(spark, self.schema, *folders))

    def _broken(self, what: str) -> MetadataError:
        return MetadataError(
            f"table {self.name!r}: {what}",
            why="a step must not work on a table that is not what it expects",
            fix="make a new plan; if that fails too, this is a defect of Ebbtide",
        )


def _loose(kind: t.DataType) -> str:
    """Compare types without nullability: Parquet makes everything nullable."""
    return kind.simpleString()


def _schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


TASK = _schema(
    action=t.StringType(),
    version=t.StringType(),
    etag=t.StringType(),
    latest=t.BooleanType(),
    newer=t.IntegerType(),
    goal=t.StringType(),
)
"""
What is to be done with an item where that is not simply to delete it: the action, the version or upload that
is meant, what must still be so of it, and where it goes.
"""

RANGES = Contract(
    "ranges",
    _schema(
        world=t.IntegerType(),
        folder=t.StringType(),
        range_id=t.StringType(),
        min_key=t.StringType(),
        max_key=t.StringType(),
        count=t.LongType(),
        referrer=t.StringType(),
        name=t.StringType(),
        days=t.ArrayType(t.IntegerType()),
        until=t.TimestampType(),
        keeper=t.StringType(),
        why=t.StringType(),
        lapses=t.BooleanType(),
    ),
)
"""
One row for each range and policy class that reaches it; `name` is one branch or tag of that class.

Where retention is asked for, `until` says how long commits of that class keep the range, and which and why;
`lapses` whether any of them will let go of it.
"""

REFERENCES = Contract(
    "references",
    _schema(
        world=t.IntegerType(),
        hash=t.LongType(),
        address=t.StringType(),
        key=t.StringType(),
        created=t.TimestampType(),
        size=t.LongType(),
        touched=t.BooleanType(),
        lapse=t.TimestampType(),
        rules=STRINGS,
        holder=t.StringType(),
        why=t.StringType(),
    ),
)
"""One row for each key of each range: when its latest reference lapses, which one that is, why it holds."""

STANDINGS = Contract(
    "standings",
    _schema(
        world=t.IntegerType(),
        hash=t.LongType(),
        address=t.StringType(),
        deadline=t.TimestampType(),
        reason=t.StringType(),
        held_by=t.StringType(),
        paths=STRINGS,
        rules=STRINGS,
        branches=STRINGS,
        size=t.LongType(),
        created=t.TimestampType(),
        collector=t.StringType(),
        task=TASK,
        kind=t.StringType(),
    ),
    optional=("task",),
)
"""One row for each known address: what its references add up to, whatever the time; parted by `kind`."""

AFFECTED = Contract("affected", _schema(world=t.IntegerType(), hash=t.LongType()))
"""The addresses whose references may have changed since the standings were added up."""

DECISIONS = Contract(
    "decisions",
    _schema(
        world=t.IntegerType(),
        hash=t.LongType(),
        address=t.StringType(),
        decision=t.StringType(),
        deadline=t.TimestampType(),
        reason=t.StringType(),
        held_by=t.StringType(),
        paths=STRINGS,
        rules=STRINGS,
        branches=STRINGS,
        size=t.LongType(),
        created=t.TimestampType(),
        collector=t.StringType(),
        task=TASK,
    ),
    optional=("task",),
)
"""One row for each item that a rule touched."""

PLAN = Contract(
    "plan",
    _schema(
        hash=t.LongType(),
        address=t.StringType(),
        deadline=t.TimestampType(),
        paths=STRINGS,
        rules=STRINGS,
        branches=STRINGS,
        size=t.LongType(),
        created=t.TimestampType(),
        collector=t.StringType(),
        task=TASK,
        wave=t.IntegerType(),
    ),
    optional=("task",),
)
"""What would be deleted, dealt into waves; apply takes this table and nothing else."""

OUTCOMES = Contract(
    "outcomes",
    _schema(
        hash=t.LongType(),
        address=t.StringType(),
        version=t.StringType(),
        outcome=t.StringType(),
        reason=t.StringType(),
        rules=STRINGS,
        size=t.LongType(),
        at=t.TimestampType(),
        wave=t.IntegerType(),
        attempt=t.IntegerType(),
        action=t.StringType(),
        until=t.TimestampType(),
    ),
    optional=("version", "action", "until"),
)
"""
What happened to each planned item; a later attempt's row replaces an earlier one's.

`action` is the plan's, where the target has several; `until` says how long a restored item is held.
"""

REMOVED_ITEMS = Contract(
    "removed items",
    _schema(
        hash=t.LongType(),
        address=t.StringType(),
        version=t.StringType(),
        action=t.StringType(),
        outcome=t.StringType(),
        reason=t.StringType(),
        rules=STRINGS,
        size=t.LongType(),
        at=t.TimestampType(),
        until=t.TimestampType(),
        run_id=t.LongType(),
        attempt=t.IntegerType(),
    ),
)
"""The last outcome of every item of a target that a run removed or a restore brought back."""

NEWLY_REFERENCED = Contract("newly_referenced", _schema(hash=t.LongType(), reason=t.StringType()))
"""Planned items that something came to need after the plan's snapshot."""

INVENTORY = Contract(
    "inventory",
    _schema(
        hash=t.LongType(),
        key=t.StringType(),
        address=t.StringType(),
        size=t.LongType(),
        last_modified=t.TimestampType(),
        etag=t.StringType(),
    ),
)
"""What a store lists."""

LISTED = Contract(
    "listed",
    _schema(
        hash=t.LongType(),
        address=t.StringType(),
        size=t.LongType(),
        last_modified=t.TimestampType(),
    ),
)
"""What a sweep has listed; only data objects, which alone may be garbage, have an address here."""

REFERENCED = Contract("referenced", _schema(world=t.IntegerType(), hash=t.LongType(), within=t.BooleanType()))
"""Every address that anything references, maybe several times, and whether a listing must have met it."""

UPLOADS = Contract("uploads", _schema(address=t.StringType(), expires=t.TimestampType()))
"""Addresses that clients may still upload to and link."""

VERSIONS = Contract(
    "versions",
    _schema(
        key=t.StringType(),
        version_id=t.StringType(),
        kind=t.StringType(),
        is_latest=t.BooleanType(),
        size=t.LongType(),
        last_modified=t.TimestampType(),
        etag=t.StringType(),
        storage_class=t.StringType(),
        position=t.LongType(),
        tags=t.MapType(t.StringType(), t.StringType()),
        legal_hold=t.BooleanType(),
        retain_until=t.TimestampType(),
        replication_status=t.StringType(),
        restoring=t.BooleanType(),
    ),
)
"""
What a bucket holds: one row for each `version`, delete `marker` and `upload`, which `kind` says.

`version_id` and `last_modified` of an upload are its id and when it was begun. `position` counts the versions
and markers of a key from 0, the newest first; it is null where only their times are known. No `tags` means
that nobody asked, or that the version was gone by then.
"""
