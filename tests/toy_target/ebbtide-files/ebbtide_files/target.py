"""A folder as a target: which of its files may go, and how they go."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ebbtide.core.decision import EMPTY_BIN, Decision, Outcome
from ebbtide.core.display import Explanation
from ebbtide.core.errors import NotFound, PolicyError, StalePlan
from ebbtide.core.instant import days_after, format_instant
from ebbtide.core.manifest import Manifest
from ebbtide.core.recycling import items_of, label_of
from ebbtide.engine.actor import Actor, Attempt, refuse, settle
from ebbtide.engine.bins import Bin
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.expired_items import ExpiredItems
from ebbtide.engine.layers import Layers
from ebbtide.engine.tables.contracts import STANDINGS
from ebbtide.storage.store import DeleteRequest, DeleteResult, MoveRequest, StoreSpec, open_store
from ebbtide.targets.target import Options

POLICY, BIN = ".ebbtide-files.json", ".ebbtide-bin/"
LISTED = "key string, size bigint, last_modified timestamp, etag string"
STANDING = """0 AS world | xxhash64(key) AS hash | key AS address | array(key) AS paths | size
    | last_modified + make_dt_interval({days}) AS deadline | last_modified AS created
    | 'not yet due' AS reason | 'kept for {days} days' AS held_by | array('older than {days} days') AS rules
    | cast(array() AS array<string>) AS branches | 'files' AS collector | 'touched' AS kind
    | named_struct('action', 'delete', 'version', string(null), 'etag', etag, 'latest', boolean(null),
      'newer', int(null), 'goal', string(null)) AS task"""


class Rule(BaseModel, frozen=True, extra="forbid"):
    """The policy of a folder: for how many days files are kept."""

    days: int = Field(ge=1, le=36_500)


@dataclass(frozen=True)
class FilesTarget:
    """A folder with its collectors: its old files, and its bin."""

    context: Context
    folder: Path

    @property
    def store(self) -> StoreSpec:
        """The folder as a store, which executors can open too."""
        return StoreSpec(self.folder.as_uri())

    @property
    def identity(self) -> Identity:
        """Which folder it is."""
        uid = hashlib.sha256(self.store.url.encode()).hexdigest()
        return Identity(f"files:{self.folder}", uid, self.store.url)

    @property
    def bin(self) -> Bin:
        """The folder's bin."""
        return Bin(open_store(self.store), BIN, self.identity.uid)

    def rule(self) -> Rule:
        """Read the policy file."""
        try:
            return Rule.model_validate_json((self.folder / POLICY).read_bytes(), strict=True)
        except (OSError, ValidationError) as broken:
            fix = f'write {{"days": 30}} into {self.folder / POLICY}'
            raise PolicyError(f"{self.folder} has no policy", why=str(broken), fix=fix) from None

    def collector(self, options: Options, now: datetime) -> Collector:
        """Return the collector of old files."""
        return FilesCollector(self, self.rule())

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""
        if plan.collector == EMPTY_BIN:
            return self.bin_collector()
        return FilesCollector(self, Rule.model_validate_json(plan.policy))

    def bin_collector(self, older_than: int | None = None) -> Collector:
        """Return the collector of the folder's bin."""
        return ExpiredItems(self.context, self.bin, self.identity, lambda: self.identity, older_than)

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Say when a file goes."""
        if item == POLICY or item.startswith(BIN):
            raise NotFound(f"{item} is never collected", fix="name another file")
        written, days = open_store(self.store).stat(item).last_modified, self.rule().days
        deadline = days_after(written, days)
        decision = Decision.DUE if deadline <= now else Decision.HELD
        said = f"{item} is {decision}: it is {days} days old at {format_instant(deadline)}"
        return Explanation((said,), {"decision": decision, "deadline": deadline})


@dataclass(frozen=True)
class FilesCollector(Collector):
    """Collects the files of a folder that are older than some days."""

    target: FilesTarget
    rule: Rule
    name = "files"

    @property
    def identity(self) -> Identity:
        """The folder."""
        return self.target.identity

    def policy(self) -> Policy:
        """Return the rule, and for how many days the bin keeps files."""
        text, ledger = self.rule.model_dump_json(), self.target.context.ledger
        bin_days = ledger.recycling_days(self.identity.uid)
        return Policy(text, hashlib.sha256(text.encode()).hexdigest(), bin_days)

    def reach(self) -> Reach:
        """Reach the folder."""
        return StoreReach(self.target.store)

    def collect(self, run: Run) -> Collected:
        """List the folder in one Spark task, and hold each file until it is old enough."""
        store, place = self.target.store, run.folder.scratch / "standings"
        task = run.spark.range(0, 1, 1, 1)
        listed = task.mapInArrow(lambda _: open_store(store).list(), LISTED)
        files = listed.where((listed.key != POLICY) & ~listed.key.startswith(BIN))
        columns = STANDING.format(days=self.rule.days).split("|")
        STANDINGS.write(files.selectExpr(*columns), place, partition_by="kind")
        return Collected(Layers(place), {}, without_buried=True)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if the policy or the days of the bin were changed since the plan was made."""
        try:
            now = replace(self, rule=self.target.rule()).policy()
        except PolicyError as broken:
            raise StalePlan(broken.what, why=broken.why, fix="plan again") from broken
        if (now.hash, now.bin_days) != (plan.policy_hash, plan.recycling and plan.recycling.days):
            raise StalePlan(f"the policy or the bin of {plan.target} was changed", fix="plan again")

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Move files into the bin if the plan says so, or else delete them."""
        label = label_of(plan, attempt.now())
        if label is not None:
            self.target.bin.write(label)  # before the first file: whatever lies in the bin has a label
        place = None if label is None else items_of(BIN, label.folder)
        return partial(_remove, self.target.store, attempt, place)


def _remove(store: StoreSpec, attempt: Attempt, place: str | None, batches: Iterable[Any]) -> Iterator[Any]:
    """Remove files on an executor; return one outcome for each row, in the order of the rows."""
    again = attempt.is_repeated()
    for batch in batches:
        results = [_remove_one(store, place, row, again=again) for row in batch.to_pylist()]
        yield attempt.outcomes(batch, results)


def _remove_one(spec: StoreSpec, place: str | None, row: dict[str, Any], *, again: bool) -> DeleteResult:
    """Remove a file if it is still the one that was planned."""
    key, etag, store = row["address"], row["task"]["etag"], open_store(spec)
    refused = refuse(key, row["kept_because"], metadata=True)
    if refused is not None:
        return refused
    if place is None:
        return settle(store.delete([DeleteRequest(key, etag)])[0], again=again)
    moved = store.move([MoveRequest(key, place + key, etag)])[0]
    ended = {Outcome.DELETED: Outcome.RECYCLED, Outcome.TAKEN: Outcome.FAILED}
    return replace(moved, outcome=ended.get(moved.outcome, moved.outcome))
