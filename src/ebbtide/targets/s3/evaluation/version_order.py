"""
The order of the versions of each key: which is current, how many are newer, since when one is noncurrent.

S3 lists the versions of a key newest first. An inventory report does not say in which order two versions with
the same time were written. Their order is then unknown, and such versions are held.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.targets.s3.model import UPLOAD, Hold

_MANY = 2**31 - 1
"""More newer versions than any rule can require; a version with an unknown order may have them."""


def with_order(rows: DataFrame) -> DataFrame:
    """
    Add the position of each version among those of its key.

    Its columns are may_be_current, may_be_noncurrent, sole, newer, since, and doubt (why it is unknown).
    `newer` counts newer noncurrent versions. `since` is the time of the successor; for current versions and
    uploads it is their own time.
    """
    # Uploads are not versions of their key. Keys are compared in full: if two keys with equal hashes were
    # taken for one, a version would seem to have a successor and could be deleted as noncurrent.
    # The hash comes first because rows are sorted by it and numbers are compared faster than keys.
    newest_first = Window.partitionBy(f.xxhash64("key"), "key", "world", f.col("kind") == UPLOAD).orderBy(
        f.coalesce("is_latest", f.lit(False)).desc(),
        f.col("last_modified").desc_nulls_last(),
        f.col("position").asc_nulls_last(),
    )
    # The same order, so that Spark sorts once for both.
    group = newest_first.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    timeless = f.col("last_modified").isNull()
    counted = rows.withColumns(
        {
            "_count": f.count(f.lit(1)).over(group),
            "_latest": f.count_if("is_latest").over(group),
            "_said": f.count("is_latest").over(group),
            "_timeless": f.count_if(timeless).over(group),
            "_timeless_latest": f.count_if(timeless & f.col("is_latest")).over(group),
            "_place": f.row_number().over(newest_first),
            "_successor": f.lag("last_modified").over(newest_first),
            "_before": f.lag(_noncurrent_moment()).over(newest_first),
            "_behind": f.lead(_noncurrent_moment()).over(newest_first),
        }
    )
    return _placed(counted).drop(*(name for name in counted.columns if name not in rows.columns))


def _noncurrent_moment() -> Column:
    """Return the time of a noncurrent version if only its time gives its order."""
    unordered = f.col("position").isNull() & ~f.coalesce("is_latest", f.lit(False))
    return f.when(unordered, f.col("last_modified"))


def _placed(rows: DataFrame) -> DataFrame:
    """Add whether each version is current or, if unknown, may be."""
    count, latest, said = f.col("_count"), f.col("_latest"), f.col("_said")
    timeless = f.col("last_modified").isNull()
    upload = f.col("kind") == UPLOAD
    known = f.coalesce("is_latest", (said == 0) & (f.col("_place") == 1))
    current = upload | known
    contradicted = ~upload & ((latest > 1) | ((latest == 0) & (said > 0)))
    # If no row says which is latest, times decide. Then all rows need a time and a listing position.
    silent = ~upload & (said == 0) & (count > 1)
    orderless = silent & ((f.col("_timeless") > 0) | f.col("position").isNull())
    siblings_timeless = ~current & (f.col("_timeless") > f.col("_timeless_latest"))
    twin = ~current & f.coalesce(
        (_noncurrent_moment() == f.col("_before")) | (_noncurrent_moment() == f.col("_behind")), f.lit(False)
    )
    lost = contradicted | orderless | siblings_timeless | twin
    since = f.when(current, f.col("last_modified")).otherwise(f.col("_successor"))
    doubt = (
        f.when(contradicted, str(Hold.UNKNOWN_RANK))
        .when((orderless | siblings_timeless) & timeless, str(Hold.UNKNOWN_TIME))
        .when(lost, str(Hold.UNKNOWN_RANK))
        .when(since.isNull(), str(Hold.UNKNOWN_TIME))
    )
    return rows.withColumns(
        {
            "doubt": doubt,
            "may_be_current": current | orderless,
            "may_be_noncurrent": ~current | orderless | (contradicted & (latest > 1)),
            "sole": count == 1,
            "newer": f.when(lost, _MANY).otherwise(f.col("_place") - 2),
            "since": since,
        }
    )
