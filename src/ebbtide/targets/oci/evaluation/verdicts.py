"""Verdicts: what becomes of each tag and manifest of a registry, and what holds it, as the oracle says it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.oci.evaluation.fates import FATE, handed_on, is_stuck, joined
from ebbtide.targets.oci.evaluation.gathering import Gathered, gathered
from ebbtide.targets.oci.evaluation.settling import sent_if_few, settling
from ebbtide.targets.oci.evaluation.sizes import blob_sizes
from ebbtide.targets.oci.evaluation.ties import SUBJECT, numbered
from ebbtide.targets.oci.holding import scan_doubt
from ebbtide.targets.oci.model import OLDEST_SCAN, Decision, Running
from ebbtide.targets.oci.oracle import NO_LAPSE, NO_TERMS
from ebbtide.targets.oci.policies.policy import UNTAGGED, Policies
from ebbtide.targets.oci.tables import IMAGES, TAGS, VERDICTS


def evaluate(
    images: DataFrame,
    tags: DataFrame,
    policies: Policies,
    now: datetime,
    running: Running | None = None,
    oldest_scan: timedelta = OLDEST_SCAN,
    *,
    scratch: Path | None = None,
) -> DataFrame:
    """
    Judge every manifest and tag of a registry: images and tags in, verdicts out.

    A manifest or tag that is there twice, and a tag whose manifest is not there, stop the run. What is found
    on the way is kept on the executors or, with `scratch`, in that folder, which the verdicts are read from.
    """
    settle = settling(scratch)
    moment = _Moment(to_micros(now), scan_doubt(running, now, oldest_scan))
    with own_errors():
        known = numbered(IMAGES.check(images), settle)
        references = running.references if running else ()
        found = gathered(known, TAGS.check(tags), policies, now, references, settle)
        fates = handed_on(found.manifests, found.all_ties, settle)
        decided = settle(moment.decided(joined(found.manifests, fates)), "decided")
        return VERDICTS.check(_all(found, decided, moment))


class _Moment:
    """Decides at a moment; a doubt about what runs keeps everything."""

    def __init__(self, now: int, doubt: str) -> None:
        self.now, self.doubt = now, doubt

    def decided(self, rows: DataFrame) -> DataFrame:
        """Add to fates whether a thing stays, and the decision; what nobody gives a lapse stays."""
        held = f.col("held") | is_stuck()
        stays = held | (f.col("top.lapse") > self.now)
        remains = f.when(f.col("requested"), str(Decision.REFUSE)).otherwise(str(Decision.KEEP))
        goes = f.when(f.col("recycle"), str(Decision.RECYCLE)).otherwise(str(Decision.DELETE))
        decision = remains if self.doubt else f.when(stays, remains).otherwise(goes)
        return rows.withColumns({"stays": stays, "decision": decision, "held": held})

    def told(self, rows: DataFrame) -> DataFrame:
        """Say it in words: policy, deadline, and held_by, which ends with the holders that stay."""
        own = f.array_sort(f.array_distinct("words"))
        nothing = (f.size("words") == 0) & is_stuck()
        words = f.when(nothing, f.array(f.lit(NO_TERMS))).otherwise(own)
        doubt = f.array(f.lit(self.doubt)) if self.doubt else f.array().cast("array<string>")
        lapse = f.col("top.lapse")
        dated = ~lapse.isin(to_micros(NEVER), to_micros(NO_LAPSE))
        return rows.withColumns(
            {
                "policy": f.when(f.col("top.policy") != "", f.col("top.policy")).otherwise(UNTAGGED.name),
                "deadline": f.when(dated, f.timestamp_micros(lapse)),
                "held_by": f.when(f.col("stays"), f.concat(words, "holders")).otherwise(doubt),
                "created": f.timestamp_micros("created"),
            }
        ).select(*VERDICTS.columns)


def _all(found: Gathered, decided: DataFrame, moment: _Moment) -> DataFrame:
    """Put manifests and tags together."""
    tags = moment.decided(_tags(found, decided))
    manifests = decided.join(_holders(found, decided, tags), "node", "left")
    manifests = manifests.join(blob_sizes(found.images, decided), "node", "left").withColumns(
        {
            "tag": f.lit(""),
            "holders": f.coalesce("holders", _no_words()),
            "size": f.col("size") + f.coalesce("blobs", f.lit(0)),
        }
    )
    return moment.told(manifests).unionByName(moment.told(tags))


def _tags(found: Gathered, decided: DataFrame) -> DataFrame:
    """Give tags their fates and words: those that follow a manifest have its fate, too."""
    subject = decided.select("node", *FATE, f.col("stays").alias("subject_stays"))
    named = joined(found.named, subject, on="holder")
    word = f.concat(f.lit(f"{SUBJECT} "), f.col("signed"))
    holders = f.when(f.col("subject_stays"), f.array(word)).otherwise(_no_words())
    plain = found.plain.withColumn("holders", _no_words())
    columns = ["node", "repository", "digest", "tag", "requested", "words", "holders", *FATE]
    times = ["moved_at", "seen_at"]
    both = plain.select(*columns, *times).unionByName(
        named.withColumn("holders", holders).select(*columns, *times)
    )
    words = f.concat("words", f.coalesce("more", _no_words()))
    return both.join(sent_if_few(found.held_tags), ["node", "tag"], "left").withColumns(
        {
            "words": words,
            "held": f.col("held") | f.col("more").isNotNull(),
            "size": f.lit(0).cast("bigint"),
            "created": f.coalesce(*times),
        }
    )


def _no_words() -> Column:
    return f.array().cast("array<string>")


def _holders(found: Gathered, decided: DataFrame, tags: DataFrame) -> DataFrame:
    """Say of each manifest which of its holders stay: by their digests, then by their tags."""
    above = decided.where("stays").select(f.col("node").alias("holder"), f.col("digest").alias("above"))
    word = f.concat_ws(" ", "kind", "above").alias("word")
    manifests = found.ties.join(above, "holder").select(
        "node", f.struct(f.col("above").alias("digest"), f.lit("").alias("tag"), word).alias("holder")
    )
    tagged = f.concat(f.lit("tag "), f.col("tag")).alias("word")
    names = tags.where("stays").select("node", f.struct("digest", "tag", tagged).alias("holder"))
    gathered_words = f.sort_array(f.collect_list("holder")).getField("word")
    return manifests.unionByName(names).groupBy("node").agg(gathered_words.alias("holders"))
