"""A bucket as a target."""

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
from ebbtide.targets.s3.explanation import explained
from ebbtide.targets.s3.kind import check_inventory
from ebbtide.targets.s3.rules_file import read_rules_file
from ebbtide.targets.s3.shop import BucketShop
from ebbtide.targets.s3.sources import Source, Sourced
from ebbtide.targets.target import Options


@dataclass(frozen=True)
class BucketTarget:
    """A bucket with its collectors: what its rules ask for, and its bin."""

    shop: BucketShop
    settings: Settings | None = None
    """The configuration; None where only stored plans are applied."""

    @property
    def context(self) -> Context:
        """The state that runs on it work with."""
        return self.shop.context

    @property
    def identity(self) -> Identity:
        """Which bucket it is."""
        return self.shop.identity

    def rules(self, options: Options) -> Sourced:
        """Read the rules that are asked for: those in a file, Ebbtide's own, or the bucket's."""
        source, file = options.get("rules_from"), options.get("rules")
        if file is not None and source not in (None, Source.FILE):
            raise BadInput("--rules and --rules-from are given", fix="leave one of them out")
        if file is None and source == Source.FILE:
            raise BadInput("--rules-from file wants a file", fix="add --rules FILE")
        if file is None:
            return self.shop.sourced(Source(source or Source.STORED))
        return self.shop.sourced(Source.FILE, read_rules_file(file, self.shop.locations))

    def collector(self, options: Options, now: datetime) -> Collector:  # noqa: ARG002 (rules have no time)
        """Return the collector of what the rules ask for."""
        rules, inventory = self.rules(options), options.get("inventory")
        if inventory is not None:
            check_inventory(inventory)
        return BucketCollector(self.shop, rules, inventory)

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Explain a key."""
        return explained(self.shop, self.rules(options), item, now)

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""
        if plan.collector == EMPTY_BIN:
            return ExpiredItems(self.bin())
        return BucketCollector.of_plan(self.shop, plan)

    def bin(self) -> BucketBin:
        """Open the bucket's bin."""
        return BucketBin(self.shop)
