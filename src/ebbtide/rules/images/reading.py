"""
From plain data to :class:`Policies`, with an error that names the place and says what to do.

The document is a table of `policies`, `assign`, `keep_newest` and `removed`, each of which may be left out.
Policies are a list of tables with a `name`, or a table from names to values. What a policy that every
registry begins with leaves out keeps the seed's value; another policy may be deleted earlier, goes through
the bin, and without a period never expires. `removed` names what a registry began with and has no more. Names
of fields and policies may be spelled with capitals, spaces, hyphens or underscores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ebbtide.errors import PolicyError
from ebbtide.rules.documents import nearest, parse_document
from ebbtide.rules.images.fields import fields, flag, rows, text, whole
from ebbtide.rules.images.patterns import glob, tag_pattern
from ebbtide.rules.images.period_reading import PERIOD_FIELDS, has_period, read_period
from ebbtide.rules.images.policies import AssignRule, KeepNewest, Policies
from ebbtide.rules.images.policy import GIVEN_POLICIES, SYSTEM_POLICIES, Policy, same_name

_DOCUMENT = {name: name for name in ("policies", "assign", "keep_newest", "removed")}
_POLICY = {**{name: name for name in ("name", "can_delete_prior", "recycle")}, **PERIOD_FIELDS}
_ASSIGN = {name: name for name in ("repository", "tag", "policy")}
_KEEP = {"repository": "repository", "tag": "tag", "count": "count", "keep_newest": "count", "keep": "count"}
_NOT_APPLICABLE = ("n/a", "na")
_ALWAYS = "Default, Recycle Bin, Quarantine Failed and Untagged are needed by every registry"


def parse_policies(document: str, fmt: str = "json") -> Policies:
    """Read a document (json, yaml or toml); the same policies in another format are the same."""
    return read_policies(parse_document(document, fmt, name="the policies"))


def read_policies(data: Any, where: str = "policies file") -> Policies:
    """Check plain data, as JSON gives it, and make policies of it."""
    document = fields(where, {} if data is None else data, _DOCUMENT)
    named = {same_name(policy.name): policy for policy in GIVEN_POLICIES}
    written = _policies(f"{where}: policies", document.get("policies"))
    for name in _removed(f"{where}: removed", document.get("removed"), written):
        del named[name]
    named |= written
    found = Policies(named)
    return Policies(
        named,
        tuple(
            _assign(f"{where}: assign rule {number}", row, found)
            for number, row in enumerate(rows(f"{where}: assign", document.get("assign")), 1)
        ),
        tuple(
            _keep_newest(f"{where}: keep_newest rule {number}", row)
            for number, row in enumerate(rows(f"{where}: keep_newest", document.get("keep_newest")), 1)
        ),
    )


def _policies(where: str, data: Any) -> dict[str, Policy]:
    """Read the policies of a document, each name once."""
    found: dict[str, Policy] = {}
    for policy in _each(where, data):
        if same_name(policy.name) in found:
            why = "names that differ only in capitals, spaces, hyphens and underscores are one name"
            raise PolicyError(f"{where}: {policy.name!r} is there twice", why=why, fix="remove one of them")
        found[same_name(policy.name)] = policy
    return found


def _removed(where: str, data: Any, written: dict[str, Policy]) -> set[str]:
    """Read which of the given policies the registry has no more; the system's are always there."""
    found = {same_name(text(where, name)) for name in rows(where, data)}
    for name in sorted(found):
        if name in {same_name(policy.name) for policy in SYSTEM_POLICIES}:
            raise PolicyError(f"{where}: {name!r} is a system policy", why=_ALWAYS, fix="change it instead")
        if name not in {same_name(policy.name) for policy in GIVEN_POLICIES}:
            raise PolicyError(f"{where}: {name!r} is not given to a registry", fix="leave it out")
        if name in written:
            raise PolicyError(f"{where}: {name!r} is also among the policies", fix="remove one of the two")
    return found


def _each(where: str, data: Any) -> Iterator[Policy]:
    if isinstance(data, dict):
        for name, body in data.items():
            label = f"{where}: {name!r}"
            values = fields(label, {} if body is None else body, _POLICY)
            if "name" in values and values["name"] != name:
                raise PolicyError(f"{label} is named {values['name']!r} inside", fix="leave the name out")
            yield _policy(where, str(name), values)
        return
    for number, body in enumerate(rows(where, data), 1):
        values = fields(f"{where}: policy {number}", body, _POLICY)
        if "name" not in values:
            raise PolicyError(f"{where}: policy {number} has no name", fix='add "name": "Released"')
        yield _policy(where, values["name"], values)


def _policy(where: str, given_name: Any, body: dict[str, Any]) -> Policy:
    name = text(f"{where}: the name of a policy", given_name)
    label = f"{where}: {name!r}"
    given = {same_name(policy.name): policy for policy in GIVEN_POLICIES}
    base = given.get(same_name(name), Policy(name))
    return Policy(
        base.name,
        read_period(label, body) if has_period(body) else base.period,
        _flag_or(f"{label}: can_delete_prior", body.get("can_delete_prior"), usual=base.can_delete_prior),
        _flag_or(f"{label}: recycle", body.get("recycle"), usual=base.recycle),
    )


def _flag_or(where: str, value: Any, *, usual: bool) -> bool:
    """Read a flag; nothing, and the seed's N/A, is what is usual."""
    if value is None or (isinstance(value, str) and value.strip().casefold() in _NOT_APPLICABLE):
        return usual
    return flag(where, value)


def _needed(where: str, data: Any, known: dict[str, str], example: str) -> dict[str, Any]:
    """Expect a table with all of its fields."""
    found = fields(where, data, known)
    for name in dict.fromkeys(known.values()):
        if name not in found:
            raise PolicyError(f"{where} has no {name}", fix=f"write it like {example}")
    return found


def _assign(where: str, data: Any, policies: Policies) -> AssignRule:
    body = _needed(where, data, _ASSIGN, '{"repository": "team/*", "tag": "v.*", "policy": "Released"}')
    policy = policies.find(text(f"{where}: policy", body["policy"]))
    if policy is None:
        names = [known.name for known in policies.named.values()]
        found = f"{where}: there is no policy {body['policy']!r}"
        raise PolicyError(found, fix=f"add it to policies, or {nearest(body['policy'], names)}")
    return AssignRule(
        glob(f"{where}: repository", body["repository"]),
        tag_pattern(f"{where}: tag", body["tag"]),
        policy.name,
    )


def _keep_newest(where: str, data: Any) -> KeepNewest:
    body = _needed(where, data, _KEEP, '{"repository": "team/*", "tag": ".*", "count": 3}')
    return KeepNewest(
        glob(f"{where}: repository", body["repository"]),
        tag_pattern(f"{where}: tag", body["tag"]),
        whole(f"{where}: count", body["count"], what="tags"),
    )
