"""The shop: what every job on a bucket works with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ebbtide.core.instant import Clock
from ebbtide.engine.collector import Context, Identity
from ebbtide.state.runs import Ledger
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.rulebook import BucketRules
from ebbtide.targets.s3.rules.configuration import Configuration
from ebbtide.targets.s3.sources import Source, Sourced, sourced_rules


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
    lakes: Mapping[str, str] = field(default_factory=dict)
    """The namespaces of the catalog's repositories by their names, wherever they are."""

    @property
    def context(self) -> Context:
        """The state that runs on the bucket work with."""
        return Context(self.root, self.ledger, self.clock)

    @property
    def identity(self) -> Identity:
        """Which bucket it is."""
        return Identity(self.spec.url, self.uid, self.spec.url)

    @property
    def uid(self) -> str:
        """Name the bucket for locks and runs; two servers may have buckets of one name."""
        endpoint = self.spec.options.get("endpoint", "")
        return hashlib.sha256(f"{endpoint} {self.spec.url}".encode()).hexdigest()[:32]

    def sourced(self, source: Source, given: Configuration | None = None) -> Sourced:
        """Read the rules and the versioning of the bucket."""
        return sourced_rules(
            self.spec, source, self.rules, given=given, locations=self.locations, lakes=self.lakes
        )
