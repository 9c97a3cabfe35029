"""
The table contracts: every table that is written by one step and read by another, in one place.

A table is checked against its contract when it is written and when it is read, so a step never works on
columns that mean something else. Its rows are counted as well: see `row_counts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.decision import DELETE
from ebbtide.core.errors import MetadataError
from ebbtide.engine.tables.counted import read_counted, write_counted

STRINGS = t.ArrayType(t.StringType(), containsNull=False)


@dataclass(frozen=True)
class Contract:
    """A table's name and columns."""

    name: str
    schema: t.StructType
    optional: Mapping[str, str] = field(default_factory=dict)
    """Columns that a writer may leave out, with what they are then, as a Spark expression."""

    @property
    def columns(self) -> list[str]:
        """The column names, in order."""
        return self.schema.fieldNames()

    def check(self, frame: DataFrame) -> DataFrame:
        """Return the contract's columns of a frame in order; stop if one is missing or has another type."""
        for name, value in self.optional.items():
            if name not in frame.columns:
                frame = frame.withColumn(name, f.expr(value).cast(_loose(self.schema[name].dataType)))
        found = {column.name: column.dataType for column in frame.schema}
        for column in self.schema:
            if column.name not in found:
                raise self._broken(f"column {column.name!r} is missing")
            if _loose(found[column.name]) != _loose(column.dataType):
                raise self._broken(
                    f"column {column.name!r} is {found[column.name].simpleString()}, not"
                    f" {column.dataType.simpleString()}"
                )
        return frame.select(*self.columns)

    def write(
        self,
        frame: DataFrame,
        folder: Path,
        *,
        partition_by: str | None = None,
        totals: Sequence[Column] = (),
    ) -> dict[str, Any]:
        """Write the table as Parquet, for readers to see all or nothing; return `rows` and other `totals`."""
        # Most values are unique, so a dictionary costs more than it saves; zstd finds repeated values.
        options = {"parquet.enable.dictionary": "false"}
        return write_counted(
            self.check(frame), folder, partition_by=partition_by, options=options, totals=totals
        )

    def read(self, spark: SparkSession, *folders: Path) -> DataFrame:
        """Read the table from folders that are whole; without folders it is empty."""
        return self.check(read_counted(spark, self.schema, *folders))

    def adding(self, name: str | None = None, **columns: t.DataType) -> Contract:
        """Return a contract with more columns."""
        more = t.StructType([*self.schema, *schema(**columns)])
        return Contract(name or self.name, more, self.optional)

    def without(self, *columns: str) -> Contract:
        """Return a contract without some columns."""
        optional = {name: value for name, value in self.optional.items() if name not in columns}
        kept = [column for column in self.schema if column.name not in columns]
        return Contract(self.name, t.StructType(kept), optional)

    def _broken(self, what: str) -> MetadataError:
        return MetadataError(
            f"table {self.name!r}: {what}",
            why="a step must not work on a table that differs from what it expects",
            fix="make a new plan; if that fails too, this is a defect of Ebbtide",
        )


def _loose(kind: t.DataType) -> str:
    """Compare types without nullability: Parquet makes everything nullable."""
    return kind.simpleString()


def schema(**columns: t.DataType) -> t.StructType:
    """Return the schema of a table with these columns."""
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


CONDITION = schema(
    etag=t.StringType(),
    is_latest=t.BooleanType(),
    newer_versions=t.IntegerType(),
    siblings=STRINGS,
)
"""
What must still be true of an item when it is acted on; null where the collector requires nothing.

`etag` is the ETag of its content. `is_latest` says whether it must be the current version of its key, and
`newer_versions` how many newer noncurrent versions the key must have. `siblings` are all names of the same
content: those that are not planned must still be there afterwards.
"""

LABELS = t.MapType(t.StringType(), t.StringType())
"""Labels of an item, by which plans are summed up, such as `{"branch": "on branch main"}`."""


def condition(**known: Column) -> Column:
    """Return a condition; what is not given is not required."""
    return f.struct(
        *(known.get(one.name, f.lit(None)).cast(_loose(one.dataType)).alias(one.name) for one in CONDITION)
    )


def labels(**known: Column) -> Column:
    """Return a map of labels without those that are null."""
    pairs = [part for name, value in known.items() for part in (f.lit(name), value.cast("string"))]
    return f.map_filter(f.create_map(*pairs), lambda _, value: value.isNotNull())


RANGES = Contract(
    "ranges",
    schema(
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
One row for each range and each class of referrers that reaches it; `name` is one branch or tag of that class.

With retention rules, `until` is how long commits of that class keep the range, `keeper` and `why` are which
commit and why, and `lapses` is whether any of them will let go of it.
"""

REFERENCES = Contract(
    "references",
    schema(
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

VERDICTS = Contract(
    "verdicts",
    schema(
        hash=t.LongType(),
        address=t.StringType(),
        version=t.StringType(),
        names=STRINGS,
        size=t.LongType(),
        created=t.TimestampType(),
        deadline=t.TimestampType(),
        action=t.StringType(),
        destination=t.StringType(),
        condition=CONDITION,
        hold=t.StringType(),
        holder=t.StringType(),
        rules=STRINGS,
        labels=LABELS,
        collector=t.StringType(),
        kind=t.StringType(),
    ),
    optional={
        "hash": "xxhash64(address)",
        "version": "null",
        "names": "array(address)",
        "action": f"'{DELETE}'",
        "destination": "null",
        "condition": "null",
        "labels": "map()",
        "kind": "'touched'",
    },
)
"""
One row for each item: the verdict of a collector. Nothing in it depends on the time of the plan.

| column | meaning |
|---|---|
| `hash`, `address` | the item: its canonical address, and the hash by which tables are joined |
| `version` | the version, upload or tag that is meant; null where an address is one item |
| `names` | its names for people |
| `size`, `created` | its bytes, and when it was written |
| `deadline` | when it may go; `NEVER` if something keeps it |
| `action` | what is done with it then |
| `destination` | where it goes, if it is moved |
| `condition` | what must still be true of it then |
| `hold`, `holder` | why it is held until its deadline, and by what |
| `rules` | the rules that matched it |
| `labels` | more labels that it is counted under, such as its branch |
| `collector` | the collector of the verdict |
| `kind` | whether a rule touched it; the table is partitioned by it |
"""

AFFECTED = Contract("affected", schema(world=t.IntegerType(), hash=t.LongType()))
"""The addresses whose references may have changed since the verdicts were computed."""

PLAN = VERDICTS.without("hold", "holder", "kind").adding("plan", batch=t.IntegerType())
"""The verdicts that are due, each with the number of its batch; apply takes this table and nothing else."""

OUTCOMES = Contract(
    "outcomes",
    schema(
        hash=t.LongType(),
        address=t.StringType(),
        version=t.StringType(),
        outcome=t.StringType(),
        reason=t.StringType(),
        rules=STRINGS,
        size=t.LongType(),
        at=t.TimestampType(),
        batch=t.IntegerType(),
        attempt=t.IntegerType(),
        action=t.StringType(),
        until=t.TimestampType(),
    ),
    optional=dict.fromkeys(("version", "action", "until", "batch"), "null"),
)
"""
What happened to each planned item; a later attempt's row replaces an earlier one's.

`action` is the plan's, and null for an address that is simply deleted; `until` is the end of the hold on a
restored item.
"""

REMOVED_ITEMS = Contract(
    "removed items",
    schema(
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

NEWLY_REFERENCED = Contract("newly_referenced", schema(hash=t.LongType(), reason=t.StringType()))
"""Planned items that were referenced after the plan's snapshot."""

INVENTORY = Contract(
    "inventory",
    schema(
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
    schema(
        hash=t.LongType(),
        address=t.StringType(),
        size=t.LongType(),
        last_modified=t.TimestampType(),
    ),
)
"""What a sweep has listed; only data objects have an address here, because only they may be garbage."""

REFERENCED = Contract("referenced", schema(world=t.IntegerType(), hash=t.LongType(), within=t.BooleanType()))
"""Every referenced address, possibly several times, and whether a listing must contain it."""

UPLOADS = Contract("uploads", schema(address=t.StringType(), expires=t.TimestampType()))
"""Addresses that clients may still upload to and link."""

VERSIONS = Contract(
    "versions",
    schema(
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
The contents of a bucket: one row for each `version`, delete `marker` and `upload`, as `kind` says.

`version_id` and `last_modified` of an upload are its id and when it was begun. `position` counts the versions
and markers of a key from 0, the newest first; it is null where only their times are known. `tags` are null if
they were not read, or if the version was gone by then.
"""
