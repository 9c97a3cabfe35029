"""S3 lifecycle configurations: what is read from JSON and XML, what is refused, and with which code."""

import json
import pickle
from datetime import UTC, date, datetime

import pytest
from tests.unit.s3.as_xml import as_xml
from tests.unit.s3.refused import ONLY_JSON, REFUSED, move, rule, tag, where

from ebbtide.core.errors import LifecycleError
from ebbtide.targets.s3.rules.configuration import (
    Expiration,
    Filter,
    MinimumSize,
    NoncurrentExpiration,
    NoncurrentTransition,
    Rule,
    Transition,
)
from ebbtide.targets.s3.rules.document import LONGEST_TEXT, read_configuration, read_configuration_text

EVERYTHING = {
    "ID": "all of it",
    "Status": "Disabled",
    "Filter": {
        "And": {
            "Prefix": "logs/",
            "Tags": [tag("z", "1"), tag("a", "")],
            "ObjectSizeGreaterThan": 10,
            "ObjectSizeLessThan": 1000,
        }
    },
    "Expiration": {"Days": 365},
    "Transitions": [move(Days=30), {"Days": 90, "StorageClass": "DEEP_ARCHIVE"}],
    "NoncurrentVersionExpiration": {"NoncurrentDays": 7, "NewerNoncurrentVersions": 3},
    "NoncurrentVersionTransitions": [move(NoncurrentDays=0, NewerNoncurrentVersions=100)],
}


def refusal(document, **options):
    """Give the error with which a document is refused."""
    with pytest.raises(LifecycleError) as caught:
        read_configuration(document, **options)
    return caught.value


def only(rules):
    """Read rules and give the only one."""
    return read_configuration({"Rules": rules}).rules[0]


@pytest.mark.parametrize(("rules", "code"), [pytest.param(r, c, id=name) for name, r, c in REFUSED])
def test_what_s3_refuses_is_refused_with_its_code(rules, code):
    """Each fault has S3's code, names the rule where there is one, and says what to do."""
    error = refusal({"Rules": rules})

    assert code == error.code
    assert f"({code})" in error.what
    assert error.fix
    assert error.message
    assert not rules or len(rules) > 1000 or "rule " in error.what


@pytest.mark.parametrize(("rules", "code"), [pytest.param(r, c, id=name) for name, r, c in REFUSED])
def test_xml_is_refused_as_json_is(rules, code):
    """The same fault in XML has the same code."""
    with pytest.raises(LifecycleError) as caught:
        read_configuration_text(as_xml(rules), "xml")

    assert code == caught.value.code


@pytest.mark.parametrize("rules", [pytest.param(rules, id=name) for name, rules in ONLY_JSON.items()])
def test_json_of_the_wrong_kind_is_malformed(rules):
    """A value of the wrong kind is malformed, and a boolean is no number."""
    assert "MalformedXML" == refusal(rules).code


@pytest.mark.parametrize(
    "document",
    [
        None,
        "Rules",
        3,
        {},
        {"Rules": None},
        {"Rules": {}},
        {"rules": [rule()]},
        {"Rules": [rule()], "Rule": []},
        {"LifecycleConfiguration": [rule()]},
        {"LifecycleConfiguration": {"Rules": [rule()]}, "Rules": [rule()]},
        {"LifecycleConfiguration": {"Rules": [rule()], "ResponseMetadata": {}}},
    ],
)
def test_a_document_that_is_no_configuration_is_malformed(document):
    """What is neither rules nor a known wrapping of rules is malformed."""
    assert "MalformedXML" == refusal(document).code


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([rule(), rule(Expiration={"Days": 0})], "rule 2: Expiration.Days is 0"),
        ([rule(ID="old", Expiration={"Days": 0})], "rule 'old': Expiration.Days is 0"),
        ([rule(Expiration={"Dais": 1})], "rule 1: Expiration has the unknown field 'Dais'"),
        ([rule(Expiration={"Days": [1]})], "rule 1: Expiration.Days is a list"),
        (where({"And": {"Tags": [{"Key": 1}]}}), "rule 1: Filter.And.Tags[0].Key is 1"),
        ([rule(), rule(Status=None)], "rule 2: it has no Status"),
        ([rule(Status=None, Staus="Enabled")], "rule 1: it has the unknown field 'Staus'"),
        (["Expiration"], "rule 1 is 'Expiration'"),
        ([rule(ID="x" * 300)], "... (300 characters)"),
    ],
)
def test_a_refusal_names_the_rule_and_the_field(rules, words):
    """The message says where it stopped: the rule by ID or number, and the field."""
    error = refusal(rules)

    assert words in error.what
    assert len(error.what) < 200


@pytest.mark.parametrize(
    ("rules", "fix"),
    [
        ([rule(Expiraton={"Days": 1})], "did you mean 'Expiration'?"),
        ([rule(Transitions=[{"Days": 1, "StorageClass": "GLACIR"}])], "did you mean 'GLACIER'?"),
    ],
)
def test_a_misspelt_name_is_told_the_nearest(rules, fix):
    """A name that is nearly right is told the right one."""
    assert fix == refusal(rules).fix


def test_faults_of_form_come_first():
    """A malformed rule is told before a wrong value in front of it, as S3 checks its schema first."""
    assert "MalformedXML" == refusal([rule(Expiration={"Days": 0}), rule(Status="on")]).code


def test_a_refusal_crosses_processes():
    """The error keeps its code and message when it is pickled."""
    error = refusal([rule(Expiration={"Days": 0})])
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own bytes

    assert (error.code, error.message, str(error)) == (again.code, again.message, str(again))


def test_every_field_is_read():
    """A rule with everything in it is read whole; tags are sorted by key."""
    assert Rule(
        "all of it",
        enabled=False,
        filter=Filter("logs/", (("a", ""), ("z", "1")), 10, 1000),
        expiration=Expiration(365),
        noncurrent_expiration=NoncurrentExpiration(7, 3),
        transitions=(Transition("GLACIER", 30), Transition("DEEP_ARCHIVE", 90)),
        noncurrent_transitions=(NoncurrentTransition("GLACIER", 0, 100),),
    ) == only([EVERYTHING])


@pytest.mark.parametrize("namespace", ["", "http://s3.amazonaws.com/doc/2006-03-01/"])
def test_xml_reads_as_json_does(namespace):
    """XML, with S3's namespace or none, is the same configuration."""
    rules = [EVERYTHING, rule(), rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 2})]

    assert read_configuration(rules) == read_configuration_text(as_xml(rules, namespace=namespace), "xml")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"Filter": {}}, Filter()),
        ({"Filter": {"Prefix": ""}}, Filter()),
        ({"Filter": {"Prefix": "/a"}}, Filter("/a")),
        ({"Filter": {"Tag": tag("k", "")}}, Filter(tags=(("k", ""),))),
        ({"Filter": {"ObjectSizeGreaterThan": 0}}, Filter(larger_than=0)),
        ({"Filter": {"ObjectSizeLessThan": 1}}, Filter(smaller_than=1)),
        ({"Filter": {"And": {"Prefix": "", "Tags": [tag()]}}}, Filter(tags=(("k", "v"),))),
        ({"Filter": {"And": {"Tags": [tag("b"), tag("a")]}}}, Filter(tags=(("a", "v"), ("b", "v")))),
        ({"Filter": {"Tag": tag("k" * 128, "ü" * 256)}}, Filter(tags=(("k" * 128, "ü" * 256),))),
        ({"Filter": {"Prefix": "ü" * 512}}, Filter("ü" * 512)),
    ],
)
def test_filters(changes, expected):
    """A filter is read as what an object must meet; an empty one and an empty prefix are the same."""
    assert expected == only([rule(**changes)]).filter


@pytest.mark.parametrize("prefix", ["", "logs/"])
def test_the_legacy_prefix(prefix):
    """A prefix at the rule itself is taken and remembered as such."""
    read = only([rule(Filter=None, Prefix=prefix)])

    assert (Filter(prefix), True) == (read.filter, read.legacy_prefix)


@pytest.mark.parametrize(
    "given",
    [
        "2030-01-01",
        "2030-01-01T00:00:00Z",
        "2030-01-01T00:00:00.000Z",
        "2030-01-01T00:00:00.0000000Z",
        "2030-01-01T00:00:00+00:00",
        "2030-01-01T02:00:00+02:00",
        "2029-12-31T19:00:00-0500",
        "2030-01-01T00:00:00",
        "2030-01-01T00:00Z",
        datetime(2030, 1, 1, tzinfo=UTC),
        datetime(2030, 1, 1),  # noqa: DTZ001 - no zone means UTC
        date(2030, 1, 1),
    ],
)
def test_dates_at_midnight(given):
    """A date is ISO 8601 or a datetime, midnight UTC in whatever zone it is written; no zone means UTC."""
    assert datetime(2030, 1, 1, tzinfo=UTC) == only([rule(Expiration={"Date": given})]).expiration.date


@pytest.mark.parametrize(
    "changes",
    [
        {"Expiration": {"ExpiredObjectDeleteMarker": False}},
        {"Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"Expiration": {"Days": 2**31 - 1}},
        {"Expiration": None, "Transitions": [move(Days=0)]},
        {"NoncurrentVersionTransitions": [move(NoncurrentDays=0)]},
        {"ID": "x" * 255},
        {"Transitions": []},
        {"Filter": {"ObjectSizeGreaterThan": 1}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"Expiration": {"Days": 1}, "Transitions": [move(Days=5)]},
        {"Transitions": [{"Days": 1, "StorageClass": "STANDARD_IA"}]},
    ],
)
def test_what_is_accepted_at_the_border(changes):
    """The last values inside the limits are taken, and what only AWS refuses too."""
    assert read_configuration([rule(**changes)]).rules


def test_a_single_transition():
    """The transition of S3's first API, one table instead of a list, is taken in JSON."""
    read = only([rule(Transition=move(Days=3), NoncurrentVersionTransition=move(NoncurrentDays=4))])

    assert ((Transition("GLACIER", 3),), (NoncurrentTransition("GLACIER", 4),)) == (
        read.transitions,
        read.noncurrent_transitions,
    )


def test_locations_are_classes():
    """A transition may go to a location that is known, and to no other."""
    rules = [rule(Transitions=[{"Days": 1, "StorageClass": "attic"}])]

    assert "attic" == read_configuration(rules, locations={"attic"}).rules[0].transitions[0].storage_class
    assert "MalformedXML" == refusal(rules, locations={"cellar"}).code


@pytest.mark.parametrize(
    "document",
    [
        [rule()],
        {"Rules": [rule()]},
        {"LifecycleConfiguration": {"Rules": [rule()]}},
        {"Bucket": "b", "LifecycleConfiguration": {"Rules": [rule()]}},
        {"Rules": [rule()], "ResponseMetadata": {"HTTPStatusCode": 200}},
        {"Rules": [rule()], "TransitionDefaultMinimumObjectSize": "all_storage_classes_128K"},
        {"Rules": [rule()], "TransitionDefaultMinimumObjectSize": None},
    ],
)
def test_the_wrappings_of_rules(document):
    """A list, a table, the parameters of a PUT and the answer of a GET all say the same."""
    assert read_configuration([rule()]) == read_configuration(document)


@pytest.mark.parametrize(
    ("document", "beside"),
    [
        ({"Rules": [rule()]}, "varies_by_storage_class"),
        ({"Rules": [rule()], "TransitionDefaultMinimumObjectSize": "varies_by_storage_class"}, None),
        (
            {
                "LifecycleConfiguration": {"Rules": [rule()]},
                "TransitionDefaultMinimumObjectSize": "varies_by_storage_class",
            },
            "varies_by_storage_class",
        ),
    ],
)
def test_the_minimum_size(document, beside):
    """The default minimum size stands in the document or is given beside it."""
    assert MinimumSize.VARIES == read_configuration(document, minimum_size=beside).minimum_size


@pytest.mark.parametrize(
    ("stated", "beside"),
    [
        ("128K", None),
        (None, "ALL_STORAGE_CLASSES_128K"),
        (128, None),
        ([], None),
        ("", None),
        ("varies_by_storage_class", "all_storage_classes_128K"),
    ],
)
def test_a_wrong_minimum_size(stated, beside):
    """Another word, or two that contradict each other, is an invalid request."""
    document = {"Rules": [rule()], "TransitionDefaultMinimumObjectSize": stated}

    assert "InvalidRequest" == refusal(document, minimum_size=beside).code


def test_generated_ids():
    """Rules without an ID get one each: unique, short, and the same every time and in either format."""
    rules = [rule(), rule(ID=""), rule(ID="mine"), rule(Expiration={"Days": 2})]
    ids = [read.id for read in read_configuration(rules).rules]

    assert 4 == len(set(ids))
    assert "mine" == ids[2]
    assert all(0 < len(rule_id) <= 255 for rule_id in ids)
    assert ids == [read.id for read in read_configuration(rules).rules]
    assert ids == [read.id for read in read_configuration_text(as_xml(rules), "xml").rules]


def test_a_generated_id_gives_way():
    """A generated ID is never one that another rule was given."""
    taken = read_configuration([rule()]).rules[0].id
    ids = [read.id for read in read_configuration([rule(), rule(ID=taken)]).rules]

    assert taken == ids[1]
    assert taken != ids[0]


def test_generated_ids_follow_the_content():
    """Another rule in the same place gets another ID."""
    assert only([rule()]).id != only([rule(Expiration={"Days": 2})]).id


YAML = "Rules:\n- {Status: Enabled, Filter: {Prefix: a}, Expiration: {Date: 2030-01-01}}"
TOML = '[[Rules]]\nStatus = "Enabled"\nFilter = {Prefix = "a"}\nExpiration = {Date = 2030-01-01}'


@pytest.mark.parametrize(("text", "fmt"), [(YAML, "yaml"), (TOML, "toml")])
def test_formats_mean_the_same(text, fmt):
    """YAML and TOML say what JSON says, with their own dates too."""
    rules = [rule(Filter={"Prefix": "a"}, Expiration={"Date": "2030-01-01"})]

    assert read_configuration_text(json.dumps(rules)) == read_configuration_text(text, fmt)


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("", "json"),
        ("{", "json"),
        ('{"Rules": [], "Rules": []}', "json"),
        ("[" * 100_000, "json"),
        ('{"Rules": [{"Expiration": {"Days": ' + "9" * 5000 + "}}]}", "json"),
        ("a: [", "yaml"),
        ("x = ", "toml"),
        ("{}", "ini"),
        (" " * (LONGEST_TEXT + 1), "json"),
    ],
)
def test_unreadable_text_is_malformed(text, fmt):
    """Broken syntax, a field that is given twice, an unknown format and endless text are malformed."""
    with pytest.raises(LifecycleError) as caught:
        read_configuration_text(text, fmt)

    assert "MalformedXML" == caught.value.code


def test_a_yaml_of_many_aliases_is_refused_quickly():
    """A document that unfolds to billions of items is refused without unfolding it."""
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    text = f"a0: &a0 [x]\n{levels}\nRules: [*a29]"
    with pytest.raises(LifecycleError) as caught:
        read_configuration_text(text, "yaml")

    assert "MalformedXML" == caught.value.code


def test_a_byte_order_mark_is_no_character():
    """A mark that editors put before a text does not matter."""
    text = json.dumps([rule()])

    assert read_configuration_text(text) == read_configuration_text("\ufeff" + text)
