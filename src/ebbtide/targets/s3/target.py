"""The bucket target: opens the collectors of a bucket, and explains its keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ebbtide.config import Settings
from ebbtide.core.decision import EMPTY_BIN
from ebbtide.core.display import Explanation
from ebbtide.core.errors import BadInput
from ebbtide.core.manifest import Manifest
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.collector import Collector, Context, Identity
from ebbtide.targets.s3.bin import BucketBin
from ebbtide.targets.s3.collector import BucketCollector
from ebbtide.targets.s3.context import BucketContext, EffectiveRules, Source
from ebbtide.targets.s3.explanation import explain
from ebbtide.targets.s3.kind import check_inventory
from ebbtide.targets.s3.rules.document import read_rules_file
from ebbtide.targets.target import Options


@dataclass(frozen=True)
class BucketTarget:
    """A bucket with two collectors: one for its lifecycle rules, one for its recycle bin."""

    bucket: BucketContext
    settings: Settings | None = None
    """The configuration; None if only stored plans are applied."""

    @property
    def context(self) -> Context:
        """The state that runs on the bucket work with."""
        return self.bucket.context

    @property
    def identity(self) -> Identity:
        """The identity of the bucket."""
        return self.bucket.identity

    def rules(self, options: Options) -> EffectiveRules:
        """Read the rules that the options name: stored, in the bucket, or in a file."""
        source, file = options.get("rules_from"), options.get("rules")
        if file is not None and source not in (None, Source.FILE):
            raise BadInput("--rules and --rules-from exclude each other", fix="leave one of them out")
        if file is None and source == Source.FILE:
            raise BadInput("--rules-from file needs a file", fix="add --rules FILE")
        if file is None:
            return self.bucket.effective_rules(Source(source or Source.STORED))
        return self.bucket.effective_rules(Source.FILE, read_rules_file(file, self.bucket.locations))

    def collector(self, options: Options, now: datetime) -> Collector:  # noqa: ARG002 (rules have no time)
        """Return the collector for the lifecycle rules."""
        rules, inventory = self.rules(options), options.get("inventory")
        if inventory is not None:
            check_inventory(inventory)
        return BucketCollector(self.bucket, rules, inventory)

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Explain a key."""
        return explain(self.bucket, self.rules(options), item, now)

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""
        if plan.collector == EMPTY_BIN:
            return ExpiredItems(self.bin())
        return BucketCollector.of_plan(self.bucket, plan)

    def bin(self) -> BucketBin:
        """Open the bucket's bin."""
        return BucketBin(self.bucket)
