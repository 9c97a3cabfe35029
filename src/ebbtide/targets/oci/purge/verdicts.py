"""
Image verdicts as rows of the engine: until when each image is kept, by what, and what is done then.

What the registry cannot delete is held; that is probed in the repositories where something is to go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.tables.contracts import VERDICTS, condition
from ebbtide.engine.tables.digest import address_hash
from ebbtide.targets.oci.client.registry import Ability, Capabilities, Registry
from ebbtide.targets.oci.kind import NO_RULE_MATCHED, PURGE
from ebbtide.targets.oci.model import GOES

_PROBES_AT_ONCE = 8
_NO_DELETE = {
    Ability.NO: "deleting is switched off in this registry",
    Ability.DENIED: "the registry does not let this user delete here",
}
_NO_UNTAG = {
    Ability.NO: "this registry deletes no tag by itself, and the manifest has to stay",
    Ability.DENIED: "the registry does not let this user delete a tag here, and the manifest has to stay",
    Ability.UNKNOWN: "whether this registry deletes a tag by itself is not known, and the manifest stays",
}


def probed(registry: Registry, repositories: Sequence[str]) -> dict[str, Capabilities]:
    """Ask what some repositories support, several at once."""
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as threads:
        return dict(zip(repositories, threads.map(registry.capabilities, repositories), strict=True))


def undeletable(found: Mapping[str, Capabilities]) -> dict[str, str]:
    """Return why nothing can be deleted, by repository."""
    return {
        name: _NO_DELETE[one.manifest_delete]
        for name, one in found.items()
        if one.manifest_delete in _NO_DELETE
    }


def undeletable_tags(found: Mapping[str, Capabilities]) -> dict[str, str]:
    """Return why no tag can be deleted without its manifest, by repository."""
    return {name: _NO_UNTAG[one.tag_delete] for name, one in found.items() if one.tag_delete in _NO_UNTAG}


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
"""What the start of a hold means, in few words, so that holds can be counted."""

OTHER_REASON = "nothing says when it may go"
BLOCKED = "the registry cannot delete it"
MOST_HOLDERS = 5
_NEVER = to_micros(NEVER)


def names_alone(verdicts: DataFrame, tags: DataFrame) -> DataFrame:
    """
    Find the tags that go while their manifests stay, each with all tags of its manifest.

    Returns `repository`, `digest`, `tag` and `siblings`.
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
    itself. The address is the manifest's: batches and tasks are cut between addresses, so that one
    actor has a manifest with all the tags that go with it.
    """
    rows = verdicts.join(alone, ["repository", "digest", "tag"], "left")
    by_itself = f.when(f.col("siblings").isNotNull(), _named(unable_alone))
    blocked = f.coalesce(_named(unable), by_itself)
    rows = rows.withColumn("blocked", f.when(f.col("decision").isin(*GOES), blocked))
    words = f.array_join(f.slice("held_by", 1, MOST_HOLDERS), "; ")
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
    """Return in few words what holds a row: its first hold, or that its time has not come."""
    first = f.get("held_by", 0)
    found = f.when(first.isNull(), f.lit(str(HoldReason.NOT_YET)))
    for start, words in REASONS.items():
        found = found.when(first.startswith(start), f.lit(words))
    return found.otherwise(f.lit(OTHER_REASON))


def _coming() -> Column:
    when = f.date_format("deadline", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return f.concat(f.lit("policy "), f.col("policy"), f.lit(" until "), when)
