"""A generated repository: small, in the real catalog, with a clock and addresses of the test's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.machine.documents import Documents
from tests.machine.numbering import NumberedAddresses
from tests.services.lake import SettableClock

from ebbtide.core.errors import EbbtideError, Refused
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.model import Entry
from ebbtide.targets.lake.catalog.partitions import object_pattern, repository_path
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.repository.model import Commit
from ebbtide.targets.repository.policy import LakePolicy, PolicyRun, lake_policy
from ebbtide.targets.repository.retention_rules import RetentionRules, retention_rules
from ebbtide.targets.repository.rules import GRACE, RepositoryRules
from ebbtide.targets.repository.world_document import WorldDocument, WrittenObject

OUTSIDE = "file:///outside/the/namespace/"
"""Where staged objects lie that are not the repository's own; nobody reads them."""


@dataclass
class Given:
    """A physical address that was handed out, and what became of it."""

    branch: str
    key: str
    address: str
    token: str
    expires: datetime
    uploaded: bool = False
    linked: bool = False


@dataclass
class Repository:
    """What writers do to a repository, and what the test knows about it without asking."""

    catalog: Catalog
    name: str
    clock: SettableClock
    addresses: NumberedAddresses
    contents: dict[str, bytes] = field(default_factory=dict)
    """What was written to each address."""
    commits: list[str] = field(default_factory=list)
    """Commits in the order in which they were made; their ids sort by chance."""
    rules: dict[str, Any] = field(default_factory=dict)
    runs: list[PolicyRun] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    """What runs have deleted."""
    buried: set[str] = field(default_factory=set)
    """What of it is recorded; the rest is an interrupted run's."""
    given: list[Given] = field(default_factory=list)
    """Physical addresses that somebody may still upload to or link."""
    late: set[str] = field(default_factory=set)
    """What came into the store past the catalog: after a token had expired, or by hand."""
    written: dict[str, datetime] = field(default_factory=dict)
    """When each object was written."""
    retained: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find what there is, and hand out our own addresses from now on."""
        self.catalog._partitions = self.addresses
        self.uid = self.catalog.repository(self.name).uid
        self.store: Store = self.catalog.store(self.name)
        self.documents = Documents(self.catalog, self.name)
        self.commits.append(self.catalog.branches(self.name)["main"])

    @property
    def policy(self) -> LakePolicy:
        """The present policy."""
        return lake_policy(self.rules)

    @property
    def retention(self) -> RetentionRules:
        """The present retention rules."""
        return retention_rules(self.retained)

    @property
    def is_closed(self) -> bool:
        """Tell whether a run keeps the gate closed."""
        return self.catalog.fence_holder(self.name) is not None

    def document(self) -> WorldDocument:
        """Write the repository down as it is now."""
        return self.documents.written(self.policy, self.runs)

    def world(self, rules: RepositoryRules) -> WorldDocument:
        """Write the repository down with all that the collectors of a run look at."""
        return replace(
            self.document(),
            objects=self.objects() if rules.uncommitted else {},
            retention=self.retention,
            grace=rules.uncommitted.grace if rules.uncommitted else GRACE,
            collect=rules.collectors,
        )

    def objects(self) -> dict[str, WrittenObject]:
        """List the data objects that are really there."""
        pattern = re.compile(object_pattern(self.uid))
        return {
            row["key"]: WrittenObject(row["last_modified"], row["size"])
            for batch in self.store.list(repository_path(self.uid))
            for row in batch.to_pylist()
            if pattern.match(row["key"])
        }

    def open_uploads(self) -> dict[str, datetime]:
        """Give the addresses that may still be linked, and until when."""
        pages = self.catalog.open_uploads(self.name)
        return {row["address"]: row["expires"] for page in pages for row in page.to_pylist()}

    def branch(self, wanted: str) -> str:
        """Give the branch of this name, or main where there is none."""
        return wanted if wanted in self.catalog.branches(self.name) else "main"

    def other_branch(self, wanted: str) -> str:
        """Give the branch of this name, or any other but main where there is one."""
        names = sorted(self.catalog.branches(self.name).keys() - {"main"})
        return wanted if wanted in names or not names else names[0]

    def commit_at(self, place: int) -> str:
        """Give some commit, counted backwards from the newest."""
        return self.commits[-1 - place % len(self.commits)]

    def upload(self, branch: str, keys: Iterable[str]) -> None:
        """Upload an object for each key, each with content of its own."""
        before = len(self.contents)
        items = [(key, f"{key} {before + number}".encode()) for number, key in enumerate(keys)]
        self.catalog.upload_many(self.name, branch, items)
        given = self.addresses.given[self.uid][-len(items) :]
        for address, (_, data) in zip(given, items, strict=True):
            self._remember(address, data)

    def get_address(self, branch: str, key: str) -> Given:
        """Ask for a physical address."""
        found = self.catalog.get_physical_address(self.name, branch, key)
        self.given.append(Given(branch, key, found.address, found.token, found.expires))
        return self.given[-1]

    def upload_to(self, given: Given) -> None:
        """Upload to a physical address, as a client does: the catalog knows nothing of it."""
        self._put(given.address)
        given.uploaded = True
        if given.expires <= self.clock():
            self.late.add(given.address)

    def link(self, given: Given) -> None:
        """Link a physical address to its key."""
        size = len(self.contents.get(given.address, b"?"))
        self.catalog.link_physical_address(self.name, given.branch, given.key, given.token, size=size)
        given.linked = True

    def put_by_hand(self, number: int) -> None:
        """Put an object into a partition that the catalog wrote to some time ago."""
        address = self.addresses.by_hand(self.uid, number)
        self._put(address)
        self.late.add(address)

    def import_entry(self, branch: str, key: str, address: str) -> None:
        """Commit an entry for an object that is there already, past staging."""
        size, now = len(self.contents[address]), self.clock()
        row = {"key": key, "address": address, "created": now, "size": size, "checksum": ""}
        table = pa.Table.from_pylist([row], ENTRIES)
        self.made(self.catalog.import_entries(self.name, branch, [table], f"import {len(self.commits)}"))

    def copy_across(self, branch: str, source: str, key: str, target: str) -> None:
        """Copy an object's data from one branch to another."""
        before = self.catalog.stat(self.name, source, key)
        copied = self.catalog.copy(self.name, branch, key, target, source)
        self._remember_copy(before, copied)

    def commit(self, branch: str) -> None:
        """Commit what is staged on a branch."""
        self.made(self.catalog.commit(self.name, branch, f"commit {len(self.commits)}"))

    def crash_commit(self, branch: str) -> None:
        """Begin a commit and crash before it lands: what it sealed stays staged."""
        make = self.catalog._new_commit
        self.catalog._new_commit = _crash  # type: ignore[method-assign, assignment]
        try:
            self.commit(branch)
        except HalfWay:
            pass
        finally:
            self.catalog._new_commit = make  # type: ignore[method-assign]

    def tidy(self, branch: str) -> None:
        """Commit what is staged, if anything is: merges and reverts want a clean branch."""
        try:
            self.commit(branch)
        except Refused:
            self.catalog.reset(self.name, branch)

    def made(self, commit: Commit) -> None:
        """Remember a commit that was made."""
        self.commits.append(commit.id)

    def set_rules(self, rules: Mapping[str, Any]) -> None:
        """Make these rules the policy."""
        lake_policy(dict(rules))
        self.catalog.set_policy(self.name, json.dumps(rules), "json")
        self.rules = dict(rules)

    def set_retention(self, rules: Mapping[str, Any]) -> None:
        """Make these the retention rules."""
        retention_rules(dict(rules))
        self.catalog.set_retention(self.name, json.dumps(rules), "json")
        self.retained = dict(rules)

    def _put(self, address: str) -> None:
        data = f"object {len(self.contents)}".encode()
        self.store.write(address, data)
        self._remember(address, data)

    def _remember_copy(self, before: Entry, copied: Entry) -> None:
        if copied.address != before.address:
            self._remember(copied.address, self.contents[before.address])

    def _remember(self, address: str, data: bytes) -> None:
        """Remember what was written, and let it have been written now: a disk has a clock of its own."""
        self.contents[address], self.written[address] = data, self.clock()
        moment = self.clock().timestamp()
        os.utime(Path(self.store.spec.url.removeprefix("file://")) / address, (moment, moment))


class HalfWay(EbbtideError):
    """Stands for the crash of a process between two transactions."""


def _crash(*_: Any) -> Commit:
    raise HalfWay("killed here")
