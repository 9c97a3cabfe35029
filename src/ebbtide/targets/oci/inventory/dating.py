"""The joins on Spark of a scan with the one before, and with what registries told, for the clocks."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.engine.tables.contracts import Contract
from ebbtide.targets.oci.inventory.dater import IMAGE_MEMORY, IMAGES_ARROW, TAG_MEMORY, TAGS_ARROW, Dater
from ebbtide.targets.oci.inventory.engine import KEY, Before, Found
from ebbtide.targets.oci.inventory.events import PUSH
from ebbtide.targets.oci.tables import IMAGES, TAGS


def dated_tags(before: Before[DataFrame], found: Found[DataFrame], dater: Dater) -> DataFrame:
    """Give the table TAGS for tags that were found."""
    name = ["repository", "tag"]
    known = before.tags.select(*name, f.struct(*TAG_MEMORY).alias("before"))
    pushes = before.events.where((f.col("action") == PUSH) & (f.col("tag") != ""))
    newest = pushes.groupBy(*name).agg(f.max(f.struct("at", "digest")).alias("push"))
    rows = found.tags.join(known, name, "left").join(newest, name, "left")
    told = f.when(f.col("push.digest") == f.col("digest"), f.col("push.at"))
    dated = rows.withColumn("pushed", told).drop("push").mapInArrow(dater.tags, _schema(TAGS, TAGS_ARROW))
    return TAGS.check(dated)


def dated_images(before: Before[DataFrame], found: Found[DataFrame], dater: Dater) -> DataFrame:
    """Give the table IMAGES for manifests that are there."""
    known = before.images.select(*KEY, f.struct(*IMAGE_MEMORY).alias("before"))
    rows = found.manifests.join(_facts(before, found), KEY, "left").join(known, KEY, "left")
    return IMAGES.check(rows.mapInArrow(dater.images, _schema(IMAGES, IMAGES_ARROW)))


def _facts(before: Before[DataFrame], found: Found[DataFrame]) -> DataFrame:
    """Say of each manifest whether it has a tag, had one, is led to, and when its last push was."""
    manifests = found.manifests
    subjects = manifests.select("repository", f.col("digest").alias("subject"))
    rows = [
        (found.tags, "tagged"),
        (before.tags, "was_tagged"),
        (manifests.select("repository", f.explode("children").alias("digest")), "led"),
        (manifests.join(subjects, ["repository", "subject"], "left_semi"), "led"),
    ]
    names = ("tagged", "was_tagged", "led")
    parts = [
        part.select(*KEY, *[f.lit(name == fact).alias(name) for name in names], _no_time().alias("pushed"))
        for part, fact in rows
    ]
    pushes = before.events.where(f.col("action") == PUSH).withColumn("pushed", f.col("at"))
    parts.append(pushes.select(*KEY, *[f.lit(False).alias(name) for name in names], "pushed"))
    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    return together.groupBy(*KEY).agg(*[f.max(name).alias(name) for name in (*names, "pushed")])


def _no_time() -> Column:
    return f.lit(None).cast("timestamp")


def _schema(contract: Contract, columns: Any) -> str:
    """Give the columns that a dater makes; a scan has nothing to say in the others."""
    return ", ".join(f"{name} {contract.schema[name].dataType.simpleString()}" for name in columns.names)
