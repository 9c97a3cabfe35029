"""Steps 3 and 4: which addresses have expired, and which of them something still keeps."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from ebbtide.lake.lifecycle.references import Side, references
from ebbtide.lake.lifecycle.world import World
from ebbtide.plan.decision import Decision, HoldReason
from ebbtide.rules.instant import NEVER, to_micros
from ebbtide.tables.contracts import DECISIONS

_NEVER = f"timestamp_micros({to_micros(NEVER)})"


def expired_addresses(ranges: DataFrame, worlds: Mapping[int, World]) -> DataFrame:
    """
    Step 3. Gather every address that a rule touches, with its paths, rules and the latest lapse among them.

    `ready` says that all the references which rules match have lapsed; whether others keep the address is
    the next step's question.
    """
    touched = references(ranges, worlds, Side.TOUCHED)
    latest = f.max(f.struct("lapse", "key", "holder", "why"))
    # Grouping by the hash alone leaves the rows where the next step joins them, with no second shuffle.
    return touched.groupBy("world", "hash").agg(
        f.min("address").alias("address"),
        f.max("address").alias("last_address"),
        latest.alias("latest"),
        f.min("lapsed").alias("ready"),
        f.sort_array(f.collect_set("key")).alias("paths"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_set("rules")))).alias("rules"),
        f.sort_array(f.collect_set("holder")).alias("branches"),
        f.max("size").alias("size"),
        f.max("created").alias("created"),
    )


def deduplicated(
    candidates: DataFrame,
    untouched: DataFrame,
    worlds: Mapping[int, World],
    both: Observation | None = None,
) -> DataFrame:
    """
    Step 4. Decide: an address goes if no reference that still counts keeps it.

    `untouched` are the references that no rule matches; they never lapse. `both` counts what is kept so.

    References are matched by the hash of the canonical address. Two addresses with one hash would both be
    kept, which is the safe mistake.
    """
    joined = candidates.join(_keepers(candidates, untouched), ["world", "hash"], "left")
    if both is not None:
        joined = joined.observe(both, f.count("keeper").alias("objects"))
    kept = f.col("keeper").isNotNull()
    waiting = ~f.col("ready")
    holds = [
        (kept, f.col("keeper.why"), f.concat_ws(" ", "keeper.key", "keeper.holder")),
        (waiting, f.col("latest.why"), f.concat_ws(" ", "latest.key", "latest.holder")),
        *((when, f.lit(str(why)), f.col("address")) for when, why in _guards(worlds)),
    ]
    decision, reason, held_by = f.lit(str(Decision.DUE)), f.lit(None), f.lit(None)
    for when, why, by in reversed(holds):
        decision = f.when(when, f.lit(str(Decision.HELD))).otherwise(decision)
        reason = f.when(when, why).otherwise(reason)
        held_by = f.when(when, by).otherwise(held_by)
    return DECISIONS.check(
        joined.select(
            "*",
            decision.alias("decision"),
            f.when(kept, f.expr(_NEVER)).otherwise(f.col("latest.lapse")).alias("deadline"),
            reason.cast("string").alias("reason"),
            held_by.cast("string").alias("held_by"),
        )
    )


def _keepers(candidates: DataFrame, untouched: DataFrame) -> DataFrame:
    """Find, for each candidate that a reference without a rule names, the first such reference."""
    wanted = candidates.select("world", "hash").hint("shuffle_hash")
    return (
        untouched.join(wanted, ["world", "hash"], "left_semi")
        .groupBy("world", "hash")
        .agg(f.min(f.struct("key", "holder", "why")).alias("keeper"))
    )


def _guards(worlds: Mapping[int, World]) -> list[tuple[Column, HoldReason]]:
    """Name what is never deleted by any rule, whatever the references say."""
    return [
        (f.col("address") != f.col("last_address"), HoldReason.COLLISION),
        (_is_outside(worlds), HoldReason.OUTSIDE),
        (f.col("address").startswith("_lakefs/"), HoldReason.METADATA),
    ]


def _is_outside(worlds: Mapping[int, World]) -> Column:
    """Say which rows lie outside their world's namespace: inside, a canonical address is relative."""
    bounded = [number for number, world in worlds.items() if world.namespace is not None]
    if not bounded:
        return f.lit(False)
    full = f.col("address").contains("://")
    return full if len(bounded) == len(worlds) else full & f.col("world").isin(bounded)
