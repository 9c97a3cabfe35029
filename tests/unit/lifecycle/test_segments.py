"""Judging a range by its segments equals judging it key by key."""

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.targets.repository.policy import ReferrerKind, class_days
from ebbtide.targets.repository.referrers import Referrer
from ebbtide.targets.repository.segments import cut, lifetime_of, prefix_slice

KEYS = st.lists(st.text("ab/é𝄞", max_size=5), unique=True).map(sorted)
PREFIXES = st.lists(st.text("ab/é𝄞", max_size=3), max_size=4)
DAYS = st.one_of(st.none(), st.integers(1, 9))


@given(KEYS, PREFIXES)
def test_segments_cover_every_key_with_exactly_its_rules(keys, prefixes):
    """Every key lies in one segment, and the segment names just the prefixes that the key starts with."""
    actual = {}
    for segment in cut(keys, prefixes):
        for key in keys[segment.start : segment.stop]:
            assert key not in actual
            actual[key] = segment.matched
    expected = {key: tuple(i for i, p in enumerate(prefixes) if key.startswith(p)) for key in keys}

    assert expected == actual


@given(KEYS, st.text("ab/é𝄞", max_size=3))
def test_a_prefix_matches_one_slice(keys, prefix):
    """The keys that start with a prefix are one slice of the sorted keys."""
    start, stop = prefix_slice(keys, prefix)

    assert [key for key in keys if key.startswith(prefix)] == keys[start:stop]


@given(st.lists(st.tuples(DAYS, DAYS), min_size=1, max_size=4), st.sets(st.integers(0, 1)))
def test_the_longest_lived_reference_decides(classes, matched):
    """The verdict is the latest over everyone who reaches the segment, of the earliest over the rules."""
    referrers = [Referrer(ReferrerKind.BRANCH, str(n), days) for n, days in enumerate(classes)]
    verdict = lifetime_of(sorted(matched), referrers)
    lives = [class_days(referrer.days, matched) for referrer in referrers]

    assert (None if None in lives else max(lives)) == verdict.days
    assert any(days is not None for days in lives) == verdict.touched
    assert class_days(verdict.holder.days, matched) == verdict.days
