"""
botocore's model of S3 lifecycle configurations: checks the types of fields, reads XML and writes XML.

Import this module only where a document is read or XML is written: botocore takes time to load.

XML is read with defusedxml and the model's shapes, not with botocore's response parser. That parser trusts
S3's answers: it ignores unknown elements and reads every text but "true" as false. In a configuration written
by a user that could change what is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder, indent, tostring

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator, ValidationErrors
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError, fromstring

from ebbtide.core.documents import nearest
from ebbtide.targets.s3.rules.validation import malformed, shown

_MOST_ELEMENTS = 200_000
_INT64 = 2**63
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_BOOLEANS = {"true": True, "false": False}
# XML 1.0 cannot represent these characters, so a rule with one of them can never be sent to S3.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_EXPECTED = {
    "string": "a string",
    "integer": "a whole number",
    "long": "a whole number",
    "boolean": "true or false",
    "timestamp": "a date such as 2030-01-01T00:00:00Z",
}
_PYTHON_TYPES = {
    str(bool): "true or false",
    str(dict): "a mapping of its fields",
    str(list): "a list",
}


@cache
def _put_operation() -> OperationModel:
    # A botocore session would also read ~/.aws/config and ~/.aws/models. They must not change what is valid.
    loader = Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
    service = ServiceModel(loader.load_service_model("s3", "service-2"), "s3")
    return service.operation_model("PutBucketLifecycleConfiguration")


def put_parameters() -> Mapping[str, Shape]:
    """Return the parameters of S3's PutBucketLifecycleConfiguration and their shapes."""
    shape: Any = _put_operation().input_shape
    members: Mapping[str, Shape] = shape.members
    return members


def _configuration_shape() -> Any:
    return put_parameters()["LifecycleConfiguration"]


# Types of fields


class _RuleValidator(ParamValidator):
    """botocore's validator, stricter with scalars: it takes true for 1, and any text or number for a date."""

    def _validate_string(self, param: Any, shape: Shape, errors: ValidationErrors, name: str) -> None:
        if not isinstance(param, str):
            _report_type(param, shape, errors, name)
        elif _NOT_IN_XML.search(param):
            expected = "only characters that XML 1.0 allows"
            errors.report(name, "invalid type", param=param, valid_types=[expected])

    def _validate_integer(self, param: Any, shape: Shape, errors: ValidationErrors, name: str) -> None:
        is_integer = isinstance(param, int) and not isinstance(param, bool)
        if not is_integer or not -_INT64 <= param < _INT64:
            _report_type(param, shape, errors, name)

    _validate_long = _validate_integer

    def _validate_timestamp(self, param: Any, shape: Shape, errors: ValidationErrors, name: str) -> None:
        if not isinstance(param, date):
            self._validate_string(param, shape, errors, name)


def _report_type(param: Any, shape: Shape, errors: ValidationErrors, name: str) -> None:
    errors.report(name, "invalid type", param=param, valid_types=[_EXPECTED[shape.type_name]])


def check_types(name: str, rule: Any) -> None:
    """Check the fields of a rule in boto3's form: known, none missing, each of its type."""
    report = _RuleValidator().validate(rule, _configuration_shape().members["Rules"].member)
    if not report.has_errors():
        return
    # The public report is one text for all faults. Here the first is enough; an unknown field comes before a
    # missing one, as it may be the missing one misspelt.
    faults = report._errors  # noqa: SLF001
    reason, path, details = min(faults, key=lambda fault: bool(fault[0] == "missing required field"))
    place = f"{name}: {path.removeprefix('.') or 'it'}"
    if reason == "unknown field":
        unknown = details["unknown_param"]
        fix = nearest(str(unknown), details["valid_names"])
        raise malformed(f"{place} has the unknown field {shown(unknown)}", fix=fix)
    if reason == "missing required field":
        missing = details["required_name"]
        fix = "write 'Enabled' or 'Disabled'" if missing == "Status" else "add it"
        raise malformed(f"{place} has no {missing}", fix=fix)
    if reason != "invalid type":
        raise malformed(f"{place} is not valid: {reason}", fix="compare it with S3's API reference")
    expected = details["valid_types"][0]
    found = f"{place if path else name} is {shown(details['param'])}"
    raise malformed(found, fix=f"write {_PYTHON_TYPES.get(expected, expected)}")


# XML


def read_xml(text: str) -> dict[str, Any]:
    """Read XML into boto3's form. A value of the wrong type stays a string, which `check_types` refuses."""
    shape = _configuration_shape()
    root, name = _parse(text), shape.serialization["name"]
    if root.tag != name:
        raise malformed(f"the document is <{root.tag}>", fix=f"its root is <{name}>")
    return {"Rules": []} | _structure(name, shape, root)


def write_xml(rules: Sequence[Mapping[str, Any]]) -> str:
    """Write rules in boto3's form as XML, indented: the body of S3's PUT."""
    request = {"Bucket": "any", "LifecycleConfiguration": {"Rules": rules}}
    body = create_serializer("rest-xml").serialize_to_request(request, _put_operation())["body"]
    root = fromstring(_escape_returns(body.decode()))
    namespace = _namespace()
    for element in root.iter(f"{{{namespace}}}Date"):
        # botocore does not pad years before 1000 with zeros.
        element.text = element.text.zfill(len("2030-01-01T00:00:00Z"))
    indent(root)
    written = tostring(root, "unicode", default_namespace=namespace, short_empty_elements=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_escape_returns(written)}\n'


def _escape_returns(xml: str) -> str:
    """Escape carriage returns, which every XML parser would turn into line feeds."""
    return xml.replace("\r", "&#13;")


def _namespace() -> str:
    uri: str = _configuration_shape().serialization["xmlNamespace"]["uri"]
    return uri


class _StrictTree(TreeBuilder):
    """A tree of elements without namespaces; refuses attributes, other namespaces and too many elements."""

    def __init__(self) -> None:
        super().__init__()
        self._elements = 0
        self._namespaces = {"", _namespace()}

    def start(self, tag: Any, attrs: Mapping[Any, Any], /) -> Element:
        namespace, _, name = tag.removeprefix("{").rpartition("}")
        if namespace not in self._namespaces:
            raise malformed(f"<{name}> is in the namespace {shown(namespace)}", fix=f"use {_namespace()}")
        if attrs:
            raise malformed(f"<{name}> has the attribute {shown(min(attrs))}", fix="leave it out")
        self._namespaces = {namespace}  # of the root, and so of all elements
        self._elements += 1
        if self._elements > _MOST_ELEMENTS:
            raise malformed(f"<{name}> is one element too many", fix="write fewer rules")
        return super().start(name, {})


def _parse(text: str) -> Element:
    parser = DefusedXMLParser(target=_StrictTree(), forbid_dtd=True)
    try:
        parser.feed(text)
        root: Element = parser.close()
    except DefusedXmlException:
        raise malformed(
            "the document declares a document type or entities",
            why="they can make a small document endless or read other files, and no configuration needs them",
            fix="remove the declaration",
        ) from None
    except (ParseError, UnicodeEncodeError) as broken:
        raise malformed(f"this is not XML: {broken}", fix="correct the syntax") from None
    return root


def _structure(place: str, shape: Any, element: Element) -> dict[str, Any]:
    if any(text and text.strip() for text in (element.text, *(child.tail for child in element))):
        raise malformed(f"{place} contains text", fix="write elements only")
    names = {member.serialization.get("name", name): name for name, member in shape.members.items()}
    plain: dict[str, Any] = {}
    for child in element:
        inside = f"{place}/{child.tag}"
        if child.tag not in names:
            raise malformed(f"{inside}: unknown element", fix=nearest(child.tag, names))
        name = names[child.tag]
        member = shape.members[name]
        if member.type_name == "list":
            plain.setdefault(name, []).append(_value(inside, member.member, child))
        elif name in plain:
            raise malformed(f"{inside} is given twice", fix="remove one of the two")
        else:
            plain[name] = _value(inside, member, child)
    return plain


def _value(place: str, shape: Shape, element: Element) -> Any:
    if shape.type_name == "structure":
        return _structure(place, shape, element)
    if len(element):
        raise malformed(f"{place} contains elements", fix=f"write {_EXPECTED[shape.type_name]}")
    text = element.text or ""
    if shape.type_name in ("integer", "long") and _INTEGER.fullmatch(text):
        return int(text)
    return _BOOLEANS.get(text, text) if shape.type_name == "boolean" else text
