"""Standings of uncommitted garbage: it may go when it is older than any upload in progress can be."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName, HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.layers import TOUCHED
from ebbtide.engine.tables.contracts import STANDINGS

_MICROSECOND = timedelta(microseconds=1)


def garbage_standings(
    garbage: DataFrame, uploads: DataFrame, grace: timedelta | Column, branch: Column, world: Column
) -> DataFrame:
    """
    Flow 1, steps 6 and 7. Say until when each unreferenced object is held.

    That is the end of the grace period, which counts from its last write, or of the upload token that was
    given out for its address, whichever is later.
    """
    wait = grace if isinstance(grace, Column) else f.lit(grace // _MICROSECOND)
    ripe = f.timestamp_micros(f.least(f.unix_micros("last_modified") + wait, f.lit(to_micros(NEVER))))
    held = garbage.join(uploads, "address", "left")
    uploading = f.col("expires") > ripe
    written = f.date_format("last_modified", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return STANDINGS.check(
        held.select(
            world.cast("int").alias("world"),
            "hash",
            "address",
            f.when(uploading, f.col("expires")).otherwise(ripe).alias("deadline"),
            f.when(uploading, str(HoldReason.UPLOADING)).otherwise(str(HoldReason.NOT_YET)).alias("reason"),
            f.concat(f.lit("last written "), written).alias("held_by"),
            f.array().cast("array<string>").alias("paths"),
            f.array(f.lit(str(CollectorName.UNCOMMITTED))).alias("rules"),
            f.array_compact(f.array(branch)).alias("branches"),
            f.col("size"),
            f.col("last_modified").alias("created"),
            f.lit(str(CollectorName.UNCOMMITTED)).alias("collector"),
            f.lit(TOUCHED).alias("kind"),
        )
    )
