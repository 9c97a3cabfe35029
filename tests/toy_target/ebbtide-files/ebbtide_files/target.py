"""A folder as a target: which of its files may go, and how they go."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from ebbtide.core.decision import EMPTY_BIN, Decision
from ebbtide.core.display import Explanation
from ebbtide.core.errors import NotFound, PolicyError, StalePlan
from ebbtide.core.instant import days_after, format_instant
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.layers import Layers
from ebbtide.engine.object_bin import ObjectBin
from ebbtide.engine.recycle import store_actor
from ebbtide.engine.restore import Restorer, check_not_restored_since
from ebbtide.engine.tables.contracts import STANDINGS
from ebbtide.storage.store import StoreSpec, open_store
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

    def bin(self) -> ObjectBin:
        """Open the folder's bin, which lies in the folder."""
        return ObjectBin.in_store(self.context, self.identity, self.store, BIN)

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
            return ExpiredItems(self.bin())
        return FilesCollector(self, Rule.model_validate_json(plan.policy))

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Say when a file goes."""
        if item == POLICY or item.startswith(BIN):
            raise NotFound(f"{item} is never collected", fix="name another file")
        written, days = open_store(self.store).stat(item).last_modified, self.rule().days
        deadline = max(days_after(written, days), self.bin().held_until(item) or written)
        decision = Decision.DUE if deadline <= now else Decision.HELD
        said = f"{item} is {decision}: it is kept for {days} days, until {format_instant(deadline)}"
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

    def before_plan(self) -> tuple[str, ...]:
        """Finish an interrupted restore."""
        Restorer(self.target.bin()).finish_interrupted()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the folder in one Spark task, and hold each file until it is old enough."""
        store, place = self.target.store, run.folder.scratch / "standings"
        task = run.spark.range(0, 1, 1, 1)
        listed = task.mapInArrow(lambda _: open_store(store).list(), LISTED)
        files = listed.where((listed.key != POLICY) & ~listed.key.startswith(BIN))
        columns = STANDING.format(days=self.rule.days).split("|")
        verdicts = self.target.bin().holding(files.selectExpr(*columns))
        STANDINGS.write(verdicts, place, partition_by="kind")
        return Collected(Layers(place), {}, without_buried=True)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if the policy or the bin was changed since the plan was made."""
        try:
            now = replace(self, rule=self.target.rule()).policy()
        except PolicyError as broken:
            raise StalePlan(broken.what, why=broken.why, fix="plan again") from broken
        if (now.hash, now.bin_days) != (plan.policy_hash, plan.recycling and plan.recycling.days):
            raise StalePlan(f"the policy or the bin of {plan.target} was changed", fix="plan again")
        check_not_restored_since(self.target.context.ledger, plan)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Move files into the bin if the plan says so, or else delete them; a file that changed stays."""
        return store_actor(self.target.bin(), plan, attempt)
