"""
The manifests as numbers, and which of them keep which.

Everything after this works on the numbers, which are exact and short. They follow the order of repositories
and digests, so the smaller number is also the smaller name.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import MetadataError
from ebbtide.targets.oci.evaluation.settling import Settle
from ebbtide.targets.oci.graph import LONGEST_ALGORITHM, LONGEST_VALUE

INDEX = "index"
SUBJECT = "subject"


def numbered(images: DataFrame, settle: Settle) -> DataFrame:
    """Give every manifest its number, `node`, and check that none is there twice."""
    ordered = images.orderBy("repository", "digest")
    subject = f.when(f.col("subject") != "", f.col("subject"))
    found = ordered.withColumns({"node": f.monotonically_increasing_id(), "subject": subject})
    settled = settle(found, "images")
    check_names(settled, "repository", "digest", "@")
    return settled


def check_names(rows: DataFrame, repository: str, name: str, between: str) -> None:
    """Stop if something has no name, or if two things have the same: nobody could tell which is meant."""
    whole = f.concat_ws(between, repository, name)
    counted = rows.groupBy(repository, name).agg(f.count(f.lit(1)).alias("times"))
    nameless = f.coalesce(f.col(repository) == "", f.lit(True)) | f.coalesce(f.col(name) == "", f.lit(True))
    twice = f.max(f.when(f.col("times") > 1, whole)).alias("twice")
    found = counted.agg(f.max(nameless).alias("nameless"), twice).first()
    if found is not None and found["nameless"]:
        raise _damaged(f"something has no {name} or no {repository}")
    if found is not None and found["twice"] is not None:
        raise _damaged(f"{found['twice']} is there twice")


def _damaged(what: str) -> MetadataError:
    return MetadataError(
        f"the tables of the registry cannot be judged: {what}",
        why="in doubt about what is meant nothing is deleted",
        fix="scan the registry again",
    )


def child_ties(images: DataFrame) -> DataFrame:
    """Tie indexes to their children; a child that is not there means nothing."""
    named = images.select("repository", f.col("node").alias("holder"), f.explode("children").alias("digest"))
    known = images.select("repository", "digest", "node")
    return named.distinct().join(known, ["repository", "digest"]).select("holder", "node")


def subject_ties(images: DataFrame) -> DataFrame:
    """Give every referrer and its subject, null where that is not there, and whether somebody asks for it."""
    asked = f.coalesce("delete_requested", f.lit(False)).alias("requested")
    about = images.where(f.col("subject").isNotNull()).select("node", "repository", "subject", asked)
    known = images.select("repository", f.col("digest").alias("subject"), f.col("node").alias("holder"))
    return about.join(known, ["repository", "subject"], "left").select("holder", "node", "requested")


def named_ties(children: DataFrame, subjects: DataFrame) -> DataFrame:
    """
    Give all that keep a manifest and are manifests themselves: holder, node, kind.

    What is to be deleted by request does not wait for its subject, unless this is also an index that it is
    in. What is both is called the subject.
    """
    indexes = children.select("holder", "node", f.lit(INDEX).alias("kind"), f.lit(True).alias("counts"))
    about = subjects.where(f.col("holder").isNotNull()).select(
        "holder", "node", f.lit(SUBJECT).alias("kind"), (~f.col("requested")).alias("counts")
    )
    pairs = indexes.unionByName(about).groupBy("holder", "node")
    found = pairs.agg(f.max("kind").alias("kind"), f.max("counts").alias("counts"))
    return found.where("counts").drop("counts")


def with_signed(tags: DataFrame, images: DataFrame) -> DataFrame:
    """Add to tags that have a stem the manifest that they are named after; null where there is none."""
    algorithm = f.substring_index("digest", ":", 1)
    value = f.substr("digest", f.length(algorithm) + 2, f.lit(LONGEST_VALUE))
    stem = f.concat(f.substring(algorithm, 1, LONGEST_ALGORITHM), f.lit("-"), value)
    # The smaller number is the smaller digest: of several that a tag cannot tell apart the first is meant.
    signed = images.groupBy("repository", stem.alias("stem")).agg(
        f.min(f.struct(f.col("node").alias("holder"), f.col("digest").alias("signed"))).alias("found")
    )
    return tags.join(signed, ["repository", "stem"], "left").select(
        *tags.columns, f.col("found.holder").alias("holder"), f.col("found.signed").alias("signed")
    )
