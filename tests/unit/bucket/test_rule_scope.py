"""What of a bucket has to be looked at, so that its rules can be judged."""

from __future__ import annotations

import pytest

from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    Expiration,
    Filter,
    Match,
    NoncurrentExpiration,
    Rule,
    covering_prefixes,
    matches,
    needs_tags,
    tag_matches,
    upload_prefixes,
)


def rules(*prefixes: str, **more) -> Configuration:
    """Make a configuration with a rule for each prefix."""
    settings = {"expiration": Expiration(days=1), **more}
    return Configuration(
        tuple(Rule(f"r{number}", True, Filter(prefix), **settings) for number, prefix in enumerate(prefixes))
    )


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        ((), ()),
        (("",), ("",)),
        (("b/", "a/"), ("a/", "b/")),
        (("a/", "a/b", "a", "c"), ("a", "c")),
        (("a/b", "a-b", "a/"), ("a-b", "a/")),
        (("x", "", "y"), ("",)),
        (("a", "a"), ("a",)),
    ],
)
def test_the_fewest_prefixes_cover_all_rules(prefixes, expected):
    """A prefix that begins with another one is part of it."""
    assert expected == covering_prefixes(rules(*prefixes))


def test_disabled_rules_ask_for_nothing():
    """A disabled rule is as good as none."""
    off = Configuration((Rule("off", False, Filter("a/", (("k", "v"),)), Expiration(days=1), abort_days=1),))

    assert ((), (), False, ()) == (
        covering_prefixes(off),
        upload_prefixes(off),
        needs_tags(off),
        tag_matches(off),
    )


def test_rules_about_uploads_do_not_ask_for_versions():
    """Uploads are listed by themselves, and versions only for rules that are about them."""
    aborting = rules("u/", expiration=None, abort_days=3)
    both = rules("u/", abort_days=3, expiration=None, noncurrent_expiration=NoncurrentExpiration(1))

    assert ((), ("u/",)) == (covering_prefixes(aborting), upload_prefixes(aborting))
    assert (("u/",), ("u/",)) == (covering_prefixes(both), upload_prefixes(both))


def test_tags_are_asked_for_where_a_rule_with_tags_can_match():
    """Prefix and size of such rules say which versions; other rules need no tags."""
    tagged = Filter("a/", (("k", "v"),), larger_than=10, smaller_than=20)
    both = Configuration(
        (Rule("t", True, tagged, Expiration(days=1)), Rule("p", True, Filter("b/"), Expiration(days=1)))
    )

    assert (True, False) == (needs_tags(both), needs_tags(rules("a/")))
    assert (Match("a/", 10, 20),) == tag_matches(both)
    assert (Match("a/", 10, 20), Match("b/")) == matches(both)
