"""
Standings: what all the references to an address add up to, one row an address.

Nothing here depends on the time: a standing says until *when* an address is held and by what, not whether it
is. It is a pure function of the ranges that name the address, of who reaches them and of the rules. Every sum
is a smallest, a largest or a union, so neither the order of the references nor a repeated one can change it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName, HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.layers import GONE, TOUCHED, UNTOUCHED
from ebbtide.engine.tables.contracts import STANDINGS

_NEVER = f"timestamp_micros({to_micros(NEVER)})"


def standings(
    references: DataFrame,
    affected: DataFrame | None = None,
    collector: CollectorName = CollectorName.LIFECYCLE,
) -> DataFrame:
    """Add up the references to each address; an affected one without any is gone."""
    if affected is not None:
        references = references.unionByName(affected, allowMissingColumns=True)
    # Of those that live longest, the first: a smallest, as where an executor dropped what it had twice.
    latest = f.struct((-f.unix_micros("lapse")).alias("until"), "key", "holder", "why")
    keeper = f.struct("key", "holder", "why")
    added = references.groupBy("world", "hash").agg(
        f.min(_touched("address")).alias("address"),
        f.max(_touched("address")).alias("last_address"),
        f.min(_touched(latest)).alias("latest"),
        f.min(f.when(~f.col("touched"), keeper)).alias("keeper"),
        f.sort_array(f.collect_set(_touched("key"))).alias("paths"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_set(_touched("rules"))))).alias("rules"),
        f.max(_touched("size")).alias("size"),
        f.max(_touched("created")).alias("created"),
        f.max("touched").alias("touched"),
    )
    judged = deduplicated(added)
    kinds = {"kind": _kind(f.col("touched")), "collector": f.lit(str(collector))}
    return STANDINGS.check(judged.withColumns(kinds))


def deduplicated(added: DataFrame) -> DataFrame:
    """
    Step 3. Say until when each address that a rule touches is held, and by what: by all that references it.

    A reference that no rule matches never lapses; the first such one is the address's `keeper`.

    References are matched by the hash of the canonical address. Two addresses with one hash would both be
    kept, which is the safe mistake.
    """
    until = f.timestamp_micros(-f.col("latest.until"))
    deadline, reason, held_by = until, f.col("latest.why"), _named("latest")
    for when, why, by in reversed([*_guards(), _keeper()]):
        deadline = f.when(when, f.expr(_NEVER)).otherwise(deadline)
        reason = f.when(when, why).otherwise(reason)
        held_by = f.when(when, by).otherwise(held_by)
    return added.withColumns(
        {
            "deadline": _touched(deadline),
            "reason": _touched(reason),
            "held_by": _touched(held_by),
            "branches": f.array_compact(f.array("latest.holder")),
        }
    )


def _keeper() -> tuple[Column, Column, Column]:
    return f.col("keeper").isNotNull(), f.col("keeper.why"), _named("keeper")


def _guards() -> list[tuple[Column, Column, Column]]:
    """
    Name what is never deleted by any rule, whatever the references say.

    Inside its namespace a canonical address is relative, so a full URL lies outside.
    """
    guards = [
        (f.col("address") != f.col("last_address"), HoldReason.COLLISION),
        (f.col("address").contains("://"), HoldReason.OUTSIDE),
        (f.col("address").startswith("_lakefs/"), HoldReason.METADATA),
    ]
    return [(when, f.lit(str(why)), f.col("address")) for when, why in guards]


def _touched(value: str | Column) -> Column:
    return f.when(f.col("touched"), value if isinstance(value, Column) else f.col(value))


def _kind(touched: Column) -> Column:
    return f.when(touched, TOUCHED).when(~touched, UNTOUCHED).otherwise(GONE)


def _named(reference: str) -> Column:
    """Name a reference in words: its key, then who holds it."""
    return f.concat_ws(" ", f"{reference}.key", f"{reference}.holder")
