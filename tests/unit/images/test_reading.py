"""The policy document: many spellings, one meaning, and an error that says where and what to do."""

from __future__ import annotations

import json
import re

import pytest

from ebbtide.core.errors import BadInput
from ebbtide.targets.oci.policies.document import parse_policies, read_policies
from ebbtide.targets.oci.policies.policy import Period, Policy, Unit

SIX_MONTHS = Policy("Prod", Period(6, Unit.MONTHS), can_delete_prior=False, recycle=True)


def prod(**fields):
    """Read a document with one policy."""
    return read_policies({"policies": [{"name": "Prod", **fields}]}).find("Prod")


@pytest.mark.parametrize("nothing", [None, {}, {"policies": []}, {"policies": {}}, {"assign": None}])
def test_requirement_2_0_every_registry_has_the_seeds_policies(nothing):
    """Where a document says nothing the policies have the values of the seed's table."""
    found = read_policies(nothing).named.values()

    assert {
        ("Default", 5, True, True),
        ("Recycle Bin", 15, True, False),
        ("Quarantine Failed", 5, True, False),
        ("Untagged", 5, True, True),
        ("Released", 180, False, True),
    } == {(one.name, one.period.number, one.can_delete_prior, one.recycle) for one in found}
    assert {Unit.DAYS} == {one.period.unit for one in found}


def test_requirement_2_0_system_policies_are_changed_and_not_removed():
    """A document changes what it names of a system policy; the rest of it and the others stay."""
    found = read_policies({"policies": {"default": {"days": 9}, "quarantine-failed": {"recycle": True}}})

    assert Policy("Default", Period(9)) == found.find("Default")
    assert Policy("Quarantine Failed", Period(5)) == found.find("Quarantine Failed")
    assert Policy("Recycle Bin", Period(15), recycle=False) == found.find("recycle_bin")


@pytest.mark.parametrize(
    "fields",
    [
        {"months": 6},
        {"month": 6},
        {"period": 6, "unit": "months"},
        {"period": 6, "unit": "Month"},
        {"number": 6, "unit": "months"},
        {"value": 6, "unit": "months"},
        {"expires_after": "6 months"},
        {"Period": "6 Months"},
        {"period": {"months": 6}},
        {"period": {"number": 6, "unit": "months"}},
    ],
)
@pytest.mark.parametrize("flag", ["can_delete_prior", "canDeletePrior", "CanDeletePrior", "Can Delete Prior"])
def test_spellings_of_a_period(fields, flag):
    """However a period and a flag are spelled, they mean the same."""
    assert SIX_MONTHS == prod(**fields, **{flag: False})


@pytest.mark.parametrize(
    "fields",
    [{}, {"never": True}, {"period": "never"}, {"unit": "never"}, {"days": None}, {"period": None}],
)
def test_a_policy_may_never_expire(fields):
    """A policy that says never, or nothing of a period, does not expire."""
    assert Policy("Prod") == prod(**fields)


def test_lists_and_tables_of_policies_are_the_same():
    """Policies come as a list with names or as a table by names, in JSON, YAML or TOML."""
    listed = parse_policies(
        json.dumps({"policies": [{"name": "Prod", "months": 6, "can_delete_prior": False}]})
    )
    yaml = parse_policies("policies:\n  Prod: {months: 6, can_delete_prior: false}\n", "yaml")
    toml = parse_policies("[policies.Prod]\nmonths = 6\ncan_delete_prior = false\n", "toml")

    assert SIX_MONTHS == listed.find("prod")
    assert listed == yaml == toml


def test_the_seeds_not_applicable_is_what_is_usual():
    """The bin's own recycle may be written N/A, as in the seed's table."""
    found = read_policies({"policies": [{"name": "Recycle Bin", "recycle": "N/A"}]})

    assert not found.find("Recycle Bin").recycle


def test_the_first_rule_that_matches_assigns():
    """Of several rules the first that matches gives the policy; where none does it is Default."""
    found = read_policies(
        {
            "policies": {"Prod": {"years": 1}},
            "assign": [
                {"repository": "team/*", "tag": "v.*", "policy": "prod"},
                {"repository": "*", "tag": "v.*", "policy": "Released"},
            ],
        }
    )

    assert ["Prod", "Released", "Default"] == [
        found.for_tag(*names).name for names in (("team/app", "v1"), ("app", "v1"), ("team/app", "dev"))
    ]


def rule(**fields):
    """Write a document with one assign rule."""
    return {"assign": [{"repository": "*", "tag": ".*", "policy": "Default"} | fields]}


def newest(**fields):
    """Write a document with one rule of the newest."""
    return {"keep_newest": [{"repository": "*", "tag": ".*", "count": 1} | fields]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "not a table"),
        ({"polices": []}, "did you mean 'policies'"),
        ({"policies": 5}, "not a list"),
        ({"policies": [{"days": 5}]}, "policy 1 has no name"),
        ({"policies": [{"name": " ", "days": 5}]}, "policy 1: name is ' '"),
        ({"policies": [{"name": "a", "dayz": 5}]}, "did you mean 'days'"),
        ({"policies": [{"name": "a", "days": 0}]}, "days is 0"),
        ({"policies": [{"name": "a", "days": -1}]}, "days is -1"),
        ({"policies": [{"name": "a", "months": True}]}, "months is True"),
        ({"policies": [{"name": "a", "days": 1.5}]}, "whole number of days"),
        ({"policies": [{"name": "a", "days": "5"}]}, "days is '5'"),
        ({"policies": [{"name": "a", "days": 5, "months": 1}]}, "has days and months"),
        ({"policies": [{"name": "a", "days": 5, "never": True}]}, "has days and never"),
        ({"policies": [{"name": "a", "period": 5}]}, "without a unit"),
        ({"policies": [{"name": "a", "period": 5, "unit": "weeks"}]}, "'weeks' is not a unit"),
        ({"policies": [{"name": "a", "period": "soon"}]}, "period is 'soon'"),
        ({"policies": [{"name": "a", "unit": "days"}]}, "has no period"),
        ({"policies": [{"name": "a", "days": 5, "unit": "days"}]}, "days and a unit"),
        ({"policies": [{"name": "a", "can_delete_prior": "no"}]}, "can_delete_prior is 'no'"),
        ({"policies": [{"name": "a", "recycle": 1}]}, "recycle is 1"),
        ({"policies": [{"name": "a", "recycle": {}}]}, "recycle is {}"),
        ({"policies": [{"name": "a", "can_delete_prior": []}]}, "can_delete_prior is []"),
        ({"policies": [{"name": "a b"}, {"name": "A-B"}]}, "there twice"),
        ({"policies": [{"name": "a", "days": 1, "Days": 2}]}, "days is given twice"),
        ({"policies": {"a": {"name": "b"}}}, "is named 'b' inside"),
        (rule(policy="Relased"), "did you mean 'Released'"),
        (rule(tag="("), "assign rule 1: tag"),
        (rule(repository=None), "assign rule 1: repository is None"),
        (rule(tags="x"), "unknown field 'tags'"),
        ({"assign": [{"repository": "*", "policy": "Default"}]}, "has no tag"),
        (newest(count=0), "keep_newest rule 1: count is 0"),
        (newest(count=True), "count is True"),
        (newest(count="3"), "count is '3'"),
        ({"keep_newest": {"count": 3}}, "not a list"),
        ({"keep_newest": [{"repository": "*", "tag": ".*"}]}, "has no count"),
    ],
)
def test_a_document_that_cannot_be_followed_is_refused(document, words):
    """An error says what is wrong, where it stands and what to do."""
    with pytest.raises(BadInput, match=re.escape(words)) as refused:
        read_policies(document)

    assert refused.value.fix


@pytest.mark.parametrize(
    ("text", "fmt"),
    [("{", "json"), ('{"policies": {}, "policies": {}}', "json"), ("a: [", "yaml"), ("a =", "toml")],
)
def test_a_broken_document_is_refused(text, fmt):
    """What is no JSON, YAML or TOML, or says a thing twice, is bad input."""
    with pytest.raises(BadInput):
        parse_policies(text, fmt)
