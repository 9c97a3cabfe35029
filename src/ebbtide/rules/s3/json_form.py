"""Configurations as boto3 and the AWS command line write them: out of their wrappings, down to the rules."""

from __future__ import annotations

from typing import Any

from ebbtide.rules.documents import nearest
from ebbtide.rules.s3.refusals import label, malformed, shown

SIZE = "TransitionDefaultMinimumObjectSize"

_BESIDE = (SIZE, "ResponseMetadata")
_REQUEST = ("Bucket", "ChecksumAlgorithm", "ExpectedBucketOwner")
_SINGLE = {"Transition": "Transitions", "NoncurrentVersionTransition": "NoncurrentVersionTransitions"}


def unwrap(document: Any) -> tuple[Any, Any]:
    """
    Give the rules and the minimum size of a document; the size is None where it says nothing.

    A document is a list of rules, a table with `Rules`, the answer of a GET, or the parameters of a PUT.
    """
    if isinstance(document, list):
        return _rules(document), None
    if not isinstance(document, dict):
        found = f"the configuration is {shown(document)}"
        raise malformed(found, fix='write {"Rules": [{"Status": "Enabled", "Filter": {}, ...}]}')
    if "LifecycleConfiguration" not in document:
        return _inner(document, ("Rules", *_BESIDE))
    _check_known(document, ("LifecycleConfiguration", *_BESIDE, *_REQUEST))
    wrapped = document["LifecycleConfiguration"]
    if not isinstance(wrapped, dict):
        raise malformed(f"LifecycleConfiguration is {shown(wrapped)}", fix='write {"Rules": [...]} into it')
    rules, size = _inner(wrapped, ("Rules", SIZE))
    return rules, document.get(SIZE) if size is None else size


def _inner(document: dict[str, Any], known: tuple[str, ...]) -> tuple[Any, Any]:
    _check_known(document, known)
    if "Rules" not in document:
        raise malformed("the configuration has no Rules", fix='write {"Rules": [...]}')
    return _rules(document["Rules"]), document.get(SIZE)


def _check_known(document: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in document:
        if name not in known:
            raise malformed(f"unknown field {shown(name)}", fix=nearest(str(name), known))


def _rules(rules: Any) -> Any:
    """Turn the single transition of S3's first API into a list of one; the rest is left for the check."""
    if not isinstance(rules, list):
        return rules
    return [_rule(number, rule) for number, rule in enumerate(rules, start=1)]


def _rule(number: int, rule: Any) -> Any:
    if not isinstance(rule, dict):
        return rule
    plain = dict(rule)
    for single, many in _SINGLE.items():
        if single in plain and many in plain:
            name = label(number, rule.get("ID"))
            raise malformed(f"{name}: it has {single} and {many}", fix=f"put all into {many}")
        if single in plain:
            plain[many] = [plain.pop(single)]
    return plain
