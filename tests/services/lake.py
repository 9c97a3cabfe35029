"""A tiny lake with everything around it: catalog, ledger, state root, and a clock that tests set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.services.runs import apply_lake, plan_lake

from ebbtide.core.decision import Decision
from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied, ApplyOptions
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step, outcome_folders, run_folder
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.engine.tables.contracts import OUTCOMES
from ebbtide.state.runs import Ledger, RunState
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.removed_objects import RemovedObjectLookup
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.rules import RepositoryRules, SweepRules, stored_rules

REPOSITORY = "lake"
FIRST_DAY = datetime(2026, 1, 1, 12, tzinfo=UTC)
RAW_30_DAYS = {"old-raw": {"prefix": "raw/", "days": 30}}


class SettableClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: datetime = FIRST_DAY) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Say what time it is."""
        return self.now


@dataclass(frozen=True)
class Lake:
    """A repository and all that plans and applies on it; `spark` is shared, the rest is the test's own."""

    spark: SparkSession
    shop: LakeContext
    clock: SettableClock

    @property
    def catalog(self) -> Catalog:
        """The catalog that holds the repository."""
        return self.shop.catalog

    @property
    def repository(self) -> CatalogRepository:
        """The repository, as collectors see it."""
        return CatalogRepository(self.catalog, REPOSITORY)

    @property
    def ledger(self) -> Ledger:
        """The ledger of runs."""
        return self.shop.ledger

    @property
    def store(self) -> Store:
        """The store below the repository's namespace."""
        return self.catalog.store(REPOSITORY)

    def day(self, number: float) -> datetime:
        """Let it be noon of a day, counted from the first; give that moment."""
        self.clock.now = FIRST_DAY + timedelta(days=number)
        return self.clock.now

    def upload(self, *keys: str, branch: str = "main") -> dict[str, str]:
        """Upload an object for each key, whose content is the key, and give their addresses."""
        found = {key: self.catalog.upload(REPOSITORY, branch, key, key.encode()).address for key in keys}
        self.stamp(*found.values())
        return found

    def write(self, key: str, data: bytes) -> None:
        """Write an object past the catalog, at the clock's time."""
        self.store.write(key, data)
        self.stamp(key)

    def stamp(self, *keys: str) -> None:
        """Let files have been written at the clock's time: a disk has a clock of its own."""
        root, moment = self.store.spec.url, self.clock().timestamp()
        for key in keys if root.startswith("file://") else ():
            os.utime(Path(root.removeprefix("file://")) / key, (moment, moment))

    def commit(self, branch: str = "main") -> str:
        """Commit what is staged and give the commit's id."""
        return self.catalog.commit(REPOSITORY, branch, "a commit").id

    def policy(self, rules: Mapping[str, Any]) -> None:
        """Make this the repository's policy."""
        self.catalog.set_policy(REPOSITORY, json.dumps(rules), "json")

    def plan(
        self,
        *,
        batch_size: int = 50_000,
        now: datetime | None = None,
        rules: RepositoryRules | None = None,
        full: bool = False,
        on_step: OnStep = no_step,
    ) -> Manifest:
        """Plan a run at the clock's time, or at another."""
        return plan_lake(
            self.spark,
            self.shop,
            REPOSITORY,
            now=now or self.clock(),
            options=PlanOptions(batch_size=batch_size),
            rules=rules,
            full=full,
            on_step=on_step,
        )

    def plan_uncommitted(self, *, branch: str | None = None, clean: bool = False, **how: Any) -> Manifest:
        """Plan the deletion of what nothing references."""
        return self.plan(rules=RepositoryRules(uncommitted=SweepRules(branch=branch, clean=clean)), **how)

    def retain(self, rules: Mapping[str, Any]) -> None:
        """Make these the repository's retention rules."""
        self.catalog.set_retention(REPOSITORY, json.dumps(rules), "json")

    def plan_retention(self, **how: Any) -> Manifest:
        """Plan the deletion of what only commits need that are kept no longer."""
        return self.plan(rules=stored_rules(self.repository, retention=True), **how)

    def apply(self, manifest: Manifest, *, on_step: OnStep = no_step, **options: Any) -> Applied:
        """Apply a plan."""
        return apply_lake(self.spark, self.shop, manifest, options=ApplyOptions(**options), on_step=on_step)

    def folder(self, manifest: Manifest) -> RunFolder:
        """Give the folder of a run."""
        return self.folder_of(manifest.run_id)

    def folder_of(self, run_id: int) -> RunFolder:
        """Give the folder of the run with this number."""
        return run_folder(self.shop.root, run_id)

    def state(self, manifest: Manifest) -> RunState:
        """Say in which state a run is."""
        return self.ledger.run(manifest.run_id).state

    def due(self, manifest: Manifest) -> set[str]:
        """Give the addresses that a plan would delete."""
        rows = stream_decisions(self.folder(manifest), Decision.DUE)
        return {row["address"] for row in rows}

    def stored(self) -> set[str]:
        """List the data objects that are really there."""
        return {key for key in self.listing() if not key.startswith("_lakefs/")}

    def listing(self, prefix: str = "") -> list[str]:
        """List all keys of the store, metadata too."""
        return [key for batch in self.store.list(prefix) for key in batch["key"].to_pylist()]

    def outcomes(self, manifest: Manifest) -> dict[str, tuple[str, str]]:
        """Give each item's last outcome and reason, by address."""
        folders = outcome_folders(self.shop.root, self.ledger, manifest.run_id)
        rows = OUTCOMES.read(self.spark, *folders).orderBy("attempt").toArrow().to_pylist()
        return {row["address"]: (row["outcome"], row["reason"]) for row in rows}

    def close(self) -> None:
        """Let go of the databases."""
        self.catalog.close()
        self.ledger.close()


def open_lake(
    spark: SparkSession, folder: Path, *, clock: SettableClock | None = None, **settings: Any
) -> Lake:
    """Open what lives in a folder: databases, state root; `settings` are the catalog's."""
    clock = clock or SettableClock()
    root = folder / "state"
    ledger = Ledger(f"sqlite:///{folder}/ledger.db", clock=clock)
    catalog = Catalog(
        f"sqlite:///{folder}/catalog.db",
        clock=clock,
        removed_items=RemovedObjectLookup(root, ledger),
        **({"range_keys": 4} | settings),
    )
    return Lake(spark, LakeContext(catalog, ledger, root, clock), clock)


def make_lake(spark: SparkSession, folder: Path, namespace: str | None = None, **settings: Any) -> Lake:
    """Make an empty repository in a fresh folder, with its objects there too unless it is said where."""
    lake = open_lake(spark, folder, **settings)
    lake.catalog.create_repository(REPOSITORY, namespace or str(folder / "objects"))
    return lake


def plan_with_many_batches(lake: Lake) -> Manifest:
    """Add a dozen old objects and plan them in as many batches, so that not all fall into one by chance."""
    now = lake.clock()
    lake.day(0)
    lake.upload(*(f"raw/more-{number}" for number in range(12)))
    lake.commit()
    lake.clock.now = now
    return lake.plan(batch_size=1)


def sample_lake(spark: SparkSession, folder: Path) -> Lake:
    """
    Make a lake in which, on day 40, five of nine objects are due.

    On day 0: raw/1 to raw/6 and keep/1, keep/2, of which keep/shared is a second name of raw/5.
    On day 35: raw/6 again, with new content. The policy gives raw/ 30 days; keep/shared holds raw/5.
    """
    made = make_lake(spark, folder)
    made.policy(RAW_30_DAYS)
    made.upload(*(f"raw/{number}" for number in range(1, 7)), "keep/1", "keep/2")
    made.catalog.copy(REPOSITORY, "main", "raw/5", "keep/shared")
    made.commit()
    made.day(35)
    made.upload("raw/6")
    made.commit()
    made.day(40)
    return made


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Give a lake of this test in which, on day 40, five of nine objects are due."""
    return sample_lake(spark, tmp_path)
