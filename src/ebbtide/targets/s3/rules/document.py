"""
Documents with S3 lifecycle configurations: JSON, XML, YAML and TOML to typed rules, and back to JSON and XML.

Every format first becomes plain data in boto3's form, so that a document means the same in each of them.
Faults of form in any rule are reported before faults of value, as S3 validates its schema first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebbtide.core.documents import format_of, nearest, parse_document
from ebbtide.core.errors import LifecycleError, PolicyError
from ebbtide.core.instant import format_instant
from ebbtide.input_files import STANDARD_INPUT, read_text
from ebbtide.targets.s3.rules.configuration import (
    MINIMUM_SIZE,
    Configuration,
    Expiration,
    Filter,
    MinimumSize,
    NoncurrentExpiration,
    NoncurrentTransition,
    Rule,
    Transition,
)
from ebbtide.targets.s3.rules.validation import (
    check_form,
    check_ids,
    check_rule_list,
    check_values,
    checked_date,
    checked_newer,
    invalid_request,
    malformed,
    rule_label,
    shown,
)

LONGEST_TEXT = 16 * 1024 * 1024
"""A thousand rules with the longest prefix and ten of the longest tags each are shorter than this."""

_PUT_PARAMETERS = (
    "LifecycleConfiguration",
    MINIMUM_SIZE,
    "Bucket",
    "ChecksumAlgorithm",
    "ExpectedBucketOwner",
)
_SINGLE = {"Transition": "Transitions", "NoncurrentVersionTransition": "NoncurrentVersionTransitions"}


# Reading


def read_configuration_text(
    text: str, fmt: str = "json", *, locations: Collection[str] = (), minimum_size: str | None = None
) -> Configuration:
    """Read a document in the named format: json, xml, yaml or toml."""
    if len(text) > LONGEST_TEXT:
        raise malformed(f"the document has {len(text)} characters", fix="write fewer rules")
    plain = _parse(text.removeprefix("\ufeff"), fmt)
    return read_configuration(plain, locations=locations, minimum_size=minimum_size)


def read_configuration(
    document: Any, *, locations: Collection[str] = (), minimum_size: str | None = None
) -> Configuration:
    """
    Validate plain data in boto3's form and return its typed rules.

    `locations` are allowed where S3 expects a storage class. `minimum_size` is the value that boto3 and S3
    take beside the configuration.
    """
    from ebbtide.targets.s3.rules.service_model import check_types  # noqa: PLC0415 (loads botocore)

    rules, stated = _unwrap(document)
    check_rule_list(rules)
    names = [_label(number, rule) for number, rule in enumerate(rules, start=1)]
    for name, rule in zip(names, rules, strict=True):
        check_types(name, rule)
        _check_converted(name, "", rule)
    for name, rule in zip(names, rules, strict=True):
        check_form(name, rule, locations)
    size = _minimum_size(stated, minimum_size)
    typed = [_typed_rule(name, rule) for name, rule in zip(names, rules, strict=True)]
    check_ids(names, typed)
    for name, typed_rule in zip(names, typed, strict=True):
        check_values(name, typed_rule)
    return Configuration(_with_ids(typed), size)


def read_checked(document: Any) -> Configuration:
    """Read a configuration that was valid when it was stored; its locations may have been renamed since."""
    actions = ("Transitions", "NoncurrentVersionTransitions")
    parts = [part for rule in document["Rules"] for name in actions for part in rule.get(name, ())]
    return read_configuration(document, locations={part["StorageClass"] for part in parts})


def _parse(text: str, fmt: str) -> Any:
    if fmt == "xml":
        from ebbtide.targets.s3.rules.service_model import read_xml  # noqa: PLC0415 (loads botocore)

        return read_xml(text)
    try:
        return parse_document(text, fmt, name="the configuration")
    except LifecycleError:
        raise
    except PolicyError as broken:
        raise malformed(broken.what, why=broken.why, fix=broken.fix) from None


def _unwrap(document: Any) -> tuple[Any, Any]:
    """
    Return the rules and the minimum size of a document; the size is None if the document has none.

    A document is a list of rules, a mapping with `Rules`, the answer to a GET, or the parameters of a PUT.
    """
    if isinstance(document, list):
        return _rules(document), None
    if not isinstance(document, dict):
        found = f"the configuration is {shown(document)}"
        raise malformed(found, fix='write {"Rules": [{"Status": "Enabled", "Filter": {}, ...}]}')
    if "LifecycleConfiguration" not in document:
        return _unwrap_rules(document, ("Rules", MINIMUM_SIZE, "ResponseMetadata"))
    _check_known(document, (*_PUT_PARAMETERS, "ResponseMetadata"))
    wrapped = document["LifecycleConfiguration"]
    if not isinstance(wrapped, dict):
        raise malformed(f"LifecycleConfiguration is {shown(wrapped)}", fix='write {"Rules": [...]} into it')
    rules, size = _unwrap_rules(wrapped, ("Rules", MINIMUM_SIZE))
    return rules, document.get(MINIMUM_SIZE) if size is None else size


def _unwrap_rules(document: Mapping[str, Any], known: tuple[str, ...]) -> tuple[Any, Any]:
    _check_known(document, known)
    if "Rules" not in document:
        raise malformed("the configuration has no Rules", fix='write {"Rules": [...]}')
    return _rules(document["Rules"]), document.get(MINIMUM_SIZE)


def _check_known(document: Iterable[str], known: tuple[str, ...]) -> None:
    for name in document:
        if name not in known:
            raise malformed(f"unknown field {shown(name)}", fix=nearest(str(name), known))


def _rules(rules: Any) -> Any:
    """Turn the single transition of S3's first API into a list; anything invalid is left for validation."""
    if not isinstance(rules, list):
        return rules
    return [_with_lists(_label(number, rule), rule) for number, rule in enumerate(rules, start=1)]


def _with_lists(name: str, rule: Any) -> Any:
    if not isinstance(rule, dict):
        return rule
    plain = dict(rule)
    for single, many in _SINGLE.items():
        if single in plain and many in plain:
            raise malformed(f"{name}: it has {single} and {many}", fix=f"put all into {many}")
        if single in plain:
            plain[many] = [plain.pop(single)]
    return plain


def _label(number: int, rule: Any) -> str:
    return rule_label(number, rule.get("ID") if isinstance(rule, dict) else None)


def _minimum_size(stated: Any, given: str | None) -> MinimumSize:
    sizes = [size for size in (stated, given) if size is not None]
    for size in sizes:
        if size not in list(MinimumSize):
            found = f"{MINIMUM_SIZE} is {shown(size)}"
            sentence = f"Invalid {MINIMUM_SIZE} found"
            raise invalid_request(found, sentence, fix=nearest(str(size), list(MinimumSize)))
    if len(set(sizes)) > 1:
        found = f"{MINIMUM_SIZE} is {shown(stated)} in the document and {shown(given)} beside it"
        raise invalid_request(found, f"Conflicting {MINIMUM_SIZE} found", fix="leave one of them out")
    return MinimumSize(sizes[0]) if sizes else MinimumSize.ALL_128K


# From boto3's form to typed rules

_WHEN = {"Days", "Date"}
_NONCURRENT = {"NoncurrentDays", "NewerNoncurrentVersions"}
_CONVERTED = {
    "": {"ID", "Status", "Filter", "Prefix", "Expiration", "Transitions", "NoncurrentVersionExpiration"}
    | {"NoncurrentVersionTransitions", "AbortIncompleteMultipartUpload"},
    "Filter": {"Prefix", "Tag", "And", "ObjectSizeGreaterThan", "ObjectSizeLessThan"},
    "Filter.Tag": {"Key", "Value"},
    "Filter.And": {"Prefix", "Tags", "ObjectSizeGreaterThan", "ObjectSizeLessThan"},
    "Filter.And.Tags": {"Key", "Value"},
    "Expiration": _WHEN | {"ExpiredObjectDeleteMarker"},
    "Transitions": _WHEN | {"StorageClass"},
    "NoncurrentVersionExpiration": _NONCURRENT,
    "NoncurrentVersionTransitions": _NONCURRENT | {"StorageClass"},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation"},
}
"""The fields that `_typed_rule` converts. A later botocore may know more."""


def _check_converted(name: str, path: str, plain: Mapping[str, Any]) -> None:
    """Refuse a field that would be lost in conversion: a rule without it could delete more than it should."""
    for field, value in plain.items():
        inside = f"{path}.{field}".removeprefix(".")
        if field not in _CONVERTED[path]:
            raise malformed(
                f"{name}: {inside} is not supported",
                why="S3 knows this field and this version of Ebbtide does not",
                fix="remove it, or upgrade Ebbtide",
            )
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                _check_converted(name, inside, part)


def _typed_rule(name: str, plain: Mapping[str, Any]) -> Rule:
    """Convert a rule of valid form; its ID is empty if it has none."""
    expiration = plain.get("Expiration")
    noncurrent = plain.get("NoncurrentVersionExpiration")
    return Rule(
        id=plain.get("ID", ""),
        enabled=plain["Status"] == "Enabled",
        filter=_typed_filter(plain),
        expiration=None if expiration is None else _typed_expiration(f"{name}: Expiration", expiration),
        noncurrent_expiration=None
        if noncurrent is None
        else NoncurrentExpiration(
            noncurrent["NoncurrentDays"], checked_newer(f"{name}: NoncurrentVersionExpiration", noncurrent)
        ),
        transitions=tuple(
            Transition(part["StorageClass"], part.get("Days"), checked_date(f"{name}: Transition", part))
            for part in plain.get("Transitions", ())
        ),
        noncurrent_transitions=tuple(
            NoncurrentTransition(
                part["StorageClass"],
                part["NoncurrentDays"],
                checked_newer(f"{name}: NoncurrentVersionTransition", part),
            )
            for part in plain.get("NoncurrentVersionTransitions", ())
        ),
        abort_days=plain.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation"),
        legacy_prefix="Prefix" in plain,
    )


def _typed_filter(plain: Mapping[str, Any]) -> Filter:
    if "Prefix" in plain:
        return Filter(plain["Prefix"])
    given = plain["Filter"]
    parts = given.get("And", given)
    tags = parts.get("Tags", [parts["Tag"]] if "Tag" in parts else [])
    return Filter(
        parts.get("Prefix", ""),
        tuple(sorted((tag["Key"], tag["Value"]) for tag in tags)),
        parts.get("ObjectSizeGreaterThan"),
        parts.get("ObjectSizeLessThan"),
    )


def _typed_expiration(place: str, given: Mapping[str, Any]) -> Expiration:
    marker = given.get("ExpiredObjectDeleteMarker", False)
    return Expiration(given.get("Days"), checked_date(place, given), marker)


def _with_ids(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """
    Give every rule without an ID one that is made of its position and a hash of its content.

    The same document gets the same IDs each time, as JSON and as XML.
    """
    taken = {rule.id for rule in rules}
    named = []
    for number, rule in enumerate(rules, start=1):
        rule_id = rule.id or _free_id(f"rule-{number}-{_digest(rule)}", taken)
        taken.add(rule_id)
        named.append(replace(rule, id=rule_id))
    return tuple(named)


def _digest(rule: Rule) -> str:
    return hashlib.sha256(json.dumps(_plain_rule(rule), sort_keys=True).encode()).hexdigest()[:12]


def _free_id(wanted: str, taken: Collection[str]) -> str:
    name, suffix = wanted, 1
    while name in taken:
        suffix += 1
        name = f"{wanted}-{suffix}"
    return name


# Writing


def write_json(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration as boto3 returns the answer to a GET, with dates as strings."""
    return {
        "Rules": [_plain_rule(rule) for rule in configuration.rules],
        MINIMUM_SIZE: str(configuration.minimum_size),
    }


def write_xml(configuration: Configuration) -> str:
    """Write the rules as the body of S3's PUT. The minimum size is not in it: S3 takes it as a header."""
    from ebbtide.targets.s3.rules import service_model  # noqa: PLC0415 (loads botocore)

    return service_model.write_xml([_plain_rule(rule) for rule in configuration.rules])


def configuration_text(configuration: Configuration) -> str:
    """Write a configuration as canonical JSON."""
    return json.dumps(write_json(configuration), sort_keys=True)


def configuration_hash(configuration: Configuration) -> str:
    """Return a hash of the meaning: the format and the order of fields and tags do not matter."""
    return hashlib.sha256(configuration_text(configuration).encode()).hexdigest()


def _plain_rule(rule: Rule) -> dict[str, Any]:
    """Convert a rule to boto3's form."""
    plain: dict[str, Any] = {"ID": rule.id} if rule.id else {}
    scope = {"Prefix": rule.filter.prefix} if rule.legacy_prefix else {"Filter": _plain_filter(rule.filter)}
    plain |= scope | {"Status": "Enabled" if rule.enabled else "Disabled"}
    if rule.expiration is not None:
        plain["Expiration"] = _plain_expiration(rule.expiration)
    if rule.transitions:
        plain["Transitions"] = [_plain_transition(transition) for transition in rule.transitions]
    if rule.noncurrent_expiration is not None:
        plain["NoncurrentVersionExpiration"] = _plain_noncurrent(rule.noncurrent_expiration)
    if rule.noncurrent_transitions:
        plain["NoncurrentVersionTransitions"] = [
            _plain_noncurrent(transition) | {"StorageClass": transition.storage_class}
            for transition in rule.noncurrent_transitions
        ]
    if rule.abort_days is not None:
        plain["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": rule.abort_days}
    return plain


def _plain_filter(given: Filter) -> dict[str, Any]:
    parts: dict[str, Any] = {"Prefix": given.prefix} if given.prefix else {}
    tags = [{"Key": key, "Value": value} for key, value in given.tags]
    if tags:
        parts["Tags"] = tags
    if given.larger_than is not None:
        parts["ObjectSizeGreaterThan"] = given.larger_than
    if given.smaller_than is not None:
        parts["ObjectSizeLessThan"] = given.smaller_than
    if len(parts) > 1 or len(tags) > 1:
        return {"And": parts}
    if tags:
        return {"Tag": tags[0]}
    return parts or {"Prefix": ""}


def _plain_expiration(given: Expiration) -> dict[str, Any]:
    if given.days is not None:
        return {"Days": given.days}
    if given.date is not None:
        return {"Date": format_instant(given.date)}
    return {"ExpiredObjectDeleteMarker": given.expired_marker}


def _plain_transition(given: Transition) -> dict[str, Any]:
    when: dict[str, Any] = {} if given.days is None else {"Days": given.days}
    if given.date is not None:
        when["Date"] = format_instant(given.date)
    return when | {"StorageClass": given.storage_class}


def _plain_noncurrent(given: NoncurrentExpiration | NoncurrentTransition) -> dict[str, Any]:
    newer = {"NewerNoncurrentVersions": given.newer} if given.newer else {}
    return {"NoncurrentDays": given.days} | newer


def read_rules_file(name: str, locations: Collection[str], minimum_size: str | None = None) -> Configuration:
    """Read a configuration from a file, whose extension says its format, or from standard input (`-`)."""
    text = read_text(name)
    if name == STANDARD_INPUT:
        fmt = "xml" if text.lstrip("\ufeff \t\r\n").startswith("<") else "json"
    else:
        fmt = "xml" if name.lower().endswith(".xml") else format_of(name)
    return read_configuration_text(text, fmt, locations=locations, minimum_size=minimum_size)
