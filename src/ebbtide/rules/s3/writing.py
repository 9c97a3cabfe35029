"""Writing configurations: boto3's form, XML, and the hash that names what one says."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ebbtide.rules.instant import format_instant
from ebbtide.rules.s3.configuration import (
    Configuration,
    Expiration,
    Filter,
    NoncurrentExpiration,
    NoncurrentTransition,
    Rule,
    Transition,
)
from ebbtide.rules.s3.xml_form import plain_to_xml


def write_json(configuration: Configuration) -> dict[str, Any]:
    """Write a configuration as S3's GET gives it to boto3, with dates as texts; it reads back as the same."""
    return {
        "Rules": [plain_rule(rule) for rule in configuration.rules],
        "TransitionDefaultMinimumObjectSize": str(configuration.minimum_size),
    }


def write_xml(configuration: Configuration) -> str:
    """Write a configuration's rules as the body of S3's PUT; the minimum size is a header there."""
    return plain_to_xml({"Rules": [plain_rule(rule) for rule in configuration.rules]})


def configuration_text(configuration: Configuration) -> str:
    """Write a configuration in its one canonical JSON form."""
    return json.dumps(write_json(configuration), sort_keys=True)


def configuration_hash(configuration: Configuration) -> str:
    """Name a configuration by its meaning: format, the order of fields and of tags do not matter."""
    return hashlib.sha256(configuration_text(configuration).encode()).hexdigest()


def plain_rule(rule: Rule) -> dict[str, Any]:
    """Write one rule in boto3's form."""
    plain: dict[str, Any] = {"ID": rule.id} if rule.id else {}
    scope = {"Prefix": rule.filter.prefix} if rule.legacy_prefix else {"Filter": _filter(rule.filter)}
    plain |= scope | {"Status": "Enabled" if rule.enabled else "Disabled"}
    if rule.expiration is not None:
        plain["Expiration"] = _expiration(rule.expiration)
    if rule.transitions:
        plain["Transitions"] = [_transition(transition) for transition in rule.transitions]
    if rule.noncurrent_expiration is not None:
        plain["NoncurrentVersionExpiration"] = _noncurrent(rule.noncurrent_expiration)
    if rule.noncurrent_transitions:
        plain["NoncurrentVersionTransitions"] = [
            _noncurrent(transition) | {"StorageClass": transition.storage_class}
            for transition in rule.noncurrent_transitions
        ]
    if rule.abort_days is not None:
        plain["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": rule.abort_days}
    return plain


def _filter(given: Filter) -> dict[str, Any]:
    tags = [{"Key": key, "Value": value} for key, value in given.tags]
    parts: dict[str, Any] = {"Prefix": given.prefix} if given.prefix else {}
    if given.larger_than is not None:
        parts["ObjectSizeGreaterThan"] = given.larger_than
    if given.smaller_than is not None:
        parts["ObjectSizeLessThan"] = given.smaller_than
    if len(parts) + len(tags) > 1:
        return {"And": parts | ({"Tags": tags} if tags else {})}
    if tags:
        return {"Tag": tags[0]}
    return parts or {"Prefix": ""}


def _expiration(given: Expiration) -> dict[str, Any]:
    if given.days is not None:
        return {"Days": given.days}
    if given.date is not None:
        return {"Date": format_instant(given.date)}
    return {"ExpiredObjectDeleteMarker": given.expired_marker}


def _transition(given: Transition) -> dict[str, Any]:
    when: dict[str, Any] = {} if given.days is None else {"Days": given.days}
    if given.date is not None:
        when["Date"] = format_instant(given.date)
    return when | {"StorageClass": given.storage_class}


def _noncurrent(given: NoncurrentExpiration | NoncurrentTransition) -> dict[str, Any]:
    newer = {"NewerNoncurrentVersions": given.newer} if given.newer else {}
    return {"NoncurrentDays": given.days} | newer
