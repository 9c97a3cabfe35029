"""
The manifests of a registry as a graph, and what is propagated over it.

Manifests are numbered, and all later steps use the numbers (`node`), which are exact and short. They follow
the order of repositories and digests, so the smaller number is also the smaller name. A reference is a pair
of numbers: as long as `holder` stays, `node` stays too.

The *retention* of a node is what is propagated: the latest lapse with its policy, whether the bin is asked
for, whether something holds it, and whether a rule was missing. Of two lapses the later one counts and holds
add up, so a retention only grows, and propagation ends. The tag of a signature stands between two manifests
and is skipped: its own terms are part of its manifest's retention from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import MetadataError, SafetyStop
from ebbtide.core.instant import to_micros
from ebbtide.engine.tables.counted import read_counted, write_counted
from ebbtide.targets.oci.model import QuarantineState

Materialize = Callable[[DataFrame, str], DataFrame]
"""Computes a table now and returns it as a plain one; a name may be used again."""

SMALL = 100_000
"""Tables of up to this many short rows are broadcast to every executor."""

INDEX = "index"
SUBJECT = "subject"

NO_LAPSE = to_micros(datetime.min.replace(tzinfo=UTC))
"""The lapse of what only follows others: every other lapse is later."""
RETENTION = ["top", "recycle", "held", "unmatched"]
"""The columns that are propagated; `top` is the latest lapse with its policy."""

_LONGEST_ALGORITHM = 32
_LONGEST_VALUE = 64
"""The distribution specification cuts digests to these lengths in tags that are named after them."""


def materializer(scratch: Path | None = None) -> Materialize:
    """Materialize as Parquet in a folder that all executors see or, without one, on the executors."""
    if scratch is None:
        return lambda frame, _: frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)

    def materialize(frame: DataFrame, name: str) -> DataFrame:
        place = scratch / name
        # Read soon and then removed: small files are worth less here than the time for better compression.
        write_counted(frame, place, options={"compression": "snappy"})
        return read_counted(frame.sparkSession, frame.schema, place)

    return materialize


def broadcast_if_small(frame: DataFrame) -> DataFrame:
    """Broadcast a materialized table if it is small, so that a large one need not be shuffled."""
    return f.broadcast(frame) if frame.count() <= SMALL else frame


def numbered(images: DataFrame, materialize: Materialize) -> DataFrame:
    """Assign a number (`node`) to every manifest, and check the table."""
    ordered = images.orderBy("repository", "digest")
    subject = f.when(f.col("subject") != "", f.col("subject"))
    found = ordered.withColumns({"node": f.monotonically_increasing_id(), "subject": subject})
    known = materialize(found, "images")
    check_names(known, "repository", "digest", "@")
    _check_quarantine(known)
    return known


def check_names(rows: DataFrame, repository: str, name: str, between: str) -> None:
    """Stop if something has no name, or if two things have the same: either could be meant."""
    whole = f.concat_ws(between, repository, name)
    counted = rows.groupBy(repository, name).agg(f.count(f.lit(1)).alias("times"))
    nameless = f.coalesce(f.col(repository) == "", f.lit(True)) | f.coalesce(f.col(name) == "", f.lit(True))
    twice = f.max(f.when(f.col("times") > 1, whole)).alias("twice")
    found = counted.agg(f.max(nameless).alias("nameless"), twice).first()
    if found is not None and found["nameless"]:
        raise _damaged(f"something has no {name} or no {repository}")
    if found is not None and found["twice"] is not None:
        raise _damaged(f"{found['twice']} is there twice")


def _check_quarantine(images: DataFrame) -> None:
    """Stop if a quarantine is neither pending nor failed: such an image cannot be judged."""
    known = [str(state) for state in QuarantineState]
    odd = images.where(f.col("quarantine").isNotNull() & ~f.col("quarantine").isin(known)).first()
    if odd is not None:
        raise MetadataError(
            f"a quarantine of an image is {odd['quarantine']!r}",
            why="it cannot be decided whether the image may go",
            fix="make it pending, failed or none",
        )


def _damaged(what: str) -> MetadataError:
    return MetadataError(
        f"the tables of the registry cannot be judged: {what}",
        why="nothing is deleted while it is unclear what is meant",
        fix="scan the registry again",
    )


def child_references(images: DataFrame) -> DataFrame:
    """Return the references from indexes to their children; an absent child means nothing."""
    named = images.select("repository", f.col("node").alias("holder"), f.explode("children").alias("digest"))
    known = images.select("repository", "digest", "node")
    return named.distinct().join(known, ["repository", "digest"]).select("holder", "node")


def subject_references(images: DataFrame) -> DataFrame:
    """Return every referrer with its subject, null if that is absent, and whether its delete is requested."""
    asked = f.coalesce("delete_requested", f.lit(False)).alias("requested")
    about = images.where(f.col("subject").isNotNull()).select("node", "repository", "subject", asked)
    known = images.select("repository", f.col("digest").alias("subject"), f.col("node").alias("holder"))
    return about.join(known, ["repository", "subject"], "left").select("holder", "node", "requested")


def manifest_references(children: DataFrame, subjects: DataFrame) -> DataFrame:
    """
    Return all references between manifests: holder, node, kind.

    A manifest whose delete is requested does not wait for its subject, unless that is also an index that
    lists it. A holder that is both is called the subject.
    """
    indexes = children.select("holder", "node", f.lit(INDEX).alias("kind"), f.lit(True).alias("counts"))
    about = subjects.where(f.col("holder").isNotNull()).select(
        "holder", "node", f.lit(SUBJECT).alias("kind"), (~f.col("requested")).alias("counts")
    )
    pairs = indexes.unionByName(about).groupBy("holder", "node")
    found = pairs.agg(f.max("kind").alias("kind"), f.max("counts").alias("counts"))
    return found.where("counts").drop("counts")


def with_signed(tags: DataFrame, images: DataFrame) -> DataFrame:
    """Add to tags that have a stem the manifest that they are named after; null if it is absent."""
    algorithm = f.substring_index("digest", ":", 1)
    value = f.substr("digest", f.length(algorithm) + 2, f.lit(_LONGEST_VALUE))
    stem = f.concat(f.substring(algorithm, 1, _LONGEST_ALGORITHM), f.lit("-"), value)
    # The smaller number is the smaller digest: of several that a tag cannot distinguish the first is meant.
    signed = images.groupBy("repository", stem.alias("stem")).agg(
        f.min(f.struct(f.col("node").alias("holder"), f.col("digest").alias("signed"))).alias("found")
    )
    return tags.join(signed, ["repository", "stem"], "left").select(
        *tags.columns, f.col("found.holder").alias("holder"), f.col("found.signed").alias("signed")
    )


def top() -> Column:
    """Return the lapse and its policy as one value, so that of equal lapses the later name counts."""
    return f.struct("lapse", "policy").alias("top")


def has_no_lapse() -> Column:
    """Return True if nothing says when a node may go."""
    return f.col("top.lapse") == NO_LAPSE


def merged_retention(rows: DataFrame) -> DataFrame:
    """Merge the retentions of each node into one."""
    return rows.groupBy("node").agg(*(f.max(name).alias(name) for name in RETENTION))


def with_retention(nodes: DataFrame, others: DataFrame, on: str = "node") -> DataFrame:
    """Merge the retention of nodes with that of others, where there is one; `changed` if it grew."""
    names = {name: f"other_{name}" for name in RETENTION}
    renamed = others.withColumnsRenamed({"node": on, **names})
    both = nodes.join(renamed, on, "left")
    grown = {
        "top": f.greatest("top", "other_top"),
        "recycle": f.col("recycle") | f.coalesce("other_recycle", f.lit(False)),
        "held": f.col("held") | f.coalesce("other_held", f.lit(False)),
        "unmatched": f.col("unmatched") | f.coalesce("other_unmatched", f.lit(False)),
    }
    changed = f.lit(False)
    for name, column in grown.items():
        changed = changed | (column != f.col(name))
    return both.withColumn("changed", changed).withColumns(grown).drop(*names.values())


def propagated(nodes: DataFrame, references: DataFrame, materialize: Materialize) -> DataFrame:
    """
    Propagate retention over references (holder, node) until nothing changes; return all nodes in references.

    Then nodes without a lapse are held, and this is propagated too.
    """
    linked = references.select("holder").union(references.select("node")).distinct()
    start = nodes.select("node", *RETENTION).join(linked.withColumnRenamed("holder", "node"), "node")
    start = materialize(start.withColumn("changed", f.lit(True)), "lapses")
    lapses = _until_nothing_changes(start, references, materialize, "lapses")
    unheld = has_no_lapse() & ~f.col("held")
    held = lapses.withColumns({"changed": unheld, "held": f.col("held") | unheld})
    return _until_nothing_changes(held, references, materialize, "holds")


def _until_nothing_changes(
    nodes: DataFrame, references: DataFrame, materialize: Materialize, name: str
) -> DataFrame:
    rounds, most = 0, nodes.count() + 1
    while nodes.where("changed").count():
        # A path passes no node twice, so everything arrives in fewer rounds than there are nodes.
        if rounds > most:
            raise SafetyStop(
                f"the retention of images still changes after {rounds} rounds",
                why="this cannot happen, so nothing may be deleted by it",
                fix="report it as a defect of Ebbtide, with the tables of the registry",
            )
        rounds += 1
        news = nodes.where("changed").withColumnRenamed("node", "holder").join(references, "holder")
        grown = with_retention(nodes.drop("changed"), merged_retention(news))
        nodes = materialize(grown, f"{name}-{rounds % 2}")
    return nodes
