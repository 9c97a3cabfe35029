"""A generated repository: small, in the real catalog, with a clock and addresses of the test's own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.machine.documents import Documents
from tests.services.lake import SettableClock

from ebbtide.errors import EbbtideError, Refused
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.catalog.model import Commit, Entry
from ebbtide.lake.lifecycle.policies import PolicyRun
from ebbtide.lake.world_document import WorldDocument
from ebbtide.rules.lake_policy import LakePolicy
from ebbtide.rules.lake_policy_parser import lake_policy
from ebbtide.store.base import Store

OUTSIDE = "file:///outside/the/namespace/"
"""Where staged objects lie that are not the repository's own; nobody reads them."""


class NumberedAddresses:
    """Hands out the same addresses in every run, so that a failure can be played again, waves and all."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def address(self, repo_uid: str, branch_id: str) -> str:
        """Give the next address of a repository."""
        self._used[repo_uid] += 1
        return f"data/{self._used[repo_uid]:04d}"

    def last(self, repo_uid: str, count: int) -> list[str]:
        """Give again the addresses that were handed out last."""
        used = self._used[repo_uid]
        return [f"data/{number:04d}" for number in range(used - count + 1, used + 1)]


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

    def __post_init__(self) -> None:
        """Find what there is, and hand out our own addresses from now on."""
        self.catalog._partitions = self.addresses  # type: ignore[assignment]
        self.uid = self.catalog.repository(self.name).uid
        self.store: Store = self.catalog.store(self.name)
        self.documents = Documents(self.catalog, self.name)
        self.commits.append(self.catalog.branches(self.name)["main"])

    @property
    def policy(self) -> LakePolicy:
        """The present policy."""
        return lake_policy(self.rules)

    @property
    def is_closed(self) -> bool:
        """Tell whether a run keeps the gate closed."""
        return self.catalog.gate(self.name) is not None

    def document(self) -> WorldDocument:
        """Write the repository down as it is now."""
        return self.documents.written(self.policy, self.runs, self.clock())

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
        for address, (_, data) in zip(self.addresses.last(self.uid, len(items)), items, strict=True):
            self.contents[address] = data

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

    def _remember_copy(self, before: Entry, copied: Entry) -> None:
        if copied.address != before.address:
            self.contents[copied.address] = self.contents[before.address]


class HalfWay(EbbtideError):
    """Stands for the crash of a process between two transactions."""


def _crash(*_: Any) -> Commit:
    raise HalfWay("killed here")
