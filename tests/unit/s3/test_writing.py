"""Writing configurations: they read back as they were, and their hash is that of their meaning."""

import json

import botocore.session
from botocore.handlers import escape_xml_payload
from botocore.serialize import create_serializer
from hypothesis import given
from tests.unit.s3.drawing import LOCATIONS, configurations
from tests.unit.s3.refused import move, rule, tag

from ebbtide.rules.s3.reading import read_configuration, read_configuration_text
from ebbtide.rules.s3.writing import configuration_hash, configuration_text, write_json, write_xml

_PUT = (
    botocore.session.get_session().get_service_model("s3").operation_model("PutBucketLifecycleConfiguration")
)
_SERIALIZER = create_serializer("rest-xml")


@given(configurations())
def test_json_and_xml_read_back_as_they_were(configuration):
    """Whatever S3 takes is written to JSON and XML and read back exactly, so the two never differ."""
    from_json = read_configuration(write_json(configuration), locations=LOCATIONS)
    through_text = read_configuration_text(json.dumps(write_json(configuration)), locations=LOCATIONS)
    from_xml = read_configuration_text(
        write_xml(configuration), "xml", locations=LOCATIONS, minimum_size=configuration.minimum_size
    )

    assert configuration == from_json
    assert configuration == through_text
    assert configuration == from_xml


@given(configurations())
def test_boto3_sends_what_is_written(configuration):
    """The XML that boto3 makes of the written JSON reads back as the same configuration."""
    written = write_json(configuration)
    size = written.pop("TransitionDefaultMinimumObjectSize")
    request = {"Bucket": "b", "LifecycleConfiguration": written, "TransitionDefaultMinimumObjectSize": size}
    sent = _SERIALIZER.serialize_to_request(request, _PUT)
    escape_xml_payload(sent)
    read = read_configuration_text(
        sent["body"].decode(),
        "xml",
        locations=LOCATIONS,
        minimum_size=sent["headers"]["x-amz-transition-default-minimum-object-size"],
    )

    assert configuration == read


def test_boto3s_form():
    """A rule is written in the shape in which boto3 takes it."""
    rules = [
        rule(
            ID="a",
            Filter={"And": {"Tags": [tag("b"), tag("a")]}},
            Expiration={"Date": "2030-01-01"},
            NoncurrentVersionTransition=move(NoncurrentDays=2),
        )
    ]

    assert {
        "Rules": [
            {
                "ID": "a",
                "Filter": {"And": {"Tags": [tag("a"), tag("b")]}},
                "Status": "Enabled",
                "Expiration": {"Date": "2030-01-01T00:00:00Z"},
                "NoncurrentVersionTransitions": [move(NoncurrentDays=2)],
            }
        ],
        "TransitionDefaultMinimumObjectSize": "all_storage_classes_128K",
    } == write_json(read_configuration(rules))


def test_xml_as_s3_writes_it():
    """XML is in S3's namespace, with the elements in S3's order."""
    rules = [rule(ID="a", Filter={"Prefix": "a\r<"}, Transitions=[move(Days=0)], Expiration=None)]

    assert (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">\n'
        "  <Rule>\n"
        "    <ID>a</ID>\n"
        "    <Filter>\n"
        "      <Prefix>a&#13;&lt;</Prefix>\n"
        "    </Filter>\n"
        "    <Status>Enabled</Status>\n"
        "    <Transition>\n"
        "      <Days>0</Days>\n"
        "      <StorageClass>GLACIER</StorageClass>\n"
        "    </Transition>\n"
        "  </Rule>\n"
        "</LifecycleConfiguration>\n"
    ) == write_xml(read_configuration(rules))


def test_the_hash_is_that_of_the_meaning():
    """The order of fields and tags and the way a filter is written do not change the hash."""
    one = [rule(ID="a", Filter={"And": {"Tags": [tag("a"), tag("b")]}})]
    same = [
        dict(reversed(rule(ID="a", Filter={"And": {"Prefix": "", "Tags": [tag("b"), tag("a")]}}).items()))
    ]

    assert configuration_hash(read_configuration(one)) == configuration_hash(read_configuration(same))


def test_other_rules_have_another_hash():
    """Whatever changes the meaning changes the hash: a value, the order of rules, the minimum size."""
    rules = [rule(ID="a"), rule(ID="b", Expiration={"Days": 2})]
    others = [
        read_configuration(rules),
        read_configuration(rules[::-1]),
        read_configuration(rules, minimum_size="varies_by_storage_class"),
        read_configuration([rules[0], rule(ID="b", Expiration={"Days": 3})]),
        read_configuration([rules[0], rule(ID="b", Status="Disabled", Expiration={"Days": 2})]),
        read_configuration([rules[0], rule(ID="b", Filter=None, Prefix="", Expiration={"Days": 2})]),
    ]

    assert len(others) == len({configuration_hash(other) for other in others})


def test_the_canonical_text_reads_back():
    """The canonical text is a document like any other."""
    configuration = read_configuration([rule(), rule(Filter=None, Prefix="x")])

    assert configuration == read_configuration_text(configuration_text(configuration))
