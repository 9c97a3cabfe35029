"""What a command works with, made when it is first needed: settings, clock, catalog, ledger, Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.config import Settings, load_settings
from ebbtide.errors import BadInput, NotFound
from ebbtide.rules.documents import format_of
from ebbtide.rules.instant import Clock, parse_instant, system_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.bucket.job import BucketShop
    from ebbtide.bucket.rulebook import BucketRules
    from ebbtide.engine.applying import ApplyOptions
    from ebbtide.engine.freezing import FreezeOptions
    from ebbtide.lake.catalog.catalog import Catalog
    from ebbtide.lake.rulebook import SweepRules
    from ebbtide.lake.workshop import Workshop
    from ebbtide.ledger.runs import Ledger
    from ebbtide.plan.breaker import BreakerLimits
    from ebbtide.registry.purge.shop import RegistryShop
    from ebbtide.registry.records.records import ImageRecords

# ruff: noqa: PLC0415 - a command that needs no Spark must not wait for its import


class State:
    """The wiring of one command."""

    def __init__(self, config: Path | None = None) -> None:
        self._config = config
        self.now_override: str | None = os.environ.get("EBBTIDE_NOW")

    @cached_property
    def settings(self) -> Settings:
        """The configuration, checked."""
        return load_settings(self._config)

    @property
    def root(self) -> Path:
        """The state root."""
        return self.settings.root

    @property
    def clock(self) -> Clock:
        """The machine's clock, unless --now or EBBTIDE_NOW says what time to take it to be."""
        if self.now_override:
            fixed = parse_instant(self.now_override)
            return lambda: fixed
        return system_clock

    @cached_property
    def ledger(self) -> Ledger:
        """The run ledger."""
        from ebbtide.ledger.runs import Ledger

        return Ledger(self.settings.database("ledger"), clock=self.clock)

    @cached_property
    def bucket_rules(self) -> BucketRules:
        """The lifecycle rules of buckets, which live beside the ledger."""
        from ebbtide.bucket.rulebook import BucketRules

        return BucketRules(self.settings.database("ledger"), clock=self.clock)

    @cached_property
    def image_records(self) -> ImageRecords:
        """What is kept of registries, beside the ledger: policies, marks, the log, roles."""
        from ebbtide.registry.records.records import ImageRecords

        return ImageRecords(self.settings.database("ledger"), clock=self.clock)

    @cached_property
    def catalog(self) -> Catalog:
        """The embedded catalog, which can say what runs have deleted."""
        from ebbtide.lake.burials import RunGraveyard
        from ebbtide.lake.catalog.catalog import Catalog

        self.root.mkdir(parents=True, exist_ok=True)
        return Catalog(
            self.settings.database("catalog"),
            clock=self.clock,
            graveyard=RunGraveyard(self.root, self.ledger, self.settings.store.options()),
            store_options=self.settings.store.options(),
        )

    @property
    def shop(self) -> Workshop:
        """What a lifecycle job works with."""
        from ebbtide.lake.workshop import Workshop

        return Workshop(self.catalog, self.ledger, self.root, self.clock)

    def bucket_shop(self, bucket: str) -> BucketShop:
        """Give what a job on a bucket works with."""
        from ebbtide.bucket.job import BucketShop
        from ebbtide.bucket.names import bucket_url
        from ebbtide.store.base import StoreSpec

        spec = StoreSpec(bucket_url(bucket), self.settings.store.options())
        locations = self.settings.locations()
        return BucketShop(spec, self.bucket_rules, self.ledger, self.root, self.clock, locations)

    def registry_shop(self, target: str) -> RegistryShop:
        """Give what a job on a registry works with."""
        from ebbtide.registry.base import RegistrySpec
        from ebbtide.registry.client.address import LayoutPath, parse_address
        from ebbtide.registry.purge.shop import RegistryShop

        address = parse_address(target)
        options = {} if isinstance(address, LayoutPath) else self.settings.registry.options()
        spec = RegistrySpec(str(address), options)
        return RegistryShop(spec, self.image_records, self.ledger, self.root, self.clock)

    @contextmanager
    def spark(self, master: str | None = None) -> Iterator[SparkSession]:
        """Start Spark for the block."""
        from ebbtide.tables.session import SparkOptions, spark_session

        spark = self.settings.spark
        options = SparkOptions(
            master=master or spark.master,
            driver_memory=spark.driver_memory,
            java=spark.java,
            java_options=spark.java_options,
            shuffle_partitions=spark.shuffle_partitions,
            conf=spark.conf,
        )
        self.root.mkdir(parents=True, exist_ok=True)
        with spark_session(options, cache=self.root) as session:
            yield session

    @property
    def limits(self) -> BreakerLimits:
        """The breaker's limits."""
        from ebbtide.plan.breaker import BreakerLimits

        return BreakerLimits(**self.settings.breaker.model_dump())

    @property
    def freeze_options(self) -> FreezeOptions:
        """How plans are cut."""
        from ebbtide.engine.freezing import FreezeOptions

        return FreezeOptions(wave_size=self.settings.deletes.wave_size, limits=self.limits)

    def apply_options(self, *, override_breaker: bool) -> ApplyOptions:
        """How plans are applied."""
        from ebbtide.engine.applying import ApplyOptions
        from ebbtide.engine.deleting import DeleteOptions

        deletes = self.settings.deletes
        return ApplyOptions(
            limits=self.limits,
            override_breaker=override_breaker,
            max_plan_age=timedelta(days=self.settings.plans.max_age_days),
            deletes=DeleteOptions(deletes.rate_per_prefix, deletes.page, deletes.tasks),
        )

    def sweep_rules(self, *, branch: str | None, clean: bool) -> SweepRules:
        """How uncommitted garbage is looked for."""
        from ebbtide.lake.rulebook import SweepRules

        settings = self.settings.uncommitted
        return SweepRules(timedelta(hours=settings.grace_hours), branch, clean, settings.clean_every)

    def run_id(self, plan: str) -> int:
        """Read a PLAN argument: a run's number, `latest`, or the folder of a plan."""
        if plan == "latest":
            runs = [run.run_id for run in self.ledger.runs() if run.plan_hash]
            if not runs:
                raise NotFound("there is no plan yet", fix="make one with 'ebb plan lake:REPO'")
            return runs[-1]
        if plan.isdigit():
            return int(plan)
        folder = Path(plan)
        if folder.is_dir():
            from ebbtide.engine.layout import RunFolder

            manifest = RunFolder(folder).read_manifest()
            if folder.absolute().parent != (self.root / "runs").absolute():
                raise BadInput(
                    f"{plan} is not under this state root", fix="go to the folder that made the plan"
                )
            return manifest.run_id
        raise BadInput(f"{plan!r} names no plan", fix="give a run's number (see 'ebb runs') or 'latest'")


def lake_target(target: str) -> str:
    """Read a TARGET argument: `lake:REPO`."""
    kind, _, name = target.partition(":")
    if kind != "lake" or not name:
        raise BadInput(f"{target!r} is no target", fix="write lake:REPO, s3://BUCKET or oci://HOST")
    return name


def is_bucket(target: str) -> bool:
    """Tell whether a TARGET argument means a bucket."""
    return target.startswith("s3://")


def is_registry(target: str) -> bool:
    """Tell whether a TARGET argument means a registry or a folder of image layouts."""
    return target.startswith(("oci://", "oci-layout:"))


def instant(text: str | None, clock: Clock) -> datetime:
    """Read a --now option; without one it is now."""
    return parse_instant(text) if text else clock()


def read_rules(file: Path) -> tuple[str, str]:
    """Read a file with rules: its text, and the format that its name tells."""
    fmt = format_of(file.name)
    try:
        return file.read_text(encoding="utf-8"), fmt
    except (OSError, UnicodeDecodeError) as broken:
        raise BadInput(f"{file} cannot be read ({broken})", fix="check the path") from None
