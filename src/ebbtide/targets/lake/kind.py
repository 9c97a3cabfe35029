"""The kind of target that repositories of the embedded catalog are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.core.decision import EMPTY_BIN
from ebbtide.core.display import OBJECTS, OBJECTS_WITH_BIN, Words
from ebbtide.core.errors import BadInput
from ebbtide.core.format import count, plural
from ebbtide.core.manifest import Manifest
from ebbtide.targets.target import Option, PolicySuite, Simulation, TargetKind, Workspace

if TYPE_CHECKING:
    from ebbtide.targets.lake.catalog.catalog import Catalog
    from ebbtide.targets.lake.context import LakeContext
    from ebbtide.targets.lake.target import LakeTarget

# ruff: noqa: PLC0415 - every command imports this, and few need the catalog

SCHEME = "lake:"
_LAKE = replace(OBJECTS, has_branches=True)
_LAKE_WITH_BIN = replace(OBJECTS_WITH_BIN, has_branches=True)


class LakeKind(TargetKind):
    """Repositories of the embedded catalog."""

    usage = "lake:REPO"
    plural = "lakes"
    planned_by = "its lifecycle policy"
    world = "lake"
    options = (
        Option(("--uncommitted",), "Find what is stored and nothing references."),
        Option(("--retention",), "Find what only commits need that are kept no longer."),
        Option(("--all",), "Lifecycle, uncommitted and retention in one plan."),
        Option(("--branch", "-b"), "Sweep this branch's path alone (--uncommitted).", is_flag=False),
        Option(("--clean",), "List everything, not only what is new (--uncommitted)."),
        Option(("--deleted",), "Collect all that a deleted repository left in its namespace."),
        Option(("--full",), "Read everything again, not only what is new since the last plan."),
    )

    def url(self, text: str) -> str:
        """Check that a repository is named."""
        if not text.removeprefix(SCHEME):
            raise BadInput(f"unknown target {text!r}", fix="write lake:REPO")
        return text

    def open(self, url: str, workspace: Workspace) -> LakeTarget:
        """Open a repository."""
        from ebbtide.targets.lake.target import LakeTarget

        return LakeTarget(lake_context(workspace), url.removeprefix(SCHEME), workspace.settings)

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:
        """Return the namespaces of all repositories, deleted ones too."""
        from ebbtide.targets.lake.catalog.catalog import Catalog

        url = workspace.settings.database("catalog")
        if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
            return {}
        # Not the shared catalog: its graveyard needs Spark's library.
        catalog = Catalog(url, rehearsal=workspace.is_rehearsal)
        try:
            gone = {f"{one.name} (deleted)": one.namespace for one in catalog.deleted_repositories()}
            return gone | {one.name: one.namespace for one in catalog.repositories()}
        finally:
            catalog.close()

    def words(self, plan: Manifest) -> Words:
        """Return the words for a plan."""
        return _LAKE_WITH_BIN if plan.recycling and plan.collector != EMPTY_BIN else _LAKE

    def described(self, plan: Manifest) -> list[str]:
        """Return how much of the repository was read, and why everything was listed, if it was."""
        read, lines = plan.snapshot, []
        if "ranges_decoded" in read:
            known = read["ranges"] - read["ranges_decoded"]
            ranges = plural(read["ranges"], "range")
            lines.append(
                f"read {count(read['ranges_decoded'])} of {ranges}; {count(known)} were known already"
            )
        if "swept_branches" in read:
            branches = plural(read["swept_branches"], "branch", "branches")
            lines.append(f"listed {plural(read['listed_partitions'], 'partition')} of {branches}")
            lines += [f"clean run: {why}" for why in read["clean_because"]]
        if "own_objects" in read:
            listed, own = plural(read["listed_objects"], "object"), count(read["own_objects"])
            lines.append(f"listed {listed}; {own} are of the repository, which was deleted {read['deleted']}")
        return lines

    def simulation(self) -> Simulation:
        """Return the simulation of lake worlds."""
        from ebbtide.targets.repository.policy_suite import LakeSimulation

        return LakeSimulation()

    def policy_suite(self) -> PolicySuite:
        """Return the tests of policies."""
        from ebbtide.targets.repository.policy_suite import LakeSuite

        return LakeSuite()


KIND = LakeKind()


def _store_options(workspace: Workspace) -> dict[str, str]:
    """Return how stores are reached: in a rehearsal, only those on this machine."""
    from ebbtide.storage.network import LOCAL_ONLY

    local = {LOCAL_ONLY: "yes"} if workspace.is_rehearsal else {}
    return workspace.settings.store.options() | local


def shared_catalog(workspace: Workspace) -> Catalog:
    """Return the embedded catalog, which can say what runs have deleted."""

    def make() -> Catalog:
        from ebbtide.targets.lake.catalog.catalog import Catalog
        from ebbtide.targets.lake.removed_objects import RemovedObjectLookup

        workspace.root.mkdir(parents=True, exist_ok=True)
        options = _store_options(workspace)
        return Catalog(
            workspace.settings.database("catalog"),
            clock=workspace.clock,
            removed_items=RemovedObjectLookup(workspace.root, workspace.context.ledger, options),
            store_options=options,
            rehearsal=workspace.is_rehearsal,
        )

    return workspace.shared("catalog", make)


def lake_context(workspace: Workspace) -> LakeContext:
    """Return what runs on a repository work with."""
    from ebbtide.targets.lake.context import LakeContext

    catalog, context = shared_catalog(workspace), workspace.context
    return LakeContext(catalog, context.ledger, context.root, context.clock)
