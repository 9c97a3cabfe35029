"""
A large registry, made with Spark as the tables that a scan writes; the same numbers make the same registry.

Manifests come in tens of one repository: an index with two to four children, images with tags, sometimes a
referrer of the index and the signature of a child. One repository has a fifth of all; of the others some have
thousands and many have ten. Base layers are shared by all repositories.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.instant import to_micros
from ebbtide.targets.oci.model import RunningImages, RunningReference
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.tables import IMAGES, TAGS

NOW = datetime(2026, 11, 1, tzinfo=UTC)
REPOSITORIES = 2_000
_DAY = 86_400_000_000
_TEN = 10
_TAGS = ((0, 4), (1, 1), (5, 8), (6, 8), (7, 9))
"""So many tags have the members of a ten."""


def policies() -> Policies:
    """Give the policy document: a few rules of each kind."""
    return read_policies(
        {
            "policies": {"Scrap": {"days": 3, "recycle": False}, "Month": {"months": 1}},
            "assign": [
                {"repository": "team1*", "tag": "main-.*", "policy": "Scrap"},
                {"repository": "*", "tag": "release.*", "policy": "Released"},
                {"repository": "team2*", "tag": ".*", "policy": "Month"},
            ],
            "keep_newest": [
                {"repository": "*", "tag": "v.*", "count": 5},
                {"repository": "team*/*", "tag": "main-.*", "count": 10},
            ],
        }
    )


def running(manifests: int) -> RunningImages:
    """Name fifty things that run: children of indexes, by their digest."""
    step = manifests // 50 // _TEN * _TEN
    return RunningImages(
        tuple(RunningReference(None, None, f"sha256:{n * step + 1:064x}") for n in range(50))
    )


def write_registry(spark: SparkSession, folder: Path, manifests: int) -> None:
    """Write the tables of images and of tags."""
    numbers = spark.range(0, manifests, 1, 8).withColumnRenamed("id", "n")
    placed = numbers.withColumns({"ten": _whole(f.col("n") / _TEN), "member": f.col("n") % _TEN})
    IMAGES.write(_images(placed), folder / "images")
    TAGS.write(_tags(placed), folder / "tags")


def _whole(number: Column) -> Column:
    return f.floor(number).cast("bigint")


def _digest(number: Column) -> Column:
    return f.concat(f.lit("sha256:"), f.lpad(f.lower(f.hex(number)), 64, "0"))


def _layer(kind: str, number: Column, size: int) -> Column:
    name = f.concat(f.lit("sha256:"), f.sha2(f.concat(f.lit(kind), number.cast("string")), 256))
    return f.struct(name.alias("digest"), f.lit(size).cast("bigint").alias("size"))


def _repository() -> Column:
    """Give a fifth to one repository; of the others the first ones get most."""
    chance = f.pmod(f.xxhash64(f.lit(1), "ten"), f.lit(10_000)) / 10_000.0
    other = _whole((REPOSITORIES - 1) * f.pow((chance - 0.2) / 0.8, f.lit(3))) + 1
    number = f.when(chance < 0.2, f.lit(0)).otherwise(other).cast("string")
    return f.concat(f.lit("team"), number, f.lit("/app"))


def _time(salt: int, days: int) -> Column:
    """Give a moment of the last days."""
    ago = f.pmod(f.xxhash64(f.lit(salt), *_SALTED), f.lit(days * _DAY))
    return f.timestamp_micros(f.lit(to_micros(NOW)) - ago)


_SALTED: Sequence[str] = ("n", "ten")


def _one_in(many: int, salt: int) -> Column:
    return f.pmod(f.xxhash64(f.lit(salt), "n"), f.lit(many)) == 0


def _assigned(many: int, salt: int) -> dict[str, Column]:
    given = _one_in(many, salt)
    return {
        "policy": f.when(given, "Released"),
        "expires_at": f.when(given, f.timestamp_micros(f.unix_micros(_time(salt, 200)) + 180 * _DAY)),
        "can_delete_prior": f.when(given, f.lit(False)),
        "recycle": f.lit(None).cast("boolean"),
    }


def _images(placed: DataFrame) -> DataFrame:
    member, ten, n = f.col("member"), f.col("ten"), f.col("n")
    first = ten * _TEN
    children = f.slice(f.array(*(_digest(first + child) for child in range(1, 5))), 1, 2 + ten % 3)
    layers = f.array(
        _layer("base", n % 50, 30_000_000),
        _layer("tools", n % 500, 10_000_000),
        _layer("ten", ten, 2_000_000),
        _layer("own", n, 500_000),
    )
    is_index, refers = member == 0, (member == 9) & (ten % 2 == 0)
    return placed.select(
        _repository().alias("repository"),
        _digest(n).alias("digest"),
        f.lit("application/vnd.oci.image.manifest.v1+json").alias("media_type"),
        f.lit(700).cast("bigint").alias("size"),
        f.when(is_index, children).otherwise(f.array().cast("array<string>")).alias("children"),
        f.when(refers, _digest(first)).alias("subject"),
        f.when(is_index, f.slice(layers, 1, 0)).otherwise(layers).alias("blobs"),
        f.when(n % 2 == 0, _time(1, 90)).alias("pushed_at"),
        _time(2, 30).alias("seen_at"),
        f.when(member == 8, _time(3, 20)).alias("untagged_since"),
        f.when(_one_in(200, 4), f.when(n % 2 == 0, "pending").otherwise("failed")).alias("quarantine"),
        f.when(_one_in(200, 4), _time(5, 10)).alias("quarantine_since"),
        *(column.alias(name) for name, column in _assigned(100, 6).items()),
        f.when(_one_in(1000, 7), True).alias("delete_requested"),
    )


def _tags(placed: DataFrame) -> DataFrame:
    counts = f.create_map(*(f.lit(part) for pair in _TAGS for part in pair))
    listed = placed.withColumns({"repository": _repository(), "digest": _digest(f.col("n"))})
    many = listed.withColumn("k", f.explode(f.sequence(f.lit(1), counts[f.col("member").cast("int")])))
    many = many.where(f.col("member").isin([member for member, _ in _TAGS])).withColumn("n0", f.col("n"))
    many = many.withColumn("n", f.col("n") * 16 + f.col("k"))
    signs = (f.col("member") == 1) & (f.col("ten") % 5 == 0)
    signature = f.concat(f.lit("sha256-"), f.substring(_digest(f.col("n0") + 1), 8, 64), f.lit(".sig"))
    number = f.col("n").cast("string")
    name = (
        f.when(signs, signature)
        .when(f.col("k") % 9 == 1, f.concat(f.lit("main-"), f.lower(f.hex("n"))))
        .when(f.col("k") % 9 == 2, f.concat(f.lit("release."), number))
        .otherwise(f.concat(f.lit("v"), number))
    )
    return many.select(
        "repository",
        name.alias("tag"),
        "digest",
        f.when(~_one_in(20, 8), _time(9, 90)).alias("moved_at"),
        _time(10, 60).alias("seen_at"),
        *(column.alias(name) for name, column in _assigned(33, 11).items()),
        f.when(_one_in(1000, 12), True).alias("delete_requested"),
    )
