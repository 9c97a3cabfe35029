"""
Verdicts: what the rules do with each row at a given time, and what holds it.

If versioning is suspended, the delete marker that expires an object is the null version of its key. It
replaces an older null version behind a current version that has an id. S3 does this for every delete. A plan
counts these null versions, and a locked one keeps its key from being expired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.core.instant import MICROSECONDS_A_DAY, NEVER, to_micros
from ebbtide.targets.s3.evaluation.class_lookup import (
    literal,
    seen_signatures,
    with_classes,
    with_interval,
    with_terms,
)
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting, key_intervals, numbered_rules
from ebbtide.targets.s3.evaluation.rule_classes import RuleTerms, When, rule_classes
from ebbtide.targets.s3.evaluation.version_order import with_order
from ebbtide.targets.s3.model import MARKER, NULL, UPLOAD, VERSION, Action, Hold, Versioning

_LAST_DAY = to_micros(NEVER) // MICROSECONDS_A_DAY
_BITS = 32
_PENDING = ["PENDING", "PROCESSING"]
RESTORED_UNTIL = "restored_until"
"""The column with the end of the hold on a version that was restored from the recycle bin."""


def evaluate(rows: DataFrame, settings: Sequence[BucketSetting]) -> DataFrame:
    """
    Add the verdict to each row of an inventory: action, goal, rule_id, due and held_by.

    Also add its conditions: whether it is `current`, and how many noncurrent versions must be `newer`.
    """
    intervals = key_intervals(settings)
    placed = with_interval(rows, intervals)
    known = rule_classes(settings, intervals, seen_signatures(placed, intervals))
    alone = _with_holds(with_classes(placed, known), settings)
    found = with_terms(with_order(alone), known)
    chosen = _as_they_are(_chosen(_dated(found, _OfTerms(known.terms), settings), settings))
    current = f.col("may_be_current").alias("current")
    return chosen.select(
        *rows.columns,
        current,
        _needed(settings).alias("newer"),
        "action",
        "goal",
        "rule_id",
        "due",
        "held_by",
        "holder",
    )


def _needed(settings: Sequence[BucketSetting]) -> Column:
    """Return the number of newer noncurrent versions that the deciding rule requires."""
    rules = [numbered.rule for rules in numbered_rules(settings) for numbered in rules]
    ends = literal((r.noncurrent_expiration.newer if r.noncurrent_expiration else 0 for r in rules), "int")
    # If a rule has several transitions the largest number counts, which can only keep more.
    moves = literal((max((m.newer for m in r.noncurrent_transitions), default=0) for r in rules), "int")
    needed = f.when(f.col("_moves"), f.get(moves, _rule(f.col("_due_move")))).otherwise(
        f.get(ends, f.col("_end_rule"))
    )
    return f.when(f.col("may_be_current"), 0).otherwise(f.coalesce(needed, f.lit(0)))


def _as_they_are(rows: DataFrame) -> DataFrame:
    """
    Stop Spark from pushing filters on verdicts below this point.

    Spark would push a filter down through every step and substitute the expression of each column. A filter
    on the action would then contain all expressions many times. It does not push filters past metrics.
    """
    return rows.observe("verdicts", f.count(f.lit(1)).alias("rows"))


@dataclass(frozen=True)
class _OfTerms:
    """The terms of a row, as columns."""

    terms: Sequence[RuleTerms]

    @property
    def most_moves(self) -> int:
        """The largest number of transitions of any terms."""
        return max(len(terms.moves) for terms in self.terms)

    def get(self, what: Callable[[RuleTerms], Any], kind: str) -> Column:
        """Return one property of a row's terms."""
        return f.get(literal((what(terms) for terms in self.terms), kind), f.col("terms"))

    def moment(self, what: Callable[[RuleTerms], When]) -> Column:
        """
        Return the day on which something is due and its rule, encoded as one number.

        The day is in the high bits, so the least number is the earliest, and among equals the first rule.
        """
        day = f.col("_day") + self.get(lambda terms: what(terms).days, "int")
        rule = self.get(lambda terms: what(terms).days_rule, "bigint")
        after = f.when(day <= _LAST_DAY, day * 2**_BITS + rule)
        return f.least(after, self.get(lambda terms: _coded(what(terms)), "bigint"))

    def move(self, number: int) -> Column:
        """Return when a transition is due; transitions are in the order of preference."""
        return self.moment(lambda terms: terms.moves[number].when if number < len(terms.moves) else When())

    def target(self, number: int) -> Column:
        """Return the storage class that a transition goes to."""
        return self.get(
            lambda terms: terms.moves[number].storage_class if number < len(terms.moves) else None, "string"
        )


def _coded(when: When) -> int | None:
    return None if when.date is None or when.date_rule is None else when.date * 2**_BITS + when.date_rule


def _day(moment: Column) -> Column:
    return f.shiftright(moment, _BITS)


def _micros(moment: Column) -> Column:
    return _day(moment) * MICROSECONDS_A_DAY


def _rule(moment: Column) -> Column:
    return moment.bitwiseAND(f.lit(2**_BITS - 1)).cast("int")


def _dated(rows: DataFrame, of: _OfTerms, settings: Sequence[BucketSetting]) -> DataFrame:
    """Add when each row ends, which transition is due, and which comes next."""
    since = f.unix_micros("since")
    # Rounded up to midnight, so the quotient is an integer and small enough to be exact.
    day = ((since + f.pmod(-since, f.lit(MICROSECONDS_A_DAY))) / MICROSECONDS_A_DAY).cast("bigint")
    today = _by_world(settings, lambda setting: to_micros(setting.now) // MICROSECONDS_A_DAY, "bigint")
    rows = rows.withColumns({"_day": day, "_today": today})
    rows = rows.withColumns(
        {
            "_once": of.get(lambda terms: terms.at_once, "int"),
            "_end": of.moment(lambda terms: terms.ends),
            **{f"_move{number}": of.move(number) for number in range(of.most_moves)},
        }
    )
    moves = [f.col(f"_move{number}") for number in range(of.most_moves)]
    none = f.lit(None)
    due = [_day(move) <= f.col("_today") for move in moves]
    own, once, end = f.unix_micros("last_modified"), f.col("_once"), f.col("_end")
    # `at_once` is due at the item's own time, which may be before or after the days of other rules.
    sooner = end.isNull() | (own < _micros(end)) | ((own == _micros(end)) & (once < _rule(end)))
    at_once = once.isNotNull() & sooner
    return rows.withColumns(
        {
            "_end_due": f.when(at_once, own).otherwise(_micros(end)),
            "_end_rule": f.when(at_once, once).otherwise(_rule(end)),
            "_due_move": f.coalesce(*map(f.when, due, moves), none.cast("bigint")),
            "_next_move": f.least(*moves, none.cast("bigint"), none.cast("bigint")),
            "_goal": f.coalesce(
                *(f.when(is_due, of.target(number)) for number, is_due in enumerate(due)), none.cast("string")
            ),
        }
    )


def _by_world(settings: Sequence[BucketSetting], what: Callable[[BucketSetting], Any], kind: str) -> Column:
    return f.get(literal(map(what, settings), kind), f.col("world"))


def _with_holds(rows: DataFrame, settings: Sequence[BucketSetting]) -> DataFrame:
    """Add the holds that prevent any action, and those that prevent destruction; uploads have neither."""
    now = _now(settings)
    replicating = f.upper("replication_status").isin(_PENDING)
    of_all = f.when(replicating, str(Hold.REPLICATION)).when(f.col("restoring"), str(Hold.RESTORE))
    if RESTORED_UNTIL in rows.columns:
        of_all = of_all.when(f.unix_micros(RESTORED_UNTIL) > now, str(Hold.RESTORED))
    locked = f.unix_micros("retain_until") > now
    of_lock = f.when(f.col("legal_hold"), str(Hold.LEGAL_HOLD)).when(locked, str(Hold.RETENTION))
    applies = f.col("kind") != UPLOAD
    return rows.withColumns(
        {
            "_hold_all": f.when(applies, of_all),
            "_hold_lock": f.when(applies, of_lock),
            "holder": _protector(settings),
        }
    )


def _protector(settings: Sequence[BucketSetting]) -> Column:
    """Return the lake that contains a key; null if none does."""
    if not any(setting.protected for setting in settings):
        return f.lit(None).cast("string")
    prefixes = [[asdict(one) for one in setting.protected] for setting in settings]
    own = f.get(literal(prefixes, "array<struct<prefix:string,holder:string>>"), f.col("world"))
    return f.get(f.filter(own, lambda one: f.col("key").startswith(one["prefix"])), f.lit(0))["holder"]


def _now(settings: Sequence[BucketSetting]) -> Column:
    return _by_world(settings, lambda setting: to_micros(setting.now), "bigint")


def _chosen(rows: DataFrame, settings: Sequence[BucketSetting]) -> DataFrame:
    """Choose what is due: permanent deletion, then transition, then the creation of a delete marker."""
    now = _now(settings)
    keeps = _by_world(settings, lambda setting: setting.versioning is not Versioning.DISABLED, "boolean")
    suspended = _by_world(settings, lambda setting: setting.versioning is Versioning.SUSPENDED, "boolean")
    kind, current = f.col("kind"), f.col("may_be_current")
    marks = (kind == VERSION) & current & keeps
    # With versioning suspended the new marker is the null version and replaces the old one.
    destroys = (kind == VERSION) & (~marks | (suspended & (f.col("version_id") == NULL)))
    due_move, certain = f.col("_due_move"), f.col("doubt").isNull()
    ends = certain & f.coalesce(f.col("_end_due") <= now, f.lit(False)) & (~marks | due_move.isNull())
    moves = certain & ~ends & due_move.isNotNull()
    lake = f.when(f.col("holder").isNotNull(), str(Hold.LAKE))
    other = f.coalesce("_hold_all", f.when(ends & destroys, f.col("_hold_lock")))
    hold = f.when(ends | moves, f.coalesce(lake, other))
    return _named(rows.withColumns({"_ends": ends, "_moves": moves, "_hold": hold}), settings)


def _named(rows: DataFrame, settings: Sequence[BucketSetting]) -> DataFrame:
    """Add the columns of a verdict: action, goal, rule_id, due and held_by."""
    ends, moves, kept = f.col("_ends"), f.col("_moves"), f.col("_hold").isNotNull()
    kind, current = f.col("kind"), f.col("may_be_current")
    end_action = (
        f.when(kind == UPLOAD, str(Action.ABORT_UPLOAD))
        .when(~current, str(Action.DELETE_VERSION))
        .when(kind == MARKER, str(Action.REMOVE_DELETE_MARKER))
        .otherwise(str(Action.EXPIRE))
    )
    coming, end_due = f.col("_next_move"), f.col("_end_due")
    move_first = coming.isNotNull() & (
        end_due.isNull()
        | (_micros(coming) < end_due)
        | ((_micros(coming) == end_due) & (_rule(coming) < f.col("_end_rule")))
    )
    move = f.when(moves, f.col("_due_move")).when(~ends & move_first, coming)
    due = f.when(move.isNotNull(), _micros(move)).otherwise(end_due)
    rule = f.when(move.isNotNull(), _rule(move)).otherwise(f.col("_end_rule"))
    ids = literal((numbered.rule.id for rules in numbered_rules(settings) for numbered in rules), "string")
    doubtful = f.col("doubt").isNotNull()
    return rows.withColumns(
        {
            "action": f.when(kept, str(Action.NONE))
            .when(ends, end_action)
            .when(moves, str(Action.TRANSITION))
            .otherwise(str(Action.NONE)),
            "goal": f.when(moves & ~kept, f.col("_goal")),
            "due": f.when(~doubtful, f.timestamp_micros(due)),
            "rule_id": f.when(~doubtful, f.get(ids, rule)),
            "held_by": f.when(doubtful & (f.col("terms") > 0), f.col("doubt")).otherwise(f.col("_hold")),
        }
    )


REPLACES = "replaces_null"
"""The column that is true if an expiration destroys a null version that no other action would delete."""


def with_replaced(verdicts: DataFrame, now: datetime) -> DataFrame:
    """Hold expirations that would destroy a locked null version; mark those that destroy an unlocked one."""
    if RESTORED_UNTIL not in verdicts.columns:
        verdicts = verdicts.withColumn(RESTORED_UNTIL, f.lit(None).cast("timestamp"))
    null = (f.col("kind") == VERSION) & (f.col("version_id") == NULL) & ~f.col("current")
    whole_key = Window.partitionBy("key")
    found = verdicts.withColumns(
        {
            "_stays": f.bool_or(null & (f.col("action") != str(Action.DELETE_VERSION))).over(whole_key),
            "_held": f.bool_or(null & f.col("legal_hold")).over(whole_key),
            "_until": f.max(f.when(null, f.col("retain_until"))).over(whole_key),
            "_back": f.max(f.when(null, f.col(RESTORED_UNTIL))).over(whole_key),
        }
    )
    expires = (f.col("action") == str(Action.EXPIRE)) & (f.col("version_id") != NULL)
    locked = f.unix_micros("_until") > to_micros(now)
    restored = f.unix_micros("_back") > to_micros(now)
    hold = (
        f.when(expires & f.col("_held"), str(Hold.LEGAL_HOLD))
        .when(expires & locked, str(Hold.RETENTION))
        .when(expires & restored, str(Hold.RESTORED))
    )
    kept = f.col("_hold").isNotNull()
    return (
        found.withColumn("_hold", hold)
        .withColumns(
            {
                REPLACES: f.coalesce(expires & ~kept & f.col("_stays"), f.lit(False)),
                "action": f.when(kept, str(Action.NONE)).otherwise(f.col("action")),
                "held_by": f.coalesce("_hold", "held_by"),
                # The row is held as long as the null version is.
                "retain_until": f.when(kept, f.col("_until")).otherwise(f.col("retain_until")),
                RESTORED_UNTIL: f.when(kept, f.col("_back")).otherwise(f.col(RESTORED_UNTIL)),
            }
        )
        .drop("_stays", "_held", "_until", "_back", "_hold")
    )


def replaced_warning(number: int) -> str:
    """Return the warning about null versions that a plan destroys besides its rows."""
    some = "1 null version" if number == 1 else f"{number} null versions"
    why = "versioning is suspended, and a delete marker replaces an older null version of its key"
    return f"{some} will be destroyed by the expiration of newer versions: {why}"
