"""Writing policies: plain data that reads back as the same, its one canonical text, and the hash of that."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ebbtide.rules.images.policies import AssignRule, KeepNewest, Policies
from ebbtide.rules.images.policy import GIVEN_POLICIES, Policy, same_name


def write_policies(policies: Policies) -> dict[str, Any]:
    """Write a whole document; the order of policies means nothing, so they stand in that of their names."""
    named = [policies.named[name] for name in sorted(policies.named)]
    removed = [policy.name for policy in GIVEN_POLICIES if same_name(policy.name) not in policies.named]
    document: dict[str, Any] = {
        "policies": [plain_policy(policy) for policy in named],
        "assign": [plain_assign(rule) for rule in policies.assign],
        "keep_newest": [plain_keep(rule) for rule in policies.keep_newest],
    }
    return document | ({"removed": removed} if removed else {})


def policies_text(policies: Policies) -> str:
    """Write policies in their one canonical JSON form."""
    return json.dumps(write_policies(policies), sort_keys=True)


def policies_hash(policies: Policies) -> str:
    """Name policies by their meaning: format, spelling and the order of fields and policies do not matter."""
    return hashlib.sha256(policies_text(policies).encode()).hexdigest()


def plain_policy(policy: Policy) -> dict[str, Any]:
    """Write one policy with all of its values."""
    period = policy.period
    return {
        "name": policy.name,
        **({"never": True} if period is None else {str(period.unit): period.number}),
        "can_delete_prior": policy.can_delete_prior,
        "recycle": policy.recycle,
    }


def plain_assign(rule: AssignRule) -> dict[str, Any]:
    """Write a rule that gives a policy to tags."""
    return {"repository": rule.repository.text, "tag": rule.tag.text, "policy": rule.policy}


def plain_keep(rule: KeepNewest) -> dict[str, Any]:
    """Write a rule that keeps the newest."""
    return {"repository": rule.repository.text, "tag": rule.tag.text, "count": rule.count}
