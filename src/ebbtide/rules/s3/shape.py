"""
The shape of a lifecycle configuration: which fields it has, of which kind each is, and how XML spells them.

JSON and XML both become plain data of this shape (that of boto3) before anything else looks at them, so
that one document cannot mean two things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from ebbtide.rules.documents import nearest
from ebbtide.rules.s3.refusals import label, malformed, shown

MOST_RULES = 1000
_INT64 = 2**63


class Kind(StrEnum):
    """What a field without fields of its own holds."""

    TEXT = "a text"
    WHOLE = "a whole number"
    FLAG = "true or false"
    DATE = "a date such as 2030-01-01T00:00:00Z"


@dataclass(frozen=True)
class Field:
    """One field: a value or a table, given once or as a list."""

    kind: Kind | Mapping[str, Field]
    element: str = ""
    """How XML calls one item of the list; only a list has it."""

    @property
    def many(self) -> bool:
        """Tell whether it is a list; XML then repeats the element."""
        return bool(self.element)


_TEXT, _WHOLE = Field(Kind.TEXT), Field(Kind.WHOLE)
_TAG = {"Key": _TEXT, "Value": _TEXT}
_SIZES = {"ObjectSizeGreaterThan": _WHOLE, "ObjectSizeLessThan": _WHOLE}
_AND = {"Prefix": _TEXT, "Tags": Field(_TAG, "Tag")} | _SIZES
_FILTER = {"Prefix": _TEXT, "Tag": Field(_TAG), "And": Field(_AND)} | _SIZES
_WHEN = {"Date": Field(Kind.DATE), "Days": _WHOLE}
_NONCURRENT = {"NoncurrentDays": _WHOLE, "NewerNoncurrentVersions": _WHOLE}

RULE: Mapping[str, Field] = {
    "ID": _TEXT,
    "Filter": Field(_FILTER),
    "Prefix": _TEXT,
    "Status": _TEXT,
    "Expiration": Field(_WHEN | {"ExpiredObjectDeleteMarker": Field(Kind.FLAG)}),
    "Transitions": Field(_WHEN | {"StorageClass": _TEXT}, "Transition"),
    "NoncurrentVersionExpiration": Field(_NONCURRENT),
    "NoncurrentVersionTransitions": Field(
        _NONCURRENT | {"StorageClass": _TEXT}, "NoncurrentVersionTransition"
    ),
    "AbortIncompleteMultipartUpload": Field({"DaysAfterInitiation": _WHOLE}),
}
CONFIGURATION: Mapping[str, Field] = {"Rules": Field(RULE, "Rule")}

# What XML 1.0 cannot carry at all, so that no such rule can ever be given to S3.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def conforming(rules: Any) -> list[dict[str, Any]]:
    """Check that these are rules with known fields of the right kinds."""
    if not isinstance(rules, list):
        raise malformed(f"Rules is {shown(rules)}", fix='write {"Rules": [{...}]}')
    if not rules:
        raise malformed("there is no rule", fix="write at least one, or delete the configuration")
    if len(rules) > MOST_RULES:
        raise malformed(f"there are {len(rules)} rules", why=f"{MOST_RULES} are allowed", fix="merge some")
    return [_rule(number, rule) for number, rule in enumerate(rules, start=1)]


def _rule(number: int, rule: Any) -> dict[str, Any]:
    name = label(number, rule.get("ID")) if isinstance(rule, dict) else f"rule {number}"
    return _table(f"{name}:", RULE, rule)


def _table(place: str, fields: Mapping[str, Field], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(f"{place.rstrip(':')} is {shown(value)}", fix="write a table of its fields")
    for name in value:
        if name not in fields:
            raise malformed(f"{place} unknown field {shown(name)}", fix=nearest(str(name), fields))
    separator = " " if place.endswith(":") else "."
    return {name: _field(f"{place}{separator}{name}", fields[name], given) for name, given in value.items()}


def _field(place: str, field: Field, value: Any) -> Any:
    if not field.many:
        return _item(place, field.kind, value)
    if not isinstance(value, list):
        raise malformed(f"{place} is {shown(value)}", fix="write a list")
    return [_item(f"{place}[{index}]", field.kind, item) for index, item in enumerate(value)]


def _item(place: str, kind: Kind | Mapping[str, Field], value: Any) -> Any:
    if not isinstance(kind, Kind):
        return _table(place, kind, value)
    if not _IS[kind](value):
        raise malformed(f"{place} is {shown(value)}", fix=f"write {kind}")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not _UNWRITABLE.search(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64


_IS: dict[Kind, Callable[[Any], bool]] = {
    Kind.TEXT: _is_text,
    Kind.WHOLE: _is_whole,
    Kind.FLAG: lambda value: isinstance(value, bool),
    Kind.DATE: lambda value: _is_text(value) or isinstance(value, date),
}
