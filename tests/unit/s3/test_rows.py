"""The rows of the semantics table that are about what S3 takes and refuses, each by its number."""

from __future__ import annotations

import pytest

from ebbtide.core.errors import LifecycleError, NotFound
from ebbtide.targets.s3.rules.configuration import Expiration, Filter
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.stored_rules import BucketRules

DAYS = {"Expiration": {"Days": 1}}
ONE_TAG = {"Key": "k", "Value": "v"}


def read(**rule):
    """Read a configuration of one enabled rule, and give the rule."""
    return read_configuration([{"ID": "r", "Status": "Enabled", **rule}]).rules[0]


def code(**rule):
    """Give the code with which a rule is refused."""
    with pytest.raises(LifecycleError) as refused:
        read(**rule)
    return refused.value.code


def test_row_01_a_rule_says_what_it_is_about():
    """An empty filter is about everything; a rule without filter and prefix is refused."""
    assert Filter() == read(Filter={}, **DAYS).filter == read(Filter={"Prefix": ""}, **DAYS).filter
    assert "MalformedXML" == code(**DAYS)


def test_row_02_a_prefix_at_the_rule_itself():
    """The old form is taken by itself, and refused beside a filter."""
    assert "logs/" == read(Prefix="logs/", **DAYS).filter.prefix
    assert "MalformedXML" == code(Prefix="logs/", Filter={}, **DAYS)


def test_row_03_one_predicate_outside_of_and():
    """Two predicates side by side are refused: it could not be told whether both or either is meant."""
    assert "MalformedXML" == code(Filter={"Prefix": "a", "Tag": ONE_TAG}, **DAYS)
    assert "MalformedXML" == code(Filter={"Prefix": "a", "ObjectSizeLessThan": 5}, **DAYS)


def test_row_04_and_joins_two_or_more():
    """And with a single predicate, or with one tag key twice, is refused."""
    both = read(Filter={"And": {"Prefix": "a", "Tags": [ONE_TAG]}}, **DAYS).filter

    assert Filter("a", (("k", "v"),)) == both
    assert "MalformedXML" == code(Filter={"And": {"Prefix": "a"}}, **DAYS)
    assert "MalformedXML" == code(Filter={"And": {"Tags": [ONE_TAG]}}, **DAYS)
    assert "InvalidRequest" == code(Filter={"And": {"Tags": [ONE_TAG, ONE_TAG]}}, **DAYS)


@pytest.mark.parametrize("date", ["2030-01-01T01:00:00Z", "2030-01-01T00:00:00.000001Z", "soon"])
def test_row_09_a_date_is_a_midnight(date):
    """A date that is not midnight UTC is refused."""
    assert "InvalidArgument" == code(Filter={}, Expiration={"Date": date})


def test_row_10_days_may_be_none_only_for_transitions():
    """Expiration needs a day at least; a transition may come at once."""
    moves = [{"Days": 0, "StorageClass": "GLACIER"}]

    assert "InvalidArgument" == code(Filter={}, Expiration={"Days": 0})
    assert 0 == read(Filter={}, Transitions=moves).transitions[0].days


def test_row_13_lone_markers_go_by_themselves():
    """ExpiredObjectDeleteMarker is refused beside Days or Date, and with tags."""
    marker = {"ExpiredObjectDeleteMarker": True}

    assert Expiration(expired_marker=True) == read(Filter={}, Expiration=marker).expiration
    assert "MalformedXML" == code(Filter={}, Expiration=marker | {"Days": 1})
    assert "InvalidRequest" == code(Filter={"Tag": ONE_TAG}, Expiration=marker)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"NewerNoncurrentVersions": 1}, "MalformedXML"),
        ({"NoncurrentDays": 0}, "InvalidArgument"),
        ({"NoncurrentDays": 1, "NewerNoncurrentVersions": 0}, "InvalidArgument"),
        ({"NoncurrentDays": 1, "NewerNoncurrentVersions": 101}, "InvalidArgument"),
    ],
)
def test_row_16_noncurrent_expiration_needs_days(given, expected):
    """Days are required and at least one; of newer versions one to a hundred can be kept."""
    assert expected == code(Filter={}, NoncurrentVersionExpiration=given)


def test_row_20_uploads_have_no_tags_and_no_size():
    """A rule that aborts uploads may ask for neither, and for a day at least."""
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}

    assert "InvalidRequest" == code(Filter={"Tag": ONE_TAG}, **abort)
    assert "InvalidRequest" == code(Filter={"ObjectSizeLessThan": 5}, **abort)
    assert "InvalidArgument" == code(Filter={}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 0})


def test_row_34_get_put_and_delete(tmp_path):
    """PUT replaces the whole, GET of nothing is a 404, DELETE succeeds always, and IDs are made up."""
    stored = BucketRules(f"sqlite:///{tmp_path}/rules.db")
    first = read_configuration([{"Status": "Enabled", "Filter": {}, **DAYS}])
    second = read_configuration([{"ID": "other", "Status": "Disabled", "Filter": {}, **DAYS}])
    stored.put("s3://b", first)
    stored.put("s3://b", second)
    found = stored.get("s3://b")
    stored.delete("s3://b")
    stored.delete("s3://b")
    with pytest.raises(NotFound, match="NoSuchLifecycleConfiguration"):
        stored.get("s3://b")

    assert second == found
    assert first.rules[0].id
    assert [] == stored.with_enabled_rules()
