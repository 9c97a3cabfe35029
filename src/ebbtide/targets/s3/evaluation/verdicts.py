"""Verdicts: what the terms of each row come to at the moment, and what holds it all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.instant import MICROSECONDS_A_DAY, NEVER, to_micros
from ebbtide.targets.s3.evaluation.classes import classes
from ebbtide.targets.s3.evaluation.lookup import (
    MARKER,
    UPLOAD,
    VERSION,
    literal,
    seen_signatures,
    with_classes,
    with_place,
    with_terms,
)
from ebbtide.targets.s3.evaluation.ordering import with_order
from ebbtide.targets.s3.evaluation.places import Setting, numbered_rules, places
from ebbtide.targets.s3.evaluation.terms import Terms, When
from ebbtide.targets.s3.model import Action, Hold, Versioning

_LAST_DAY = to_micros(NEVER) // MICROSECONDS_A_DAY
_BITS = 32
_PENDING = ["PENDING", "PROCESSING"]
_NULL = "null"
RESTORED_UNTIL = "restored_until"
"""The column that says until when a version is held because it was restored from the recycle bin."""


def evaluate(rows: DataFrame, settings: Sequence[Setting]) -> DataFrame:
    """
    Add to each row of an inventory its verdict: action, goal, rule_id, due and held_by.

    And what it was judged by: whether it is `current`, and how many noncurrent versions must be `newer`.
    """
    cut = places(settings)
    placed = with_place(rows, cut)
    known = classes(settings, cut, seen_signatures(placed, cut))
    alone = _with_holds(with_classes(placed, known), settings)
    found = with_terms(with_order(alone), known)
    judged = _as_they_are(_judged(_dated(found, _OfTerms(known.terms), settings), settings))
    current = f.col("may_be_current").alias("current")
    return judged.select(
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


def _needed(settings: Sequence[Setting]) -> Column:
    """Give how many newer noncurrent versions the rule asks for that has something done."""
    rules = [numbered.rule for rules in numbered_rules(settings) for numbered in rules]
    ends = literal((r.noncurrent_expiration.newer if r.noncurrent_expiration else 0 for r in rules), "int")
    # Of several transitions of a rule the most demanding counts: it can only make us more careful.
    moves = literal((max((m.newer for m in r.noncurrent_transitions), default=0) for r in rules), "int")
    needed = f.when(f.col("_moves"), f.get(moves, _rule(f.col("_due_move")))).otherwise(
        f.get(ends, f.col("_end_rule"))
    )
    return f.when(f.col("may_be_current"), 0).otherwise(f.coalesce(needed, f.lit(0)))


def _as_they_are(rows: DataFrame) -> DataFrame:
    """
    Keep what is asked of verdicts later from being asked of all that they are made of.

    Spark moves a filter down through every step below it, and each time puts the step's expression in place
    of its name; a filter on the action would hold all of them many times over. It does not move one past
    metrics.
    """
    return rows.observe("verdicts", f.count(f.lit(1)).alias("rows"))


@dataclass(frozen=True)
class _OfTerms:
    """What the terms of a row say, as columns."""

    terms: Sequence[Terms]

    @property
    def most_moves(self) -> int:
        """How many transitions the terms that have most have."""
        return max(len(terms.moves) for terms in self.terms)

    def get(self, what: Callable[[Terms], Any], kind: str) -> Column:
        """Give one of the things that a row's terms say."""
        return f.get(literal((what(terms) for terms in self.terms), kind), f.col("terms"))

    def moment(self, what: Callable[[Terms], When]) -> Column:
        """
        Give the day on which something is due and the rule that says so, as one number.

        Days come first in it, then rules, so that the least of several is the earliest, and of equals the
        one whose rule comes first.
        """
        day = f.col("_day") + self.get(lambda terms: what(terms).days, "int")
        rule = self.get(lambda terms: what(terms).days_rule, "bigint")
        after = f.when(day <= _LAST_DAY, day * 2**_BITS + rule)
        return f.least(after, self.get(lambda terms: _coded(what(terms)), "bigint"))

    def move(self, number: int) -> Column:
        """Give the moment of one of the transitions, which come in the order of preference."""
        return self.moment(lambda terms: terms.moves[number].when if number < len(terms.moves) else When())

    def target(self, number: int) -> Column:
        """Give where one of the transitions goes."""
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


def _dated(rows: DataFrame, of: _OfTerms, settings: Sequence[Setting]) -> DataFrame:
    """Add when each row ends, which transition is due, and which comes next."""
    since = f.unix_micros("since")
    # Rounded up to a midnight: then the quotient is whole, and small enough to be exact.
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
    # What ends at once does so at its own moment, which may come before or after what the other rules say.
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


def _by_world(settings: Sequence[Setting], what: Callable[[Setting], Any], kind: str) -> Column:
    return f.get(literal(map(what, settings), kind), f.col("world"))


def _with_holds(rows: DataFrame, settings: Sequence[Setting]) -> DataFrame:
    """Add what would hold a version from any action, and what from being destroyed; uploads have neither."""
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


def _protector(settings: Sequence[Setting]) -> Column:
    """Name the lake in which a key lies; null if it lies in none."""
    if not any(setting.protected for setting in settings):
        return f.lit(None).cast("string")
    places = [[asdict(one) for one in setting.protected] for setting in settings]
    own = f.get(literal(places, "array<struct<prefix:string,holder:string>>"), f.col("world"))
    return f.get(f.filter(own, lambda one: f.col("key").startswith(one["prefix"])), f.lit(0))["holder"]


def _now(settings: Sequence[Setting]) -> Column:
    return _by_world(settings, lambda setting: to_micros(setting.now), "bigint")


def _judged(rows: DataFrame, settings: Sequence[Setting]) -> DataFrame:
    """Choose among what is due: permanent deletion, then transition, then the creation of a delete marker."""
    now = _now(settings)
    keeps = _by_world(settings, lambda setting: setting.versioning is not Versioning.DISABLED, "boolean")
    suspended = _by_world(settings, lambda setting: setting.versioning is Versioning.SUSPENDED, "boolean")
    kind, current = f.col("kind"), f.col("may_be_current")
    marks = (kind == VERSION) & current & keeps
    # With versioning suspended the new marker is the null version, and takes the place of the old one.
    destroys = (kind == VERSION) & (~marks | (suspended & (f.col("version_id") == _NULL)))
    due_move, certain = f.col("_due_move"), f.col("doubt").isNull()
    ends = certain & f.coalesce(f.col("_end_due") <= now, f.lit(False)) & (~marks | due_move.isNull())
    moves = certain & ~ends & due_move.isNotNull()
    lake = f.when(f.col("holder").isNotNull(), str(Hold.LAKE))
    other = f.coalesce("_hold_all", f.when(ends & destroys, f.col("_hold_lock")))
    hold = f.when(ends | moves, f.coalesce(lake, other))
    return _named(rows.withColumns({"_ends": ends, "_moves": moves, "_hold": hold}), settings)


def _named(rows: DataFrame, settings: Sequence[Setting]) -> DataFrame:
    """Say it in the words of the model: action, goal, rule_id, due and held_by."""
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
