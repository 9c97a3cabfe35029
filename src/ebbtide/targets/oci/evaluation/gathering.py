"""What tags and manifests come to by themselves: their terms, and all that holds them from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.instant import to_micros
from ebbtide.targets.oci.evaluation.fates import FATE, folded, top
from ebbtide.targets.oci.evaluation.newest import newest_tags
from ebbtide.targets.oci.evaluation.own import with_manifest_terms, with_tag_terms
from ebbtide.targets.oci.evaluation.running import running_words
from ebbtide.targets.oci.evaluation.settling import Settle, sent_if_few
from ebbtide.targets.oci.evaluation.ties import check_names, child_ties, named_ties, subject_ties, with_signed
from ebbtide.targets.oci.holding import PENDING
from ebbtide.targets.oci.model import Reference
from ebbtide.targets.oci.oracle import NO_LAPSE, NO_SUBJECT
from ebbtide.targets.oci.policies.policy import Policies

_TOP = "struct<lapse: bigint, policy: string>"


@dataclass(frozen=True)
class Gathered:
    """A registry before anything was handed on."""

    images: DataFrame
    plain: DataFrame
    """The tags that are what they are called."""
    named: DataFrame
    """The tags that are named as if after a digest; `holder` is what they follow, if they do."""
    manifests: DataFrame
    ties: DataFrame
    """holder, node, kind: which manifests keep which, as it will be told."""
    held_tags: DataFrame
    """node, tag, more: what holds tags from outside, in words."""

    @property
    def all_ties(self) -> DataFrame:
        """All over which something is handed on: by tags of signatures too, which stand between manifests."""
        signed = self.named.where(f.col("holder").isNotNull()).select("holder", "node")
        return self.ties.select("holder", "node").unionByName(signed)


def gathered(
    images: DataFrame,
    tags: DataFrame,
    policies: Policies,
    now: datetime,
    references: Sequence[Reference],
    settle: Settle,
) -> Gathered:
    """Ask everything for its terms, and find what holds it; `images` are numbered."""
    asked = settle(with_tag_terms(tags, images, policies, now), "tags")
    check_names(asked, "repository", "tag", ":")
    named = settle(_following(with_signed(asked.where(f.col("stem").isNotNull()), images)), "named-tags")
    plain = _following(
        asked.where(f.col("stem").isNull()).withColumns(
            {"holder": f.lit(None).cast("bigint"), "signed": f.lit(None).cast("string")}
        )
    )
    children = settle(child_ties(images), "children")
    subjects = settle(subject_ties(images), "subjects")
    both = plain.unionByName(named)
    running = running_words(images, both, children, references, settle)
    newest = newest_tags(both, policies.keep_newest, settle)
    held_tags = settle(_grouped(newest.unionByName(running.tags), "node", "tag"), "held-tags")
    manifests = with_manifest_terms(_flagged(images, both, held_tags, children, subjects), policies, now)
    held = settle(_grouped(running.manifests, "node"), "held-manifests")
    whole = settle(_whole(manifests.join(sent_if_few(held), "node", "left")), "manifests")
    ties = settle(named_ties(children, subjects), "ties")
    return Gathered(images, plain, named, whole, ties, held_tags)


def _following(tags: DataFrame) -> DataFrame:
    """Say of tags whether they follow a digest; those that do have no terms, unless they are pinned."""
    follows = f.col("holder").isNotNull() | f.coalesce("whole", f.lit(False))
    waits = follows & ~f.col("requested")
    bound = waits & ~f.col("pinned")
    tags = tags.withColumns(
        {
            "follows": follows,
            "lost": waits & f.col("holder").isNull(),
            "holder": f.when(waits, f.col("holder")),
            "lapse": f.when(bound, to_micros(NO_LAPSE)).otherwise(f.col("lapse")),
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
    """Gather words by what they are about."""
    return words.groupBy(*keys).agg(f.collect_set("word").alias("more"))


def _flagged(
    images: DataFrame, tags: DataFrame, held_tags: DataFrame, children: DataFrame, subjects: DataFrame
) -> DataFrame:
    """Add to manifests what their terms depend on: what their tags come to, and what they follow."""
    held = held_tags.select(
        "node",
        f.lit(None).cast(_TOP).alias("top"),
        f.lit(False).alias("recycle"),
        f.lit(True).alias("held"),
        f.lit(False).alias("unmatched"),
    )
    fates = folded(tags.select("node", *FATE).unionByName(held)).select(
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
    """Put a manifest's own terms, those of its tags and its words together."""
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
