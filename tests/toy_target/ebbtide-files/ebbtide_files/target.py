"""A folder as a target: which of its files may go, and how they go."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError
from pyspark.sql import DataFrame

from ebbtide.core.decision import EMPTY_BIN, Decision
from ebbtide.core.display import Explanation
from ebbtide.core.errors import NotFound, PolicyError
from ebbtide.core.instant import days_after, format_instant
from ebbtide.core.manifest import Manifest
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.collector import Collector, Context, Identity
from ebbtide.engine.object_bin import ObjectBin
from ebbtide.engine.object_collector import ObjectCollector
from ebbtide.engine.tables.contracts import condition
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.target import Options

POLICY, BIN = ".ebbtide-files.json", ".ebbtide-bin/"
VERDICT = """key AS address | size | last_modified AS created | 'files' AS collector
    | last_modified + make_dt_interval({days}) AS deadline | array('older than {days} days') AS rules
    | 'not yet due' AS hold | 'kept for {days} days' AS holder"""


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
        return FilesCollector(self.bin(), self, self.rule())

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""
        if plan.collector == EMPTY_BIN:
            return ExpiredItems(self.bin())
        return FilesCollector(self.bin(), self, Rule.model_validate_json(plan.policy))

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
class FilesCollector(ObjectCollector):
    """Collects the files of a folder that are older than some days."""

    target: FilesTarget
    rule: Rule
    name = "files"

    def policy_text(self, *, current: bool = False) -> str:
        """Return the rule that the plan is made by, or the one in the policy file now."""
        return (self.target.rule() if current else self.rule).model_dump_json()

    def verdicts(self, objects: DataFrame) -> DataFrame:
        """Hold each file until it is old enough; the policy file is not an item."""
        columns = VERDICT.format(days=self.rule.days).split("|")
        found = objects.where(objects.key != POLICY).selectExpr(*columns, "etag")
        return found.withColumn("condition", condition(etag=found.etag))
