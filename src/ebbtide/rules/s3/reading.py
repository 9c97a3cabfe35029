"""
Reading S3 lifecycle configurations, JSON or XML: either one that S3 takes, or the code with which it refuses.

Faults of form in any rule come before faults of value, as they do on S3, which checks its schema first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ebbtide.errors import LifecycleError, PolicyError
from ebbtide.rules.documents import nearest, parse_document
from ebbtide.rules.s3.building import build_rule, with_ids
from ebbtide.rules.s3.configuration import Configuration, MinimumSize
from ebbtide.rules.s3.forms import check_form
from ebbtide.rules.s3.json_form import SIZE, unwrap
from ebbtide.rules.s3.limits import check_ids, check_limits
from ebbtide.rules.s3.refusals import invalid_request, label, malformed, shown
from ebbtide.rules.s3.shape import conforming
from ebbtide.rules.s3.xml_form import xml_to_plain

LONGEST_TEXT = 16 * 1024 * 1024
"""A thousand rules with the longest prefixes and ten of the longest tags each are less than this."""


def read_configuration(
    document: Any, *, locations: Collection[str] = (), minimum_size: str | None = None
) -> Configuration:
    """Check plain data in boto3's form; `minimum_size` is what boto3 takes beside the configuration."""
    rules, stated = unwrap(document)
    plain = conforming(rules)
    names = [label(number, rule.get("ID")) for number, rule in enumerate(plain, start=1)]
    for name, rule in zip(names, plain, strict=True):
        check_form(name, rule, locations)
    size = _minimum_size(stated, minimum_size)
    built = [build_rule(name, rule) for name, rule in zip(names, plain, strict=True)]
    check_ids(names, built)
    for name, made in zip(names, built, strict=True):
        check_limits(name, made)
    return Configuration(with_ids(built), size)


def read_configuration_text(
    text: str, fmt: str = "json", *, locations: Collection[str] = (), minimum_size: str | None = None
) -> Configuration:
    """Read a document (json, xml, yaml or toml); the same rules give the same configuration in each."""
    if len(text) > LONGEST_TEXT:
        raise malformed(f"the document has {len(text)} characters", fix="write fewer rules")
    plain = _parse(text.removeprefix("\ufeff"), fmt)
    return read_configuration(plain, locations=locations, minimum_size=minimum_size)


def read_checked(document: Any) -> Configuration:
    """Read what was checked when it was kept; a location that was renamed since does not matter."""
    actions = ("Transitions", "NoncurrentVersionTransitions")
    parts = [part for rule in document["Rules"] for name in actions for part in rule.get(name, ())]
    return read_configuration(document, locations={part["StorageClass"] for part in parts})


def _parse(text: str, fmt: str) -> Any:
    if fmt == "xml":
        return xml_to_plain(text)
    try:
        return parse_document(text, fmt, name="the configuration")
    except LifecycleError:
        raise
    except PolicyError as broken:
        raise malformed(broken.what, why=broken.why, fix=broken.fix) from None


def _minimum_size(stated: Any, given: str | None) -> MinimumSize:
    sizes = [size for size in (stated, given) if size is not None]
    for size in sizes:
        if size not in list(MinimumSize):
            found = f"{SIZE} is {shown(size)}"
            sentence = f"Invalid {SIZE} found"
            raise invalid_request(found, sentence, fix=nearest(str(size), list(MinimumSize)))
    if len(set(sizes)) > 1:
        found = f"{SIZE} is {shown(stated)} in the document and {shown(given)} beside it"
        raise invalid_request(found, f"Conflicting {SIZE} found", fix="leave one of them out")
    return MinimumSize(sizes[0]) if sizes else MinimumSize.ALL_128K
