"""The shop: what every job on a bucket works with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ebbtide.bucket.rulebook import BucketRules
from ebbtide.bucket.sources import Source, Sourced, sourced_rules
from ebbtide.ledger.runs import Ledger
from ebbtide.rules.instant import Clock
from ebbtide.rules.s3.configuration import Configuration
from ebbtide.store.base import StoreSpec


@dataclass(frozen=True)
class BucketShop:
    """What a job works with: how the bucket is reached, its rules, the ledger, the folder it writes to."""

    spec: StoreSpec
    rules: BucketRules
    ledger: Ledger
    root: Path
    clock: Clock
    locations: Mapping[str, StoreSpec] = field(default_factory=dict)
    """Where transitions can go besides storage classes, by the names that rules give them."""

    @property
    def uid(self) -> str:
        """Name the bucket for locks and runs; two servers may have buckets of one name."""
        endpoint = self.spec.options.get("endpoint", "")
        return hashlib.sha256(f"{endpoint} {self.spec.url}".encode()).hexdigest()[:32]

    def sourced(self, source: Source, given: Configuration | None = None) -> Sourced:
        """Read the rules and the versioning of the bucket."""
        return sourced_rules(self.spec, source, self.rules, given=given, locations=self.locations)
