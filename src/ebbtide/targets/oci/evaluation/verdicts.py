"""
Verdicts: what becomes of each tag and manifest of a registry, and what holds it.

Everything gets its own terms and holds, these are propagated from holders to what they hold, and then it is
decided. Every blob is counted once, with one of the manifests that have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.oci.evaluation.expiry import policy_numbers, with_manifest_terms, with_tag_terms
from ebbtide.targets.oci.evaluation.graph import (
    NO_LAPSE,
    RETENTION,
    SUBJECT,
    Materialize,
    broadcast_if_small,
    check_names,
    child_references,
    has_no_lapse,
    manifest_references,
    materializer,
    merged_retention,
    numbered,
    propagated,
    subject_references,
    top,
    with_retention,
    with_signed,
)
from ebbtide.targets.oci.evaluation.holds import newest_holds, running_holds
from ebbtide.targets.oci.model import (
    NO_SUBJECT,
    NO_TERMS,
    OLDEST_SCAN,
    PENDING,
    ImageDecision,
    RunningImages,
    RunningReference,
)
from ebbtide.targets.oci.policies.policy import UNTAGGED, Policies
from ebbtide.targets.oci.running import scan_doubt
from ebbtide.targets.oci.tables import IMAGE_VERDICTS, IMAGES, TAGS

_TOP = "struct<lapse: bigint, policy: string>"


def evaluate(
    images: DataFrame,
    tags: DataFrame,
    policies: Policies,
    now: datetime,
    running: RunningImages | None = None,
    oldest_scan: timedelta = OLDEST_SCAN,
    *,
    scratch: Path | None = None,
) -> DataFrame:
    """
    Return the verdicts on every manifest and tag of a registry: images and tags in, IMAGE_VERDICTS out.

    Duplicate manifests or tags, and a tag without its manifest, stop the run. Intermediate tables are kept on
    the executors or, with `scratch`, in that folder, from which the verdicts are read.
    """
    materialize = materializer(scratch)
    moment = _Moment(to_micros(now), scan_doubt(running, now, oldest_scan))
    with own_errors():
        known = numbered(IMAGES.check(images), materialize)
        references = running.references if running else ()
        found = _prepared(known, TAGS.check(tags), policies, now, references, materialize)
        retention = propagated(found.manifests, found.all_references, materialize)
        decided = materialize(moment.decided(with_retention(found.manifests, retention)), "decided")
        return IMAGE_VERDICTS.check(_all_verdicts(found, decided, moment))


@dataclass(frozen=True)
class _Prepared:
    """A registry before anything is propagated."""

    images: DataFrame
    plain: DataFrame
    """The tags with ordinary names."""
    named: DataFrame
    """The tags that are named like a digest; `holder` is the manifest that they follow, if any."""
    manifests: DataFrame
    references: DataFrame
    """holder, node, kind: which manifests keep which."""
    held_tags: DataFrame
    """node, tag, more: what holds tags from outside, in words."""

    @property
    def all_references(self) -> DataFrame:
        """All references over which retention is propagated, including those by tags of signatures."""
        signed = self.named.where(f.col("holder").isNotNull()).select("holder", "node")
        return self.references.select("holder", "node").unionByName(signed)


def _prepared(
    images: DataFrame,
    tags: DataFrame,
    policies: Policies,
    now: datetime,
    running: Sequence[RunningReference],
    materialize: Materialize,
) -> _Prepared:
    """Compute the terms of everything, and find what holds it; `images` are numbered."""
    numbers = broadcast_if_small(materialize(policy_numbers(policies, tags, images), "policies"))
    timed = materialize(with_tag_terms(tags, images, policies, numbers, now), "tags")
    check_names(timed, "repository", "tag", ":")
    is_named = f.col("stem").isNotNull()
    named = materialize(_following(with_signed(timed.where(is_named), images)), "named-tags")
    plain = _following(
        timed.where(~is_named).withColumns(
            {"holder": f.lit(None).cast("bigint"), "signed": f.lit(None).cast("string")}
        )
    )
    children = materialize(child_references(images), "children")
    subjects = materialize(subject_references(images), "subjects")
    both = plain.unionByName(named)
    by_running = running_holds(images, both, children, running, materialize)
    newest = newest_holds(both, policies.keep_newest, materialize)
    held_tags = materialize(_grouped(newest.unionByName(by_running.tags), "node", "tag"), "held-tags")
    flagged = _flagged(images, both, held_tags, children, subjects)
    manifests = with_manifest_terms(flagged, policies, numbers, now)
    held = materialize(_grouped(by_running.manifests, "node"), "held-manifests")
    whole = materialize(_whole(manifests.join(broadcast_if_small(held), "node", "left")), "manifests")
    references = materialize(manifest_references(children, subjects), "references")
    return _Prepared(images, plain, named, whole, references, held_tags)


def _following(tags: DataFrame) -> DataFrame:
    """Mark tags that are named after a digest; unless they are pinned they have no terms of their own."""
    follows = f.col("holder").isNotNull() | f.coalesce("whole", f.lit(False))
    waits = follows & ~f.col("requested")
    bound = waits & ~f.col("pinned")
    tags = tags.withColumns(
        {
            "follows": follows,
            "lost": waits & f.col("holder").isNull(),
            "holder": f.when(waits, f.col("holder")),
            "lapse": f.when(bound, NO_LAPSE).otherwise(f.col("lapse")),
            "policy": f.when(bound, "").otherwise(f.col("policy")),
            "recycle": ~bound & f.col("recycle"),
            "unmatched": ~bound & f.col("unmatched"),
            "word": f.when(~bound, f.col("word")),
        }
    )
    told = tags.withColumns({"top": top(), "words": _own_words()})
    return told.withColumn("held", f.size("words") > 0).drop("lapse", "policy", "pinned", "whole", "stem")


def _own_words() -> Column:
    found = f.array(f.col("word"), f.when(f.col("pending"), PENDING), f.when(f.col("lost"), NO_SUBJECT))
    return f.array_compact(found)


def _grouped(words: DataFrame, *keys: str) -> DataFrame:
    """Collect words by item."""
    return words.groupBy(*keys).agg(f.collect_set("word").alias("more"))


def _flagged(
    images: DataFrame, tags: DataFrame, held_tags: DataFrame, children: DataFrame, subjects: DataFrame
) -> DataFrame:
    """Add to manifests what their terms depend on: the retention of their tags, and what they follow."""
    held = held_tags.select(
        "node",
        f.lit(None).cast(_TOP).alias("top"),
        f.lit(False).alias("recycle"),
        f.lit(True).alias("held"),
        f.lit(False).alias("unmatched"),
    )
    fates = merged_retention(tags.select("node", *RETENTION).unionByName(held)).select(
        "node",
        f.col("top.lapse").alias("tags_lapse"),
        f.col("top.policy").alias("tags_policy"),
        f.col("recycle").alias("tags_recycle"),
        f.col("held").alias("tags_held"),
        f.col("unmatched").alias("tags_unmatched"),
    )
    child = children.select("node").distinct().withColumn("child", f.lit(True))
    about = subjects.select("node", f.col("holder").isNotNull().alias("referrer"))
    found = images.drop("blobs", "children").join(fates, "node", "left").join(child, "node", "left")
    asked = f.coalesce("delete_requested", f.lit(False))
    return found.join(about, "node", "left").withColumns(
        {
            "child": f.coalesce("child", f.lit(False)),
            "lost": f.coalesce(~f.col("referrer"), f.lit(False)) & ~asked,
            "referrer": f.coalesce("referrer", f.lit(False)),
        }
    )


def _whole(manifests: DataFrame) -> DataFrame:
    """Combine a manifest's own terms, those of its tags and its words."""
    own, of_tags = (
        f.struct("lapse", "policy"),
        f.struct(f.col("tags_lapse").alias("lapse"), f.col("tags_policy").alias("policy")),
    )
    both = f.greatest(own, f.when(f.col("tags_lapse").isNotNull(), of_tags))
    words = f.concat(_own_words(), f.coalesce("more", f.array().cast("array<string>")))
    told = manifests.withColumns({"top": both, "words": words})
    return told.select(
        *("node", "repository", "digest", "size", "created", "requested", "top", "words"),
        (f.col("recycle") | f.coalesce("tags_recycle", f.lit(False))).alias("recycle"),
        ((f.size("words") > 0) | f.coalesce("tags_held", f.lit(False))).alias("held"),
        (f.col("unmatched") | f.coalesce("tags_unmatched", f.lit(False))).alias("unmatched"),
    )


class _Moment:
    """Decides at a moment; a doubt about running images keeps everything."""

    def __init__(self, now: int, doubt: str) -> None:
        self.now, self.doubt = now, doubt

    def decided(self, rows: DataFrame) -> DataFrame:
        """Add whether an item stays, and the decision; an item without a lapse stays."""
        held = f.col("held") | has_no_lapse()
        stays = held | (f.col("top.lapse") > self.now)
        remains = f.when(f.col("requested"), str(ImageDecision.REFUSE)).otherwise(str(ImageDecision.KEEP))
        goes = f.when(f.col("recycle"), str(ImageDecision.RECYCLE)).otherwise(str(ImageDecision.DELETE))
        decision = remains if self.doubt else f.when(stays, remains).otherwise(goes)
        return rows.withColumns({"stays": stays, "decision": decision, "held": held})

    def told(self, rows: DataFrame) -> DataFrame:
        """Add the words: policy, deadline, and held_by, which ends with the holders that stay."""
        own = f.array_sort(f.array_distinct("words"))
        nothing = (f.size("words") == 0) & has_no_lapse()
        words = f.when(nothing, f.array(f.lit(NO_TERMS))).otherwise(own)
        doubt = f.array(f.lit(self.doubt)) if self.doubt else f.array().cast("array<string>")
        lapse = f.col("top.lapse")
        dated = ~lapse.isin(to_micros(NEVER), NO_LAPSE)
        return rows.withColumns(
            {
                "policy": f.when(f.col("top.policy") != "", f.col("top.policy")).otherwise(UNTAGGED.name),
                "deadline": f.when(dated, f.timestamp_micros(lapse)),
                "held_by": f.when(f.col("stays"), f.concat(words, "holders")).otherwise(doubt),
                "created": f.timestamp_micros("created"),
            }
        ).select(*IMAGE_VERDICTS.columns)


def _all_verdicts(found: _Prepared, decided: DataFrame, moment: _Moment) -> DataFrame:
    """Return the verdicts on manifests and tags."""
    tags = moment.decided(_tags(found, decided))
    manifests = decided.join(_holders(found, decided, tags), "node", "left")
    manifests = manifests.join(_blob_sizes(found.images, decided), "node", "left").withColumns(
        {
            "tag": f.lit(""),
            "holders": f.coalesce("holders", _no_words()),
            "size": f.col("size") + f.coalesce("blobs", f.lit(0)),
        }
    )
    return moment.told(manifests).unionByName(moment.told(tags))


def _tags(found: _Prepared, decided: DataFrame) -> DataFrame:
    """Add retention and words to tags: those that follow a manifest have its retention, too."""
    subject = decided.select("node", *RETENTION, f.col("stays").alias("subject_stays"))
    named = with_retention(found.named, subject, on="holder")
    word = f.concat(f.lit(f"{SUBJECT} "), f.col("signed"))
    holders = f.when(f.col("subject_stays"), f.array(word)).otherwise(_no_words())
    plain = found.plain.withColumn("holders", _no_words())
    columns = ["node", "repository", "digest", "tag", "requested", "words", "holders", *RETENTION]
    times = ["moved_at", "seen_at"]
    both = plain.select(*columns, *times).unionByName(
        named.withColumn("holders", holders).select(*columns, *times)
    )
    words = f.concat("words", f.coalesce("more", _no_words()))
    return both.join(broadcast_if_small(found.held_tags), ["node", "tag"], "left").withColumns(
        {
            "words": words,
            "held": f.col("held") | f.col("more").isNotNull(),
            "size": f.lit(0).cast("bigint"),
            "created": f.coalesce(*times),
        }
    )


def _no_words() -> Column:
    return f.array().cast("array<string>")


def _holders(found: _Prepared, decided: DataFrame, tags: DataFrame) -> DataFrame:
    """Return for each manifest which of its holders stay: by their digests, then by their tags."""
    above = decided.where("stays").select(f.col("node").alias("holder"), f.col("digest").alias("above"))
    word = f.concat_ws(" ", "kind", "above").alias("word")
    manifests = found.references.join(above, "holder").select(
        "node", f.struct(f.col("above").alias("digest"), f.lit("").alias("tag"), word).alias("holder")
    )
    tagged = f.concat(f.lit("tag "), f.col("tag")).alias("word")
    names = tags.where("stays").select("node", f.struct("digest", "tag", tagged).alias("holder"))
    gathered_words = f.sort_array(f.collect_list("holder")).getField("word")
    return manifests.unionByName(names).groupBy("node").agg(gathered_words.alias("holders"))


def _blob_sizes(images: DataFrame, decided: DataFrame) -> DataFrame:
    """
    Return for each manifest the bytes of the blobs that are counted for it: node, blobs.

    A blob stays as long as one manifest that has it, in any repository: so it is counted for one that stays
    if there is one, else for one that is recycled. Of equals the first name counts, and numbers follow the
    order of names.
    """
    listed = images.select("node", f.explode("blobs").alias("blob")).select("node", "blob.*")
    decision = f.col("decision")
    rank = f.when(decision == ImageDecision.RECYCLE, 1).when(decision == ImageDecision.DELETE, 2).otherwise(0)
    ranks = decided.select("node", rank.alias("rank"))
    ranked = listed.where(f.col("digest").isNotNull()).join(ranks, "node")
    first = f.min(f.struct("rank", "node", f.coalesce("size", f.lit(0)).alias("size"))).alias("first")
    counted = ranked.groupBy("digest").agg(first).select("first.*")
    return counted.groupBy("node").agg(f.sum("size").alias("blobs"))
