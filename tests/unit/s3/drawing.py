"""Valid configurations drawn at random, for the properties of reading and writing."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

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
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST

LOCATIONS = ("cold-store", "attic")

_CLASSES = (*CHEAPEST_FIRST, *LOCATIONS)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)

texts = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n\r<&"),
    max_size=12,
)
days = st.integers(1, 2**31 - 1) | st.integers(1, 5)
moments = st.integers(0, 40_000).map(lambda number: _FIRST + timedelta(days=number))


@st.composite
def filters(draw, *, tags=True, sizes=True):
    """Draw a filter."""
    named = draw(st.dictionaries(texts.filter(bool), texts, max_size=3)) if tags else {}
    larger = draw(st.none() | st.integers(0, 10)) if sizes else None
    smaller = draw(st.none() | st.integers((larger or 0) + 1, 30)) if sizes else None
    return Filter(draw(texts), tuple(sorted(named.items())), larger, smaller)


@st.composite
def _transitions(draw, kind):
    """Draw transitions to different classes at different times."""
    classes = draw(st.lists(st.sampled_from(_CLASSES), unique=True, max_size=3))
    size = len(classes)
    if kind == "date":
        times = draw(st.lists(moments, unique=True, min_size=size, max_size=size))
        return tuple(Transition(c, None, t) for c, t in zip(classes, times, strict=True))
    times = draw(st.lists(days | st.just(0), unique=True, min_size=size, max_size=size))
    if kind == "days":
        return tuple(Transition(c, t) for c, t in zip(classes, times, strict=True))
    newer = st.integers(0, 100)
    return tuple(NoncurrentTransition(c, t, draw(newer)) for c, t in zip(classes, times, strict=True))


@st.composite
def rules(draw, rule_id):
    """Draw a rule that S3 takes."""
    kind = draw(st.sampled_from(["days", "date"]))
    ends = days.map(Expiration) if kind == "days" else moments.map(lambda moment: Expiration(None, moment))
    expiration = draw(st.none() | ends | st.booleans().map(lambda flag: Expiration(expired_marker=flag)))
    noncurrent = draw(st.none() | st.builds(NoncurrentExpiration, days, st.integers(0, 100)))
    transitions = draw(_transitions(kind))
    noncurrent_transitions = draw(_transitions("noncurrent"))
    nothing = expiration is None and noncurrent is None and not transitions + noncurrent_transitions
    aborts = draw(days if nothing else st.none() | days)
    marker = expiration is not None and expiration.days is None and expiration.date is None
    legacy = draw(st.booleans())
    plain = aborts is not None or legacy
    return Rule(
        rule_id,
        draw(st.booleans()),
        draw(filters(tags=not (plain or marker), sizes=not plain)),
        expiration,
        noncurrent,
        transitions,
        noncurrent_transitions,
        aborts,
        legacy,
    )


@st.composite
def configurations(draw):
    """Draw a configuration that S3 takes."""
    ids = draw(st.lists(texts.filter(bool), unique=True, min_size=1, max_size=4))
    return Configuration(tuple(draw(rules(rule_id)) for rule_id in ids), draw(st.sampled_from(MinimumSize)))
