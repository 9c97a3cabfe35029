"""
Null versions that a delete marker replaces.

Where versioning is suspended the marker that expires an object is the null version of its key, and so takes
the place of an older null version that lies behind a current one with an id of its own. S3 does so for every
delete. A plan says how many go that way, and one that is locked keeps its key from being expired.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.core.instant import to_micros
from ebbtide.storage.s3_objects import NULL
from ebbtide.targets.s3.evaluation.lookup import VERSION
from ebbtide.targets.s3.evaluation.verdicts import RESTORED_UNTIL
from ebbtide.targets.s3.model import Action, Hold

REPLACES = "replaces_null"
"""The column that says of an expiration that it destroys a null version which nothing else would end."""


def with_replaced(verdicts: DataFrame, now: datetime) -> DataFrame:
    """Hold what would destroy a locked null version, and mark what will destroy one that is not locked."""
    if RESTORED_UNTIL not in verdicts.columns:
        verdicts = verdicts.withColumn(RESTORED_UNTIL, f.lit(None).cast("timestamp"))
    null = (f.col("kind") == VERSION) & (f.col("version_id") == NULL) & ~f.col("current")
    whole_key = Window.partitionBy("key")
    found = verdicts.withColumns(
        {
            "_stays": f.bool_or(null & (f.col("action") != str(Action.DELETE_VERSION))).over(whole_key),
            "_held": f.bool_or(null & f.col("legal_hold")).over(whole_key),
            "_until": f.max(f.when(null, f.col("retain_until"))).over(whole_key),
            "_back": f.max(f.when(null, f.col(RESTORED_UNTIL))).over(whole_key),
        }
    )
    expires = (f.col("action") == str(Action.EXPIRE)) & (f.col("version_id") != NULL)
    locked = f.unix_micros("_until") > to_micros(now)
    restored = f.unix_micros("_back") > to_micros(now)
    hold = (
        f.when(expires & f.col("_held"), str(Hold.LEGAL_HOLD))
        .when(expires & locked, str(Hold.RETENTION))
        .when(expires & restored, str(Hold.RESTORED))
    )
    kept = f.col("_hold").isNotNull()
    return (
        found.withColumn("_hold", hold)
        .withColumns(
            {
                REPLACES: f.coalesce(expires & ~kept & f.col("_stays"), f.lit(False)),
                "action": f.when(kept, str(Action.NONE)).otherwise(f.col("action")),
                "held_by": f.coalesce("_hold", "held_by"),
                # The row says until when it is held, which is as long as the null version is.
                "retain_until": f.when(kept, f.col("_until")).otherwise(f.col("retain_until")),
                RESTORED_UNTIL: f.when(kept, f.col("_back")).otherwise(f.col(RESTORED_UNTIL)),
            }
        )
        .drop("_stays", "_held", "_until", "_back", "_hold")
    )


def replaced_warning(number: int) -> str:
    """Say how many null versions a plan destroys besides what its rows name."""
    some = "1 null version goes" if number == 1 else f"{number} null versions go"
    why = "versioning is suspended, and a delete marker takes the place of a null version that is not current"
    return f"{some} with the expiration of what is current in front: {why}"
