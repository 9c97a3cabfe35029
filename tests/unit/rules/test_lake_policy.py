"""The lake policy of seed 000: reading it, refusing bad ones, and what it means."""

import json
from datetime import UTC, datetime

import pytest

from ebbtide.core.errors import PolicyError
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.repository.policy import (
    ReferrerKind,
    lake_policy,
    parse_lake_policy,
    policy_hash,
    policy_text,
    reference_lapse,
)

SEED = """{
   "rule1" : {
   "prefix": "foo/bar",
   "days": 10,
   "enabled": true,
   "branch_days": {
   "b1": 5,
   "b2": 8
    }
   },
   "rule2" : {
   "prefix": "foo/zoo",
   "enabled": true,
   "branch_days": {
      "b1": 5
   }
   }
}"""
SEED_TOML = """
[rule1]
prefix = "foo/bar"
days = 10
enabled = true
branch_days = { b1 = 5, b2 = 8 }
[rule2]
prefix = "foo/zoo"
branch_days = { b1 = 5 }
"""
SEED_YAML = """
rule2: {prefix: foo/zoo, branch_days: {b1: 5}}
rule1: {prefix: foo/bar, days: 10, branch_days: {b2: 8, b1: 5}}
"""


def test_the_seed_policy_gives_the_seed_dates():
    """On 20/01/1998 the seed's policy gives the seed's dates, with b2 corrected to 12/01/1998."""
    rows = parse_lake_policy(SEED).dates(parse_instant("1998-01-20"))
    actual = [(r.rule_id, r.prefix, r.branch, r.date_to_be_deleted.isoformat()) for r in rows]
    expected = [
        ("rule1", "foo/bar", "", "1998-01-10"),
        ("rule1", "foo/bar", "b1", "1998-01-15"),
        ("rule1", "foo/bar", "b2", "1998-01-12"),
        ("rule2", "foo/zoo", "b1", "1998-01-15"),
    ]

    assert expected == actual


@pytest.mark.parametrize(("text", "fmt"), [(SEED_TOML, "toml"), (SEED_YAML, "yaml")])
def test_formats_mean_the_same(text, fmt):
    """The same rules in TOML, YAML and JSON are the same policy with the same hash."""
    actual = policy_hash(parse_lake_policy(text, fmt))

    assert policy_hash(parse_lake_policy(SEED)) == actual


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"prefix": "a", "days": 0}, "days is 0"),
        ({"prefix": "a", "days": -3}, "days is -3"),
        ({"prefix": "a", "days": 1.5}, "days is 1.5"),
        ({"prefix": "a", "days": True}, "days is True"),
        ({"prefix": "a", "days": "3"}, "days is '3'"),
        ({"prefix": "a", "days": 10**12}, "too many"),
        ({"prefix": "a", "branch_days": {"b": 0}}, r"branch_days\['b'\] is 0"),
        ({"prefix": "a", "branch_days": {"": 3}}, "empty branch"),
        ({"prefix": "a", "branch_days": 3}, "branch_days is"),
        ({"prefix": "a"}, "neither days nor branch_days"),
        ({"prefix": "a", "branch_days": {}}, "neither days nor branch_days"),
        ({"days": 3}, "has no prefix"),
        ({"prefix": None, "days": 3}, "prefix is"),
        ({"prefix": "a", "days": 3, "enabled": "yes"}, "enabled is 'yes'"),
        ({"prefix": "a", "dayz": 3}, "did you mean 'days'"),
        ([], "not a table"),
    ],
)
def test_bad_rules_are_refused_with_their_name_and_field(rule, words):
    """A bad rule is an error that names the rule and what is wrong with it."""
    with pytest.raises(PolicyError, match=words) as caught:
        lake_policy({"r1": rule})

    assert "'r1'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ('{"r": {"prefix": "a", "days": 1}, "r": {"prefix": "b", "days": 1}}', "json"),
        ("r: {prefix: a, days: 1}\nr: {prefix: b, days: 1}", "yaml"),
        ("[r]\nprefix = 'a'\ndays = 1\n[r]\nprefix = 'b'\ndays = 1", "toml"),
        ("{", "json"),
        ("[]", "json"),
        ("a: [", "yaml"),
        ("x = ", "toml"),
        ("{}", "ini"),
    ],
)
def test_unreadable_policies_and_duplicate_ids_are_refused(text, fmt):
    """A rule id that is given twice, broken syntax and unknown formats are policy errors."""
    with pytest.raises(PolicyError):
        parse_lake_policy(text, fmt)


def test_an_explicit_empty_prefix_matches_everything():
    """An empty prefix is allowed if it is written down, and matches every key."""
    rule = lake_policy({"all": {"prefix": "", "days": 1}}).rules[0]

    assert rule.matches("anything/at/all")


CREATED = parse_instant("1998-01-02T10:00:00Z")


@pytest.mark.parametrize(
    ("referrer", "name", "key", "expected"),
    [
        (ReferrerKind.BRANCH, "main", "foo/bar/a", datetime(1998, 1, 13, tzinfo=UTC)),
        (ReferrerKind.BRANCH, "b1", "foo/bar/a", datetime(1998, 1, 8, tzinfo=UTC)),
        (ReferrerKind.STAGING, "b1", "foo/bar/a", datetime(1998, 1, 8, tzinfo=UTC)),
        (ReferrerKind.BRANCH, "b1", "foo/zoo", datetime(1998, 1, 8, tzinfo=UTC)),
        (ReferrerKind.BRANCH, "main", "foo/zoo", NEVER),
        (ReferrerKind.DANGLING, "c1", "foo/bar/a", datetime(1998, 1, 13, tzinfo=UTC)),
        (ReferrerKind.DANGLING, "b1", "foo/zoo", NEVER),
        (ReferrerKind.TAG, "v1", "foo/bar/a", NEVER),
        (ReferrerKind.BRANCH, "main", "other", NEVER),
    ],
)
def test_what_a_reference_lives(referrer, name, key, expected):
    """Branch days beat days, tags never lapse, dangling commits take the default, others live for ever."""
    actual = reference_lapse(parse_lake_policy(SEED), referrer, name, key, CREATED)

    assert expected == actual


@pytest.mark.parametrize(
    ("created", "now", "due"),
    [
        ("1998-01-10T00:00:00Z", "1998-01-20T00:00:00Z", True),
        ("1998-01-10T00:00:00Z", "1998-01-19T23:59:59Z", False),
        ("1998-01-10T00:00:00.000001Z", "1998-01-20T23:59:59Z", False),
        ("1998-01-10T00:00:00.000001Z", "1998-01-21T00:00:00Z", True),
        ("1998-01-09T23:59:59Z", "1998-01-20T00:00:00Z", True),
    ],
)
def test_boundaries_are_midnights_utc(created, now, due):
    """An object is due when created <= date_to_be_deleted, both as midnights UTC."""
    policy = lake_policy({"r": {"prefix": "", "days": 10}})
    lapse = reference_lapse(policy, ReferrerKind.BRANCH, "main", "k", parse_instant(created))
    date = policy.dates(parse_instant(now))[0].date_to_be_deleted
    by_date = parse_instant(created) <= parse_instant(date.isoformat())

    assert due == (lapse <= parse_instant(now))
    assert due == by_date


def test_two_rules_on_one_key_take_the_shorter():
    """Where two rules match, the one that ends the reference earlier counts."""
    policy = lake_policy({"a": {"prefix": "x", "days": 10}, "b": {"prefix": "x/y", "days": 3}})
    actual = reference_lapse(policy, ReferrerKind.BRANCH, "main", "x/y/z", parse_instant("1998-01-01"))

    assert datetime(1998, 1, 4, tzinfo=UTC) == actual


def test_a_tag_lapses_only_if_the_policy_says_so():
    """With tag_days the references of tags lapse too."""
    policy = lake_policy({"a": {"prefix": "x", "days": 10, "tag_days": 20}})
    actual = reference_lapse(policy, ReferrerKind.TAG, "v1", "x", parse_instant("1998-01-01"))

    assert datetime(1998, 1, 21, tzinfo=UTC) == actual


def test_a_disabled_rule_says_nothing():
    """A rule that is switched off matches nothing and has no row in the policy table."""
    policy = parse_lake_policy(json.dumps({"a": {"prefix": "", "days": 1, "enabled": False}}))

    assert [] == policy.dates(CREATED)
    assert NEVER == reference_lapse(policy, ReferrerKind.BRANCH, "main", "k", CREATED)


def test_of_several_rules_the_longest_time_in_the_bin_counts():
    """A run sets aside for as long as any enabled rule says; without any it says nothing."""
    rules = {
        "a": {"prefix": "a", "days": 1, "recycle": {"days": 7}},
        "b": {"prefix": "b", "days": 1, "recycle": {"days": 14}},
        "c": {"prefix": "c", "days": 1, "recycle": {"days": 99}, "enabled": False},
    }
    plain = {name: {key: body[key] for key in ("prefix", "days")} for name, body in rules.items()}
    policy = lake_policy(rules)

    assert (14, None) == (policy.recycle_days, lake_policy(plain).recycle_days)
    assert policy == parse_lake_policy(policy_text(policy))
    assert policy_hash(policy) != policy_hash(lake_policy(plain))


@pytest.mark.parametrize("value", [14, {}, {"days": 0}, {"days": "x"}, {"days": 3, "more": 1}, None])
def test_a_time_in_the_bin_that_cannot_be_is_refused(value):
    """`recycle` is whole days, one or more, and nothing else."""
    with pytest.raises(PolicyError, match="recycle"):
        lake_policy({"a": {"prefix": "a", "days": 1, "recycle": value}})
