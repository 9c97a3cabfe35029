"""Retention rules: reading them, refusing bad ones, and their one canonical text."""

import pytest

from ebbtide.core.errors import PolicyError
from ebbtide.targets.repository.retention_rules import (
    RetentionRules,
    parse_retention,
    retention_hash,
    retention_rules,
    retention_text,
)

JSON = '{"default_days": 30, "branch_days": {"main": 90, "dev": 3}}'
YAML = "branch_days: {dev: 3, main: 90}\ndefault_days: 30\ntags_protect: true"
TOML = "default_days = 30\n[branch_days]\nmain = 90\ndev = 3"


@pytest.mark.parametrize(
    ("branch", "default", "expected"),
    [("main", 30, 90), ("dev", 30, 30), ("main", None, 90), ("dev", None, None)],
)
def test_a_branch_takes_its_own_days_or_the_default(branch, default, expected):
    """A named branch takes its days, any other the default, and without one it keeps its commits."""
    rules = retention_rules({"default_days": default, "branch_days": {"main": 90}})

    assert expected == rules.days_for(branch)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "not a table"),
        (None, "not a table"),
        ({"default_day": 3}, "did you mean 'default_days'"),
        ({}, "neither default_days nor branch_days"),
        ({"branch_days": {}}, "neither default_days nor branch_days"),
        ({"tags_protect": False}, "neither default_days nor branch_days"),
        ({"branch_days": 3}, "branch_days is not a table"),
        ({"branch_days": ["main"]}, "branch_days is not a table"),
        ({"default_days": 0}, "default_days is 0"),
        ({"default_days": -1}, "default_days is -1"),
        ({"default_days": 1.5}, "default_days is 1.5"),
        ({"default_days": True}, "default_days is True"),
        ({"default_days": "3"}, "default_days is '3'"),
        ({"default_days": 2**31}, "too many"),
        ({"branch_days": {"main": 0}}, r"branch_days\['main'\] is 0"),
        ({"branch_days": {"main": None}}, r"branch_days\['main'\] is None"),
        ({"branch_days": {"main": 10**12}}, r"branch_days\['main'\] is 1000000000000, which is too many"),
        ({"default_days": 3, "tags_protect": "yes"}, "tags_protect is 'yes'"),
        ({"default_days": 3, "tags_protect": 1}, "tags_protect is 1"),
        ({"default_days": 3, "tags_protect": None}, "tags_protect is None"),
    ],
)
def test_bad_rules_are_refused_with_their_field(data, words):
    """Bad retention is an error that says what is wrong, and what to write instead."""
    with pytest.raises(PolicyError, match=words) as caught:
        retention_rules(data)

    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ('{"default_days": 1, "default_days": 2}', "json"),
        ("default_days: 1\ndefault_days: 2", "yaml"),
        ("default_days = 1\ndefault_days = 2", "toml"),
        ("{", "json"),
        ("a: [", "yaml"),
        ("x = ", "toml"),
        ("{}", "ini"),
    ],
)
def test_unreadable_documents_are_refused(text, fmt):
    """A field that is given twice, broken syntax and unknown formats are policy errors."""
    with pytest.raises(PolicyError):
        parse_retention(text, fmt)


@pytest.mark.parametrize(("text", "fmt"), [(YAML, "yaml"), (TOML, "toml")])
def test_formats_mean_the_same(text, fmt):
    """The same rules in JSON, YAML and TOML are equal and have one hash."""
    expected, actual = parse_retention(JSON), parse_retention(text, fmt)

    assert expected == actual
    assert retention_hash(expected) == retention_hash(actual)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"default_days": 5}, '{"default_days": 5, "tags_protect": true}'),
        ({"default_days": 5, "branch_days": None}, '{"default_days": 5, "tags_protect": true}'),
        (
            {"tags_protect": False, "branch_days": {"b": 2, "a": 1}, "default_days": None},
            '{"branch_days": {"a": 1, "b": 2}, "tags_protect": false}',
        ),
    ],
)
def test_the_canonical_text(data, expected):
    """Rules are written in one way, which reads back as the same rules."""
    rules = retention_rules(data)

    assert expected == retention_text(rules)
    assert rules == parse_retention(retention_text(rules))


@pytest.mark.parametrize(
    "other",
    [RetentionRules(6), RetentionRules(5, {"main": 5}), RetentionRules(5, tags_protect=False)],
)
def test_other_rules_have_another_hash(other):
    """Whatever changes the meaning changes the hash."""
    assert retention_hash(RetentionRules(5)) != retention_hash(other)
