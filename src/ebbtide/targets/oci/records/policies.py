"""Policies of registries: changes to them, and how they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from ebbtide.core.documents import nearest
from ebbtide.core.errors import AlreadyExists, BadInput, MetadataError, NotFound, PolicyError, Refused
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.oci.policies.document import (
    parse_policies,
    plain_assign,
    plain_keep,
    plain_policy,
    policies_hash,
    policies_text,
    read_policies,
    write_policies,
)
from ebbtide.targets.oci.policies.policy import GIVEN_POLICIES, SYSTEM_POLICIES, Policies, Policy, same_name
from ebbtide.targets.oci.records.base import AuditEntry, RecordsBase, log_row
from ebbtide.targets.oci.records.model import LogKind, Role
from ebbtide.targets.oci.records.tables import registries

LONGEST_NAME = 128
ASSIGN_RULES = "assign rules"
KEEP_RULES = "keep_newest rules"
UNMATCHED = "unmatched"
_SYSTEM = {same_name(policy.name) for policy in SYSTEM_POLICIES}
_GIVEN = {same_name(policy.name): policy for policy in GIVEN_POLICIES}

DOCUMENT = "all policies"
"""The subject of a refused change to the whole document."""


@dataclass(frozen=True)
class Difference:
    """One difference that a change makes, as the log records it."""

    subject: str
    what: str
    before: Any
    after: Any


def checked(policies: Policies) -> Policies:
    """Return policies in their stored form; refuse those that read back differently."""
    for policy in policies.named.values():
        check_name(policy.name)
    found = read_policies(write_policies(policies), "the policies")
    if found != policies:
        raise BadInput(
            "these policies cannot be kept", why="they read back differently", fix="check their names"
        )
    return found


def the_policy(policies: Policies, name: str) -> Policy:
    """Return a policy, or raise an error that suggests similar names."""
    found = policies.find(name)
    if found is None:
        names = [policy.name for policy in policies.named.values()]
        raise NotFound(f"there is no policy {name!r}", fix=nearest(name, names))
    return found


def with_policy(policies: Policies, policy: Policy) -> Policies:
    """Add a policy, or change the one of that name, which keeps its spelling."""
    name = same_name(check_name(policy.name))
    known = policies.named.get(name) or _GIVEN.get(name) or policy
    return replace(policies, named={**policies.named, name: replace(policy, name=known.name)})


def without_policy(policies: Policies, name: str) -> Policies:
    """Remove a policy, unless it is built in or an assign rule uses it."""
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
    """Rename a policy in the assign rules too; existing assignments keep their values and the old name."""
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
    """Yield the differences of a change: one per policy, and one per kind of rules."""
    for key in sorted({*before.named, *after.named}):
        old, new = before.named.get(key), after.named.get(key)
        if old != new:
            what = "add" if old is None else "remove" if new is None else "change"
            name = (new or old or Policy(key)).name
            yield Difference(name, f"{what} policy", old and plain_policy(old), new and plain_policy(new))
    yield from rule_differences(before, after)


def rule_differences(before: Policies, after: Policies) -> Iterator[Difference]:
    """Yield the differences of a change in the rules."""
    assign = ([plain_assign(rule) for rule in side.assign] for side in (before, after))
    keep = ([plain_keep(rule) for rule in side.keep_newest] for side in (before, after))
    for subject, (old, new) in ((ASSIGN_RULES, assign), (KEEP_RULES, keep)):
        if old != new:
            yield Difference(subject, f"change {subject}", old, new)
    if before.unmatched != after.unmatched:
        old_name, new_name = ({UNMATCHED: side.unmatched} for side in (before, after))
        yield Difference(UNMATCHED, f"change {UNMATCHED}", old_name, new_name)


def check_name(name: str) -> str:
    """Return the name of a policy, or raise BadInput: it is shown in tables and written into logs."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        fix = f"use up to {LONGEST_NAME} printable characters, no blank at either end"
        raise BadInput(f"{name!r} is not a valid name for a policy", fix=fix)
    return name


def _not_system(policy: Policy, done: str) -> None:
    if same_name(policy.name) in _SYSTEM:
        raise Refused(
            f"policy {policy.name!r} cannot be {done}",
            why="it is a system policy, which every registry needs",
            fix="change its values instead",
        )


@dataclass(frozen=True)
class StoredPolicies:
    """The policies of a registry, and who changed them last; the time is None if they never changed."""

    policies: Policies
    hash: str
    updated_at: datetime | None = None
    updated_by: str = ""


@dataclass(frozen=True)
class PolicyChange:
    """The policies before and after a change, and what is different."""

    before: Policies
    after: Policies
    differences: tuple[Difference, ...]


class PolicyRecords(RecordsBase):
    """The policies of all registries."""

    def policies(self, uid: str) -> Policies:
        """Return the policies of a registry, or the initial ones if they never changed."""
        return self.stored_policies(uid).policies

    def stored_policies(self, uid: str) -> StoredPolicies:
        """Return the policies of a registry, and who changed them last."""
        with self._database.reading() as connection:
            return read_stored(connection, uid)

    def save_policies(self, uid: str, policies: Policies, by: str) -> PolicyChange:
        """Replace all policies of a registry, even if the stored ones cannot be read."""
        entry = AuditEntry(uid, by, LogKind.POLICY, DOCUMENT, "replace all policies")
        return self._edit(entry, lambda _: checked(policies), replaces=True)

    def put_policy(self, uid: str, policy: Policy, by: str) -> PolicyChange:
        """Add a policy or change the one of that name; existing assignments keep their values."""
        return self.edit_policy(uid, policy.name, lambda _: policy, by)

    def edit_policy(
        self, uid: str, name: str, edit: Callable[[Policy | None], Policy], by: str
    ) -> PolicyChange:
        """Edit the policy of that name (None if there is none), in one transaction."""
        entry = AuditEntry(uid, by, LogKind.POLICY, check_name(name), f"set policy {name}")
        return self._edit(entry, lambda before: checked(with_policy(before, edit(before.find(name)))))

    def remove_policy(self, uid: str, name: str, by: str) -> PolicyChange:
        """Remove a policy; existing assignments keep their values and its name."""
        entry = AuditEntry(uid, by, LogKind.POLICY, check_name(name), f"remove policy {name}")
        return self._edit(entry, lambda before: checked(without_policy(before, name)))

    def rename_policy(self, uid: str, name: str, new: str, by: str) -> PolicyChange:
        """Rename a policy in the assign rules too; existing assignments keep the old name."""
        entry = AuditEntry(uid, by, LogKind.POLICY, check_name(name), f"rename policy {name} to {new}")

        def renamed(before: Policies, after: Policies) -> Iterable[Difference]:
            old, now = the_policy(before, name), the_policy(after, new)
            if old.name != now.name:
                words = f"rename policy to {now.name}"
                yield Difference(old.name, words, plain_policy(old), plain_policy(now))
            yield from rule_differences(before, after)

        return self._edit(entry, lambda before: checked(with_new_name(before, name, new)), renamed)

    def _edit(
        self,
        entry: AuditEntry,
        edit: Callable[[Policies], Policies],
        found: Callable[[Policies, Policies], Iterable[Difference]] = differences,
        *,
        replaces: bool = False,
    ) -> PolicyChange:
        """
        Change the document and log each difference.

        A document that `replaces` the stored one is written even if that cannot be read: an earlier version
        of Ebbtide accepted patterns that this one refuses.
        """
        with self._doing(entry, Role.POLICY_WRITER) as connection:
            unreadable: tuple[Difference, ...] = ()
            try:
                before = read_stored(connection, entry.uid).policies
            except MetadataError as broken:
                if not replaces:
                    raise
                before = Policies()
                what = f"replace what could not be read: {broken.why}"
                unreadable = (Difference(DOCUMENT, what, None, None),)
            after = edit(before)
            different = (*unreadable, *found(before, after))
            now = self._clock()
            if different:
                _write(connection, entry, after, now)
            rows = [
                log_row(replace(entry, subject=d.subject, what=d.what), now, before=d.before, after=d.after)
                for d in different
            ]
            self._note(connection, rows)
        return PolicyChange(before, after, different)


def read_stored(connection: Connection, uid: str) -> StoredPolicies:
    """Read the policies of a registry inside a transaction."""
    row = connection.execute(select(registries).where(registries.c.uid == uid)).mappings().one_or_none()
    if row is None or row["policies"] is None:
        return StoredPolicies(Policies(), policies_hash(Policies()))
    try:
        policies = parse_policies(row["policies"])
    except PolicyError as broken:
        raise MetadataError(
            "the stored policies of the registry cannot be read",
            why=broken.what,
            fix="correct them in a file, and replace all policies: ebb image policy load REGISTRY FILE",
        ) from None
    return StoredPolicies(policies, row["hash"], from_micros(row["updated_at"]), row["updated_by"])


def _write(connection: Connection, entry: AuditEntry, policies: Policies, now: datetime) -> None:
    connection.execute(
        update(registries)
        .where(registries.c.uid == entry.uid)
        .values(
            policies=policies_text(policies),
            hash=policies_hash(policies),
            updated_at=to_micros(now),
            updated_by=entry.by,
        )
    )
