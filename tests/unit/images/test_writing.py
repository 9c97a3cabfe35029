"""Writing policies: they read back as they were, and their hash is that of their meaning."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.documents import MOST_DAYS
from ebbtide.core.errors import PolicyError
from ebbtide.targets.oci.policies.document import (
    parse_policies,
    policies_hash,
    policies_text,
    read_policies,
    write_policies,
)
from ebbtide.targets.oci.policies.patterns import Glob, tag_pattern
from ebbtide.targets.oci.policies.policy import (
    GIVEN_POLICIES,
    RELEASED,
    SYSTEM_POLICIES,
    AssignRule,
    KeepNewest,
    Period,
    Policies,
    Policy,
    Unit,
    same_name,
)

_PERIODS = st.none() | st.builds(Period, st.integers(1, MOST_DAYS), st.sampled_from(Unit))
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=12)
_NAMES = _TEXT.map(str.strip).filter(lambda name: same_name(name).strip())
_GLOBS = _TEXT.map(Glob)
_TAGS = st.sampled_from([".*", "v[0-9]+", "(?i)rc|dev-.*", "a\\.b"]).map(lambda text: tag_pattern("t", text))


def _with_values(policy: Policy) -> st.SearchStrategy[Policy]:
    return st.builds(Policy, st.just(policy.name), _PERIODS, st.booleans(), st.booleans())


@st.composite
def documents(draw: st.DrawFn) -> Policies:
    """Draw policies as reading can make them: the system's, perhaps Released, and others."""
    given_ones = SYSTEM_POLICIES if draw(st.booleans()) else GIVEN_POLICIES
    drawn = [draw(_with_values(policy)) for policy in given_ones]
    taken = {same_name(policy.name) for policy in GIVEN_POLICIES}
    names = draw(st.lists(_NAMES, max_size=4, unique_by=same_name))
    drawn.extend(draw(_with_values(Policy(name))) for name in names if same_name(name) not in taken)
    drawn = draw(st.permutations(drawn))
    known = st.sampled_from([policy.name for policy in drawn])
    rules = draw(st.lists(st.builds(AssignRule, _GLOBS, _TAGS, known), max_size=3))
    keeps = draw(st.lists(st.builds(KeepNewest, _GLOBS, _TAGS, st.integers(1, MOST_DAYS)), max_size=3))
    return Policies({same_name(policy.name): policy for policy in drawn}, tuple(rules), tuple(keeps))


@given(documents())
def test_policies_read_back_as_they_were(policies):
    """Whatever can be read is written and read back exactly, as data and as JSON and YAML."""
    plain = write_policies(policies)

    assert policies == read_policies(plain)
    assert policies == parse_policies(policies_text(policies))
    assert policies == parse_policies(yaml.safe_dump(plain), "yaml")


@given(documents(), documents())
def test_equal_policies_have_equal_hashes_and_others_others(one, other):
    """The hash is that of the meaning: it tells the same from what differs, and the order does not count."""
    again = Policies(dict(reversed(one.named.items())), one.assign, one.keep_newest)

    assert policies_hash(one) == policies_hash(again)
    assert (one == other) == (policies_hash(one) == policies_hash(other))


def test_spelling_does_not_change_the_hash():
    """Two ways to write six months, and a policy that is given anyway, have one hash."""
    one = parse_policies('{"policies": [{"name": "Prod", "months": 6}]}')
    other = parse_policies('policies: {Prod: {Period: "6 months"}, default: {days: 5}}', "yaml")

    assert policies_hash(one) == policies_hash(other)


def test_requirement_2_0_what_is_written_has_every_value():
    """A written document does not depend on what is given to a registry, and says what was removed."""
    named = {same_name(policy.name): policy for policy in SYSTEM_POLICIES}
    written = write_policies(Policies(named))

    assert {"name": "Default", "days": 5, "can_delete_prior": True, "recycle": True} == written["policies"][0]
    assert ["Released"] == written["removed"]
    assert "removed" not in write_policies(Policies())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"removed": ["default"]}, "is a system policy"),
        ({"removed": ["Prod"]}, "is not given"),
        ({"removed": ["released"], "policies": {"Released": {}}}, "also among the policies"),
        ({"removed": "Released"}, "not a list"),
        ({"removed": [5]}, r"removed\[0\] is 5"),
        (
            {"removed": ["Released"], "assign": [{"repository": "*", "tag": "v", "policy": "Released"}]},
            "no policy",
        ),
    ],
)
def test_what_cannot_be_removed(document, words):
    """Only what is given and not needed can be removed, and no rule may name it."""
    with pytest.raises(PolicyError, match=words):
        read_policies(document)


def test_removed_policies_are_not_there():
    """A registry need not keep Released; the system's policies stay."""
    found = read_policies(json.loads('{"removed": ["released"]}'))

    assert found.find(RELEASED.name) is None
    assert {same_name(policy.name) for policy in SYSTEM_POLICIES} == {*found.named}
