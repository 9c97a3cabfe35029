"""
Strategies for buckets: a few keys with versions, markers, uploads and every kind of doubt, and their rules.

Times lie on and around a few midnights and days are few, so that much is due near the moment of asking. What
a version or a rule may be stands in tables, and an example is drawn from them in few steps, for speed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product

from hypothesis import strategies as st

from ebbtide.targets.s3.model import Protected, Upload, Version, Versioning
from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    Expiration,
    Filter,
    MinimumSize,
    NoncurrentExpiration,
    NoncurrentTransition,
    Rule,
    Transition,
)
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST, SMALL

START = datetime(2024, 2, 26, tzinfo=UTC)
"""A few days before the end of a leap February."""
TICK = timedelta(microseconds=1)
LONGEST = 2**31 - 1
KEYS = ("a", "a/", "a/b", "ab", "b", "B", "ключ", "a\U0001f98a")

_MIDNIGHTS = [START + timedelta(days=number) for number in range(10)]
_OFFSETS = (timedelta(0), TICK, -TICK, timedelta(hours=10, minutes=30))
_MOMENTS = [midnight + offset for midnight, offset in product(_MIDNIGHTS, _OFFSETS)]
_TAGS = (None, {}, {"c": "red"}, {"c": "red", "s": ""}, {"c": "blue"}, {"C": "red"})
_SIZES = (*[8 * SMALL] * 8, None, 0, 1, 499, 500, 501, SMALL - 1, SMALL, SMALL + 1)
_CLASSES = (*["STANDARD"] * 6, "REDUCED_REDUNDANCY", *CHEAPEST_FIRST)
_UNTIL = [START + timedelta(days=number) + offset for number, offset in product((9, 12, 400), (TICK, -TICK))]
_LOCKS = [
    {},
    {},
    {},
    {},
    {"legal_hold": True},
    {"legal_hold": True},
    *({"retain_until": end} for end in _UNTIL),
]
_BUSY = [
    *[{}] * 12,
    *(
        {"replication_status": status}
        for status in ("PENDING", "processing", "COMPLETED", "FAILED", "REPLICA")
    ),
    {"restoring": True},
    *({"restored_until": end} for end in _UNTIL),
]

_CONTENTS = [
    {"is_delete_marker": False, "size": size, "tags": tags, "storage_class": storage_class}
    for size, tags, storage_class in product(_SIZES, _TAGS, _CLASSES)
]
_MARKERS = [{"is_delete_marker": True, "size": size} for size in (None, 0)]

_WANTED_TAGS = ((("c", "red"),), (("c", "red"), ("s", "")), (("s", ""),))
_BOUNDS = ((None, 500), (0, None), (500, None), (499, 501), (None, SMALL), (SMALL - 1, None), (SMALL, None))
"""The sizes between which an object must lie, both exclusive."""
_FILTERS = [
    Filter(prefix, tags, *bounds)
    for prefix, tags, bounds in product(("", "", "a", "a/", "b"), _WANTED_TAGS, ((None, None), *_BOUNDS))
]
_PREFIXES = [Filter(prefix) for prefix in ("", "", "", "a", "a", "a/", "ab", "b", "к", "a\U0001f98a")]
_SIZED = [Filter("", (), *bounds) for bounds in _BOUNDS]
_DAYS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 5, LONGEST)
_NEWER = (0, 0, 0, 0, 1, 1, 2, 3)
_ENDS = [Expiration(days=number) for number in _DAYS]
_CLEANING = Expiration(expired_marker=True)
_NONCURRENT_ENDS = [NoncurrentExpiration(days, newer) for days, newer in product(_DAYS, _NEWER)]
_MOVES = [Transition(target, days=days) for target, days in product(CHEAPEST_FIRST, (0, *_DAYS))]
_NONCURRENT_MOVES = [
    NoncurrentTransition(target, days, newer)
    for target, days, newer in product(CHEAPEST_FIRST, (0, *_DAYS), _NEWER)
]

_moments = st.sampled_from(_MOMENTS)
_counts = st.sampled_from((1, 1, 1, 2, 2, 3, 3, 4, 5))
_coins = st.booleans()
_rarely = st.sampled_from((False, False, False, True))
_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)
_contents = st.sampled_from(_CONTENTS) | st.sampled_from(_CONTENTS) | st.sampled_from(_MARKERS)
_locks = st.sampled_from(_LOCKS)
_busy = st.sampled_from(_BUSY)
_said = st.lists(st.sampled_from((None, True, False)), min_size=5, max_size=5)
_known = st.lists(st.sampled_from((True, True, True, False)), min_size=5, max_size=5)
_filters = st.sampled_from(_PREFIXES * 24 + _SIZED * 6 + _FILTERS)
_dates = st.sampled_from(_MIDNIGHTS)
_ends = st.sampled_from((*_ENDS, None, _CLEANING, _CLEANING))
_noncurrent_ends = st.sampled_from((*_NONCURRENT_ENDS, *[None] * 30))
_moves = st.lists(st.sampled_from(_MOVES), max_size=2, unique_by=lambda move: move.storage_class)
_noncurrent_moves = st.lists(
    st.sampled_from(_NONCURRENT_MOVES), max_size=2, unique_by=lambda move: move.storage_class
)
_abort_days = st.sampled_from((*_DAYS, *[None] * 8))
_enabled = st.sampled_from((True, True, True, False))
_lakes = st.sampled_from(
    [
        *[()] * 9,
        *((Protected(prefix, f"lake {prefix}"),) for prefix in ("", "a", "a/", "b")),
        (Protected("a/", "inner"), Protected("к", "other")),
    ]
)
_late = st.sampled_from([timedelta(days=number) for number in range(9, -1, -1)])


@dataclass(frozen=True)
class BucketWorld:
    """A bucket, its rules, and the moment of asking."""

    configuration: Configuration
    items: tuple[Version | Upload, ...]
    now: datetime
    versioning: Versioning
    protected: tuple[Protected, ...] = ()


@st.composite
def histories(draw: st.DrawFn, key: str, *, doubts: bool, ties: bool) -> list[Version]:
    """Draw the versions of one key, newest first; at most one is the null version, as in a real bucket."""
    count = draw(_counts)
    times = sorted(draw(st.lists(_moments, min_size=count, max_size=count, unique=not ties)), reverse=True)
    null = draw(st.integers(-1, count - 1))
    told = draw(_coins)
    versions = [
        Version(
            key,
            "null" if number == null else f"v{count - number}",
            written,
            number == 0 if told else None,
            **draw(_contents),
            **draw(_locks),
            **draw(_busy),
        )
        for number, written in enumerate(times)
    ]
    return (
        _doubtful(versions, draw(_known), draw(st.none() | _said)) if doubts and draw(_rarely) else versions
    )


def _doubtful(versions: list[Version], known: list[bool], said: list[bool | None] | None) -> list[Version]:
    """Take away what is known of some versions' times, and say anything of which is the latest."""
    return [
        replace(
            version,
            last_modified=version.last_modified if known[number] else None,
            is_latest=version.is_latest if said is None else said[number],
        )
        for number, version in enumerate(versions)
    ]


def uploads(*, doubts: bool) -> st.SearchStrategy[Upload]:
    """Draw an upload; in doubt it may have no time."""
    begun = st.sampled_from([None, *_MOMENTS]) if doubts else _moments
    return st.builds(Upload, st.sampled_from(KEYS), st.sampled_from(("u1", "u2")), begun)


@st.composite
def rules(draw: st.DrawFn, name: str) -> Rule:
    """Draw a rule with any of the actions; its own moments are all days or all a date, as S3 wants it."""
    expiration, moves = draw(_ends), tuple(draw(_moves))
    if draw(_rarely):
        date = draw(_dates)
        moves = tuple(Transition(move.storage_class, date=date) for move in moves)
        expiration = Expiration(date=date) if expiration and expiration.days else expiration
    return Rule(
        name,
        draw(_enabled),
        draw(_filters),
        expiration,
        draw(_noncurrent_ends),
        moves,
        tuple(draw(_noncurrent_moves)),
        draw(_abort_days),
    )


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Draw one to six rules, which overlap more often than not."""
    drawn = tuple(draw(rules(f"r{number}")) for number in range(draw(st.integers(1, 6))))
    return Configuration(drawn, draw(st.sampled_from(MinimumSize)))


@st.composite
def bucket_worlds(draw: st.DrawFn, *, doubts: bool = True, ties: bool = True) -> BucketWorld:
    """
    Draw a bucket with its rules and a moment at which something is likely to fall due.

    Without doubts every time and every latest version is known; without ties no two versions of a key are of
    the same time. All that falls due does so at a midnight or when a marker was written, and so it is asked.
    """
    items: list[Version | Upload] = [
        version for key in draw(_keys) for version in draw(histories(key, doubts=doubts, ties=ties))
    ]
    items += draw(st.lists(uploads(doubts=doubts), max_size=3))
    now = draw(_moments) + draw(_late)
    rules, versioning = draw(configurations()), draw(st.sampled_from(Versioning))
    return BucketWorld(rules, tuple(items), now, versioning, draw(_lakes))
