"""Written lifecycle configurations are accepted, sent and parsed by botocore, and read back equal."""

from __future__ import annotations

import json

import botocore.session
from botocore.handlers import escape_xml_payload
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from botocore.validate import validate_parameters
from hypothesis import given
from tests.unit.s3.drawing import LOCATIONS, configurations

from ebbtide.targets.s3.rules.document import (
    read_configuration,
    read_configuration_text,
    write_json,
    write_xml,
)

_S3 = botocore.session.get_session().get_service_model("s3")
_PUT = _S3.operation_model("PutBucketLifecycleConfiguration")
_GET = _S3.operation_model("GetBucketLifecycleConfiguration")
_SIZE = "TransitionDefaultMinimumObjectSize"
_SIZE_HEADER = "x-amz-transition-default-minimum-object-size"


def put_request(configuration):
    """Make the parameters of boto3's PUT from the written JSON."""
    written = write_json(configuration)
    size = written.pop(_SIZE)
    return {"Bucket": "b", "LifecycleConfiguration": written, _SIZE: size}


@given(configurations())
def test_json_and_xml_read_back_as_they_were(configuration):
    """A valid configuration is written to JSON and XML and read back exactly, so the two never differ."""
    from_json = read_configuration(write_json(configuration), locations=LOCATIONS)
    through_text = read_configuration_text(json.dumps(write_json(configuration)), locations=LOCATIONS)
    from_xml = read_configuration_text(
        write_xml(configuration), "xml", locations=LOCATIONS, minimum_size=configuration.minimum_size
    )

    assert configuration == from_json
    assert configuration == through_text
    assert configuration == from_xml


@given(configurations())
def test_botocore_accepts_what_is_written(configuration):
    """Botocore's validator accepts the written JSON as a PUT, and the same parameters read back equal."""
    request = put_request(configuration)
    validate_parameters(request, _PUT.input_shape)

    assert configuration == read_configuration(request, locations=LOCATIONS)


@given(configurations())
def test_botocore_sends_what_is_written(configuration):
    """The XML that boto3 makes of the written JSON reads back as the same configuration."""
    sent = create_serializer("rest-xml").serialize_to_request(put_request(configuration), _PUT)
    escape_xml_payload(sent)
    read = read_configuration_text(
        sent["body"].decode(), "xml", locations=LOCATIONS, minimum_size=sent["headers"][_SIZE_HEADER]
    )

    assert configuration == read


@given(configurations())
def test_botocore_reads_what_is_written(configuration):
    """The written XML, parsed by botocore as S3's answer to a GET, is the same configuration."""
    answer = {
        "body": write_xml(configuration).encode(),
        "headers": {_SIZE_HEADER: str(configuration.minimum_size)},
        "status_code": 200,
    }
    parsed = create_parser("rest-xml").parse(answer, _GET.output_shape)

    assert configuration == read_configuration(parsed, locations=LOCATIONS)
