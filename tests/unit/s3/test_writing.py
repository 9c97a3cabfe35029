"""Writing configurations: boto3's form, S3's XML, and a hash of the meaning."""

import pytest
from tests.unit.s3.refused import move, rule, tag

from ebbtide.targets.s3.rules.document import (
    configuration_hash,
    configuration_text,
    read_configuration,
    read_configuration_text,
    write_json,
    write_xml,
)


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


@pytest.mark.parametrize("day", ["0001-01-01", "0999-12-31", "1970-01-01", "9999-12-31"])
def test_dates_of_all_years_are_written_in_full(day):
    """A year has four digits in XML, also the years that botocore writes with fewer."""
    configuration = read_configuration([rule(ID="a", Expiration={"Date": day})])

    assert f"<Date>{day}T00:00:00Z</Date>" in write_xml(configuration)
    assert configuration == read_configuration_text(write_xml(configuration), "xml")


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
