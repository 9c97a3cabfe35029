"""From plain data to a :class:`LakePolicy`, with an error that names the rule and the field."""

from __future__ import annotations

import hashlib
import json
from types import MappingProxyType
from typing import Any

from ebbtide.errors import PolicyError
from ebbtide.rules.documents import nearest, parse_document, whole_days
from ebbtide.rules.lake_policy import LakePolicy, LakeRule

FIELDS = ("prefix", "days", "enabled", "branch_days", "tag_days", "recycle")


def parse_lake_policy(text: str, fmt: str = "json") -> LakePolicy:
    """Read a policy document; the same rules in another format give the same policy."""
    return lake_policy(parse_document(text, fmt))


def lake_policy(data: Any) -> LakePolicy:
    """Check plain data, as JSON gives it, and make a policy of it."""
    if not isinstance(data, dict):
        raise PolicyError(
            f"a policy is a table of rules, this is {_kind(data)}",
            fix='write {"rule1": {"prefix": "raw/", "days": 30}}',
        )
    return LakePolicy(tuple(_rule(str(rule_id), body) for rule_id, body in sorted(data.items())))


def policy_text(policy: LakePolicy) -> str:
    """Write a policy in its one canonical JSON form."""
    return json.dumps({rule.id: _plain(rule) for rule in policy.rules}, sort_keys=True)


def policy_hash(policy: LakePolicy) -> str:
    """Name a policy by its meaning: formats, order and spelling of defaults do not matter."""
    return hashlib.sha256(policy_text(policy).encode()).hexdigest()


def _plain(rule: LakeRule) -> dict[str, Any]:
    plain: dict[str, Any] = {"prefix": rule.prefix, "enabled": rule.enabled}
    if rule.days is not None:
        plain["days"] = rule.days
    if rule.branch_days:
        plain["branch_days"] = dict(rule.branch_days)
    if rule.tag_days is not None:
        plain["tag_days"] = rule.tag_days
    if rule.recycle_days is not None:
        plain["recycle"] = {"days": rule.recycle_days}
    return plain


def _rule(rule_id: str, body: Any) -> LakeRule:
    where = f"rule {rule_id!r}"
    if not rule_id.strip():
        raise PolicyError("a rule has an empty id", fix="give every rule a name of its own")
    if not isinstance(body, dict):
        raise PolicyError(f"{where} is {_kind(body)}, not a table", fix='write {"prefix": ...}')
    for name in body:
        if name not in FIELDS:
            raise PolicyError(f"{where}: unknown field {name!r}", fix=nearest(str(name), FIELDS))
    days = _days(where, "days", body["days"]) if body.get("days") is not None else None
    tag_days = _days(where, "tag_days", body["tag_days"]) if "tag_days" in body else None
    branch_days = _branch_days(where, body.get("branch_days"))
    if days is None and not branch_days:
        raise PolicyError(
            f"{where} has neither days nor branch_days",
            why="it would never delete anything",
            fix="give it days, branch_days, or remove it",
        )
    enabled = body.get("enabled", True)
    if not isinstance(enabled, bool):
        raise PolicyError(f"{where}: enabled is {enabled!r}", fix="write true or false")
    recycle = _recycle(where, body["recycle"]) if "recycle" in body else None
    prefix = _prefix(where, body)
    return LakeRule(rule_id, prefix, days, enabled, MappingProxyType(branch_days), tag_days, recycle)


def _recycle(where: str, value: Any) -> int:
    if not isinstance(value, dict) or set(value) != {"days"}:
        raise PolicyError(
            f"{where}: recycle is {_kind(value) if not isinstance(value, dict) else 'not days alone'}",
            fix='write "recycle": {"days": 14}',
        )
    return whole_days(
        f"{where}: recycle.days",
        value["days"],
        why="what is set aside for less than a day can hardly be missed in time",
        fix="use 1 or more; leave recycle out to delete at once",
    )


def _prefix(where: str, body: dict[str, Any]) -> str:
    if "prefix" not in body:
        raise PolicyError(
            f"{where} has no prefix",
            why="it would match everything, and nobody said so",
            fix='give it a prefix; "prefix": "" means everything',
        )
    prefix = body["prefix"]
    if not isinstance(prefix, str):
        raise PolicyError(f"{where}: prefix is {_kind(prefix)}", fix='write "prefix": "raw/"')
    return prefix


def _branch_days(where: str, value: Any) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PolicyError(f"{where}: branch_days is {_kind(value)}", fix='write "branch_days": {"dev": 3}')
    if "" in value:
        raise PolicyError(
            f"{where}: branch_days names an empty branch", fix="use days for all other branches"
        )
    return {
        str(branch): _days(where, f"branch_days[{branch!r}]", days) for branch, days in sorted(value.items())
    }


def _days(where: str, name: str, value: Any) -> int:
    return whole_days(
        f"{where}: {name}",
        value,
        why="an object cannot live less than a day",
        fix="use 1 or more; to stop a rule set enabled to false",
    )


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        str: "a text",
        type(None): "empty",
        bool: "true/false",
        dict: "a table",
    }
    return names.get(type(value), f"a {type(value).__name__}")
