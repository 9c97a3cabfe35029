"""Changes to the policies of a registry; pure, from the policies before to those after, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ebbtide.core.errors import AlreadyExists, BadInput, Refused
from ebbtide.targets.oci.policies.document import (
    plain_assign,
    plain_keep,
    plain_policy,
    read_policies,
    write_policies,
)
from ebbtide.targets.oci.policies.policy import GIVEN_POLICIES, SYSTEM_POLICIES, Policies, Policy, same_name
from ebbtide.targets.oci.records.marking import the_policy

LONGEST_NAME = 128
ASSIGN_RULES = "assign rules"
KEEP_RULES = "keep_newest rules"
UNMATCHED = "unmatched"
_SYSTEM = {same_name(policy.name) for policy in SYSTEM_POLICIES}
_GIVEN = {same_name(policy.name): policy for policy in GIVEN_POLICIES}


@dataclass(frozen=True)
class Difference:
    """One thing that a change makes different, as the log keeps it."""

    subject: str
    what: str
    before: Any
    after: Any


def checked(policies: Policies) -> Policies:
    """Give policies in the form in which they are kept; those that do not read back are refused."""
    for policy in policies.named.values():
        check_name(policy.name)
    found = read_policies(write_policies(policies), "the policies")
    if found != policies:
        raise BadInput(
            "these policies cannot be kept", why="they read back as others", fix="check their names"
        )
    return found


def with_policy(policies: Policies, policy: Policy) -> Policies:
    """Add a policy, or change the one of that name; its name keeps its spelling."""
    name = same_name(check_name(policy.name))
    known = policies.named.get(name) or _GIVEN.get(name) or policy
    return replace(policies, named={**policies.named, name: replace(policy, name=known.name)})


def without_policy(policies: Policies, name: str) -> Policies:
    """Remove a policy, unless every registry needs it or a rule gives it to tags."""
    policy = the_policy(policies, name)
    _not_system(policy, "removed")
    used = [rule for rule in policies.assign if same_name(rule.policy) == same_name(policy.name)]
    if used:
        where = f"{used[0].repository.text} {used[0].tag.text}"
        raise Refused(
            f"policy {policy.name!r} cannot be removed",
            why=f"an assign rule gives it to tags ({where})",
            fix="change the assign rules first",
        )
    if same_name(policies.unmatched) == same_name(policy.name):
        raise Refused(
            f"policy {policy.name!r} cannot be removed",
            why="it is the policy of tags that no assign rule matches (unmatched)",
            fix="load a document with another unmatched first",
        )
    return replace(policies, named={k: v for k, v in policies.named.items() if k != same_name(policy.name)})


def with_new_name(policies: Policies, name: str, new: str) -> Policies:
    """Rename a policy; assign rules follow, and what was assigned keeps its values and shows the old name."""
    policy = the_policy(policies, name)
    _not_system(policy, "renamed")
    wanted, old = same_name(check_name(new)), same_name(policy.name)
    if wanted != old and wanted in policies.named:
        taken = policies.named[wanted].name
        raise AlreadyExists(
            f"there is a policy {taken!r} already", fix="use another name, or remove that one"
        )
    if wanted in _GIVEN:
        new = _GIVEN[wanted].name
    named = {key: value for key, value in policies.named.items() if key != old}
    rules = tuple(
        replace(rule, policy=new) if same_name(rule.policy) == old else rule for rule in policies.assign
    )
    unmatched = new if same_name(policies.unmatched) == old else policies.unmatched
    renamed = {**named, wanted: replace(policy, name=new)}
    return replace(policies, named=renamed, assign=rules, unmatched=unmatched)


def differences(before: Policies, after: Policies) -> Iterator[Difference]:
    """Name what a change makes different: each policy by itself, and the rules of each kind."""
    for key in sorted({*before.named, *after.named}):
        old, new = before.named.get(key), after.named.get(key)
        if old != new:
            what = "add" if old is None else "remove" if new is None else "change"
            name = (new or old or Policy(key)).name
            yield Difference(name, f"{what} policy", old and plain_policy(old), new and plain_policy(new))
    yield from rule_differences(before, after)


def rule_differences(before: Policies, after: Policies) -> Iterator[Difference]:
    """Name what a change makes different in the rules."""
    assign = ([plain_assign(rule) for rule in side.assign] for side in (before, after))
    keep = ([plain_keep(rule) for rule in side.keep_newest] for side in (before, after))
    for subject, (old, new) in ((ASSIGN_RULES, assign), (KEEP_RULES, keep)):
        if old != new:
            yield Difference(subject, f"change {subject}", old, new)
    if before.unmatched != after.unmatched:
        old_name, new_name = ({UNMATCHED: side.unmatched} for side in (before, after))
        yield Difference(UNMATCHED, f"change {UNMATCHED}", old_name, new_name)


def check_name(name: str) -> str:
    """Give the name of a policy back, or raise BadInput: it is shown in tables and written into logs."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        fix = f"use up to {LONGEST_NAME} printable characters, no blank at either end"
        raise BadInput(f"{name!r} is no name of a policy", fix=fix)
    return name


def _not_system(policy: Policy, done: str) -> None:
    if same_name(policy.name) in _SYSTEM:
        raise Refused(
            f"policy {policy.name!r} cannot be {done}",
            why="it is a system policy, which every registry needs",
            fix="change its values instead",
        )
