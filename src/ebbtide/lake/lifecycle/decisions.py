"""Steps 3 and 4: which addresses have expired, and which of them something still keeps."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.lake.lifecycle.standings import TOUCHED
from ebbtide.lake.lifecycle.world import World
from ebbtide.plan.decision import Decision, HoldReason
from ebbtide.rules.instant import NEVER, to_micros
from ebbtide.tables.contracts import DECISIONS

_NEVER = f"timestamp_micros({to_micros(NEVER)})"


def expired_addresses(standings: DataFrame, worlds: Mapping[int, World]) -> DataFrame:
    """
    Step 3. Take every address that a rule touches; `ready` are those whose touched references have lapsed.

    Whether other references keep the address is the next step's question.
    """
    candidates = standings.where(f.col("kind") == TOUCHED)
    times = [(number, to_micros(world.now)) for number, world in worlds.items()]
    if len({micros for _, micros in times}) == 1:
        now = f.lit(times[0][1])
    else:
        # Each simulated world has its own time.
        clocks = standings.sparkSession.createDataFrame(times, "world int, now long")
        candidates, now = candidates.join(f.broadcast(clocks), "world"), f.col("now")
    return candidates.withColumn("ready", f.unix_micros("lapse") <= now)


def deduplicated(candidates: DataFrame, worlds: Mapping[int, World]) -> DataFrame:
    """
    Step 4. Decide: an address goes if no reference that still counts keeps it.

    A reference that no rule matches never lapses; the first such one is the address's `keeper`.

    References are matched by the hash of the canonical address. Two addresses with one hash would both be
    kept, which is the safe mistake.
    """
    kept = f.col("keeper").isNotNull()
    holds = [
        (kept, f.col("keeper_why"), f.col("keeper")),
        (~f.col("ready"), f.col("why"), f.col("holder")),
        *((when, f.lit(str(why)), f.col("address")) for when, why in _guards(worlds)),
    ]
    decision, reason, held_by = f.lit(str(Decision.DUE)), f.lit(None), f.lit(None)
    for when, why, by in reversed(holds):
        decision = f.when(when, f.lit(str(Decision.HELD))).otherwise(decision)
        reason = f.when(when, why).otherwise(reason)
        held_by = f.when(when, by).otherwise(held_by)
    return DECISIONS.check(
        candidates.select(
            "*",
            decision.alias("decision"),
            f.when(kept, f.expr(_NEVER)).otherwise(f.col("lapse")).alias("deadline"),
            reason.cast("string").alias("reason"),
            held_by.cast("string").alias("held_by"),
        )
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
