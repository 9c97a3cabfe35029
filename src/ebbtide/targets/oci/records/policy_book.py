"""The policies of registries (requirement 2.0): one document each, changed as a whole or policy by policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, select, update

from ebbtide.core.errors import MetadataError, PolicyError
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.oci.policies.document import parse_policies, plain_policy, policies_hash, policies_text
from ebbtide.targets.oci.policies.policy import Policies, Policy
from ebbtide.targets.oci.records import editing
from ebbtide.targets.oci.records.editing import Difference, check_name, checked, differences, rule_differences
from ebbtide.targets.oci.records.marking import the_policy
from ebbtide.targets.oci.records.model import LogKind, Role
from ebbtide.targets.oci.records.part import Deed, RecordsPart, log_row
from ebbtide.targets.oci.records.tables import registries

DOCUMENT = "all policies"
"""The subject of a refused change to the whole document."""


@dataclass(frozen=True)
class StoredPolicies:
    """The policies of a registry, and who changed them last; nobody has if the time is None."""

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


class PolicyBook(RecordsPart):
    """The policies of all registries."""

    def policies(self, uid: str) -> Policies:
        """Give the policies of a registry; what every registry begins with if nobody has changed any."""
        return self.stored_policies(uid).policies

    def stored_policies(self, uid: str) -> StoredPolicies:
        """Give the policies of a registry, and who changed them last."""
        with self._database.reading() as connection:
            return read_stored(connection, uid)

    def save_policies(self, uid: str, policies: Policies, by: str) -> PolicyChange:
        """Make this the whole document of a registry, also if the one that is stored cannot be read."""
        deed = Deed(uid, by, LogKind.POLICY, DOCUMENT, "replace all policies")
        return self._edit(deed, lambda _: checked(policies), replaces=True)

    def put_policy(self, uid: str, policy: Policy, by: str) -> PolicyChange:
        """Add a policy or change the one of that name; what it was assigned to keeps its values."""
        return self.edit_policy(uid, policy.name, lambda _: policy, by)

    def edit_policy(
        self, uid: str, name: str, edit: Callable[[Policy | None], Policy], by: str
    ) -> PolicyChange:
        """Make a policy from the one of that name, None if there is none, with nobody at work in between."""
        deed = Deed(uid, by, LogKind.POLICY, check_name(name), f"set policy {name}")
        return self._edit(deed, lambda before: checked(editing.with_policy(before, edit(before.find(name)))))

    def remove_policy(self, uid: str, name: str, by: str) -> PolicyChange:
        """Remove a policy; what it was assigned to keeps its values and shows its name."""
        deed = Deed(uid, by, LogKind.POLICY, check_name(name), f"remove policy {name}")
        return self._edit(deed, lambda before: checked(editing.without_policy(before, name)))

    def rename_policy(self, uid: str, name: str, new: str, by: str) -> PolicyChange:
        """Rename a policy; assign rules follow, and what it was assigned to shows its old name."""
        deed = Deed(uid, by, LogKind.POLICY, check_name(name), f"rename policy {name} to {new}")

        def renamed(before: Policies, after: Policies) -> Iterable[Difference]:
            old, now = the_policy(before, name), the_policy(after, new)
            if old.name != now.name:
                words = f"rename policy to {now.name}"
                yield Difference(old.name, words, plain_policy(old), plain_policy(now))
            yield from rule_differences(before, after)

        return self._edit(deed, lambda before: checked(editing.with_new_name(before, name, new)), renamed)

    def _edit(
        self,
        deed: Deed,
        edit: Callable[[Policies], Policies],
        found: Callable[[Policies, Policies], Iterable[Difference]] = differences,
        *,
        replaces: bool = False,
    ) -> PolicyChange:
        """
        Change the document and log each thing that is different; what changes nothing is not logged.

        A document that `replaces` the stored one is written even if that cannot be read: an earlier version
        of Ebbtide accepted patterns that this one refuses.
        """
        with self._doing(deed, Role.POLICY_WRITER) as connection:
            unreadable: tuple[Difference, ...] = ()
            try:
                before = read_stored(connection, deed.uid).policies
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
                _write(connection, deed, after, now)
            rows = [
                log_row(replace(deed, subject=d.subject, what=d.what), now, before=d.before, after=d.after)
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


def _write(connection: Connection, deed: Deed, policies: Policies, now: datetime) -> None:
    connection.execute(
        update(registries)
        .where(registries.c.uid == deed.uid)
        .values(
            policies=policies_text(policies),
            hash=policies_hash(policies),
            updated_at=to_micros(now),
            updated_by=deed.by,
        )
    )
