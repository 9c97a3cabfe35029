"""Verdicts of policies as the engine's: until when each image is kept, by what, and what is done then."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.tables.contracts import VERDICTS, condition
from ebbtide.engine.tables.digest import address_hash
from ebbtide.targets.oci.kind import NO_RULE_MATCHED, PURGE
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
        f.sort_array(f.collect_list("tag")).alias("siblings")
    )
    return alone.join(siblings, ["repository", "digest"], "left")


def registry_verdicts(
    verdicts: DataFrame, alone: DataFrame, unable: Mapping[str, str], unable_alone: Mapping[str, str]
) -> DataFrame:
    """
    Return the verdict on each tag and manifest.

    `unable` says of repositories why nothing can be deleted there, `unable_alone` why no tag can be by
    itself. The address is the manifest's: batches and tasks are cut between addresses, so that whoever
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
    return VERDICTS.check(
        rows.select(
            address_hash(address).alias("hash"),
            address.alias("address"),
            f.when(held, never).otherwise(f.coalesce("deadline", never)).alias("deadline"),
            f.coalesce(_blocked_reason(), _reason()).alias("hold"),
            f.when(held, f.coalesce("blocked", words)).otherwise(_coming()).alias("holder"),
            f.array(name).alias("names"),
            f.array_compact(f.array("policy", f.when(f.col("unmatched"), NO_RULE_MATCHED))).alias("rules"),
            f.coalesce("size", f.lit(0)).alias("size"),
            f.col("created"),
            f.lit(PURGE).alias("collector"),
            # An empty version is the manifest; any other is one of its tags.
            f.col("tag").alias("version"),
            f.col("decision").alias("action"),
            condition(siblings=f.col("siblings")).alias("condition"),
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
