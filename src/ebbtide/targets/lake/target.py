"""A repository as a target, deleted or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from ebbtide.config import Settings
from ebbtide.core.decision import DELETED_REPOSITORY, EMPTY_BIN
from ebbtide.core.display import Explanation
from ebbtide.core.errors import BadInput, NotFound
from ebbtide.core.instant import parse_instant
from ebbtide.core.manifest import Manifest
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.collector import Collector, Context, Identity
from ebbtide.targets.lake.bin import LakeBin
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.repository import CatalogRepository, DeletedCatalogRepository
from ebbtide.targets.repository.collector import RepositoryCollector, identity_of
from ebbtide.targets.repository.deleted_repository import DeletedRepositoryCollector
from ebbtide.targets.repository.explanation import explained, explained_deleted
from ebbtide.targets.repository.model import DeletedRepository
from ebbtide.targets.repository.rules import SweepRules, stored_rules
from ebbtide.targets.target import Options


@dataclass(frozen=True)
class LakeTarget:
    """A repository with its collectors: by its rules, of its bin, and of what is left after its deletion."""

    lake: LakeContext
    repository: str
    settings: Settings | None = None
    """The configuration; None where only stored plans are applied."""

    @property
    def context(self) -> Context:
        """The state that runs on it work with."""
        return self.lake.context

    @property
    def identity(self) -> Identity:
        """Which repository it is."""
        return identity_of(self._repository)

    @property
    def _repository(self) -> CatalogRepository:
        return CatalogRepository(self.lake.catalog, self.repository)

    def collector(self, options: Options, now: datetime) -> Collector:  # noqa: ARG002 (rules have no time)
        """Return the collector of what is asked for: by default, what the lifecycle policy lets go."""
        _check(options)
        sweep = self._sweep_rules(options)
        if options.get("deleted"):
            gone = self.lake.catalog.deleted_repository(self.repository)
            left = DeletedCatalogRepository(self.lake.catalog, gone)
            return DeletedRepositoryCollector(self.context, left, sweep.grace)
        repository = self._repository
        repository.info()
        every = bool(options.get("all"))
        rules = stored_rules(
            repository,
            lifecycle=every or not (options.get("uncommitted") or options.get("retention")),
            uncommitted=sweep if options.get("uncommitted") or every else None,
            retention=bool(options.get("retention")) or every,
        )
        # The plan checks this again; here it is refused before Spark starts.
        repository.check_owner()
        repository.check_history()
        return RepositoryCollector(self.context, repository, rules, bool(options.get("full")))

    def _sweep_rules(self, options: Options) -> SweepRules:
        if self.settings is None:
            return SweepRules()
        said = self.settings.uncommitted
        grace, clean = timedelta(hours=said.grace_hours), bool(options.get("clean"))
        return SweepRules(grace, options.get("branch"), clean, said.clean_every)

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Explain a key or an address."""
        grace = self._sweep_rules(options).grace
        try:
            self._repository.info()
        except NotFound:
            return explained_deleted(self._deleted(), item, grace, now)
        return explained(self.context, self._repository, item, grace, now)

    def _deleted(self) -> DeletedCatalogRepository:
        """Find the deleted repository of this name; NotFound says that there never was a repository."""
        catalog = self.lake.catalog
        if not any(gone.name == self.repository for gone in catalog.deleted_repositories()):
            raise NotFound(
                f"there is no repository {self.repository!r}", fix="create it, or list all of them"
            )
        return DeletedCatalogRepository(catalog, catalog.deleted_repository(self.repository))

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""
        if plan.collector == DELETED_REPOSITORY:
            deleted = parse_instant(json.loads(plan.policy)["deleted"])
            gone = DeletedRepository(self.repository, plan.target_uid, plan.namespace, deleted)
            left = DeletedCatalogRepository(self.lake.catalog, gone)
            return DeletedRepositoryCollector.of_plan(self.context, left, plan)
        if plan.collector == EMPTY_BIN:
            return ExpiredItems(self.bin())
        return RepositoryCollector.of_plan(self.context, self._repository, plan)

    def bin(self) -> LakeBin:
        """Open the repository's bin."""
        return LakeBin(self.lake, self.repository)


def _check(options: Options) -> None:
    """Refuse options that contradict each other."""
    if options.get("deleted") and set(options) != {"deleted"}:
        raise BadInput(
            "--deleted goes with no other choice of what is looked for",
            why="a deleted repository is always read whole",
            fix="leave out --uncommitted, --retention, --all, --branch, --clean and --full",
        )
    sweeps = options.get("uncommitted") or options.get("all")
    if ("branch" in options or options.get("clean")) and not sweeps:
        raise BadInput("--branch and --clean need --uncommitted", fix="add --uncommitted")
    if "branch" in options and options.get("all"):
        raise BadInput(
            "--all is about the whole repository, --branch about one",
            fix="leave one of them out, or use --uncommitted --branch",
        )
