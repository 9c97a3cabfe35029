"""Verdicts as the engine's standings: until when each image is kept, by what, and what is done then."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.layers import TOUCHED
from ebbtide.engine.tables.contracts import STANDINGS, TASK
from ebbtide.engine.tables.digest import address_hash
from ebbtide.targets.oci.kind import NO_RULE_MATCHED
from ebbtide.targets.oci.model import GOES

REASONS: Mapping[str, str] = {
    "pinned": "it is pinned",
    "running": "it was found running, or what needs it was",
    "keep_newest": "it is one of the newest",
    "tag ": "one of its tags stays",
    "index ": "an index that lists it stays",
    "subject ": "what it is about stays",
    "quarantine": "its check is not done",
    "unknown": "a time, a policy or a subject is not known",
    "no expiration": "it has no expiration date",
    "unmatched": "no rule matches it",
}
"""What the beginning of a hold means, in few words, so that holds can be counted."""

ELSE = "nothing says when it may go"
BLOCKED = "the registry cannot delete it"
MOST_WORDS = 5
_NEVER = to_micros(NEVER)


def names_alone(verdicts: DataFrame, tags: DataFrame) -> DataFrame:
    """
    Find the tags that go while their manifests stay, each with all tags of its manifest.

    Gives `repository`, `digest`, `tag` and `siblings`.
    """
    goes = f.col("decision").isin(*GOES)
    whole = verdicts.where(goes & (f.col("tag") == "")).select("repository", "digest")
    going = verdicts.where(goes & (f.col("tag") != "")).select("repository", "digest", "tag")
    alone = going.join(whole, ["repository", "digest"], "left_anti")
    siblings = tags.join(alone, ["repository", "digest"], "left_semi")
    siblings = siblings.groupBy("repository", "digest").agg(
        f.concat_ws(" ", f.sort_array(f.collect_list("tag"))).alias("siblings")
    )
    return alone.join(siblings, ["repository", "digest"], "left")


def registry_standings(
    verdicts: DataFrame, alone: DataFrame, unable: Mapping[str, str], unable_alone: Mapping[str, str]
) -> DataFrame:
    """
    Give each tag and manifest its standing.

    `unable` says of repositories why nothing can be deleted there, `unable_alone` why no tag can be by
    itself. The address is the manifest's: waves and tasks are cut between addresses, so that whoever
    removes a manifest has all the tags that go with it.
    """
    rows = verdicts.join(alone, ["repository", "digest", "tag"], "left")
    by_itself = f.when(f.col("siblings").isNotNull(), _named(unable_alone))
    blocked = f.coalesce(_named(unable), by_itself)
    rows = rows.withColumn("blocked", f.when(f.col("decision").isin(*GOES), blocked))
    words = f.array_join(f.slice("held_by", 1, MOST_WORDS), "; ")
    held = (f.size("held_by") > 0) | f.col("blocked").isNotNull()
    address = f.concat_ws("@", "repository", "digest")
    name = f.when(f.col("tag") == "", address).otherwise(f.concat_ws(":", "repository", "tag"))
    never = f.timestamp_micros(f.lit(_NEVER))
    return STANDINGS.check(
        rows.select(
            f.lit(0).alias("world"),
            address_hash(address).alias("hash"),
            address.alias("address"),
            f.when(held, never).otherwise(f.coalesce("deadline", never)).alias("deadline"),
            f.coalesce(_blocked_reason(), _reason()).alias("reason"),
            f.when(held, f.coalesce("blocked", words)).otherwise(_coming()).alias("held_by"),
            f.array(name).alias("paths"),
            f.array_compact(f.array("policy", f.when(f.col("unmatched"), NO_RULE_MATCHED))).alias("rules"),
            f.array().cast("array<string>").alias("branches"),
            f.coalesce("size", f.lit(0)).alias("size"),
            f.col("created"),
            f.col("decision").alias("collector"),
            _task().cast(TASK).alias("task"),
            f.lit(TOUCHED).alias("kind"),
        )
    )


def _named(reasons: Mapping[str, str]) -> Column:
    """Look a repository up."""
    if not reasons:
        return f.lit(None).cast("string")
    pairs = [f.lit(part) for pair in reasons.items() for part in pair]
    return f.element_at(f.create_map(*pairs), f.col("repository"))


def _blocked_reason() -> Column:
    return f.when(f.col("blocked").isNotNull(), f.lit(BLOCKED))


def _reason() -> Column:
    """Say in few words what holds a row: its first hold, or that its time has not come."""
    first = f.get("held_by", 0)
    found = f.when(first.isNull(), f.lit(str(HoldReason.NOT_YET)))
    for start, words in REASONS.items():
        found = found.when(first.startswith(start), f.lit(words))
    return found.otherwise(f.lit(ELSE))


def _coming() -> Column:
    when = f.date_format("deadline", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return f.concat(f.lit("policy "), f.col("policy"), f.lit(" until "), when)


def _task() -> Column:
    """Say what is to be done: to the tag of this name or, without one, to the manifest."""
    return f.struct(
        f.col("decision").alias("action"),
        f.col("tag").alias("version"),
        f.lit(None).cast("string").alias("etag"),
        f.lit(None).cast("boolean").alias("latest"),
        f.lit(None).cast("int").alias("newer"),
        f.col("siblings").alias("goal"),
    )
