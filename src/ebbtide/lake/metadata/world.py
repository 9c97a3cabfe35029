"""
A world: all that a lifecycle decision depends on.

A repository is one world. Simulations and policy tests evaluate hundreds of worlds in one Spark job, each
under its number, so the pipeline below is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ebbtide.lake.catalog.model import Commit, StagedRange
from ebbtide.lake.catalog.ranges import COMMITTED, STAGED
from ebbtide.lake.metadata.reference_files import ReferenceFiles
from ebbtide.lake.metadata.ties import Tie, commit_ties
from ebbtide.rules.lake_policy import LakePolicy, Referrer
from ebbtide.store.base import StoreSpec


@dataclass(frozen=True)
class World:
    """A repository's references and the policy and time by which they are judged."""

    store: StoreSpec
    namespace: str | None
    """What lies outside is never deleted; None (a simulated world) has no outside."""
    policy: LakePolicy
    now: datetime
    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    staged: tuple[StagedRange, ...]
    default_branch: str = ""
    """Of the branches that rules treat alike, the one to name: it outlives the others."""
    reference_folder: Path | None = None
    """Where decoded ranges are kept; None reads the store itself."""

    @property
    def files(self) -> ReferenceFiles:
        """The world's ranges, decoded."""
        return ReferenceFiles(self.reference_folder, self.store, self.namespace)


@dataclass(frozen=True)
class Metarange:
    """A list of ranges to read, with everyone who reaches it."""

    folder: str
    id: str
    ties: tuple[Tie, ...]


def metaranges_of(world: World) -> list[Metarange]:
    """Name every metarange that holds references: one for each distinct content of commits and of staging."""
    ties: dict[tuple[str, str], set[Tie]] = {}
    reaching = commit_ties(world.commits, world.branches, world.tags, world.policy, world.default_branch)
    for commit_id, found in reaching.items():
        place = (COMMITTED, world.commits[commit_id].metarange_id)
        ties.setdefault(place, set()).update(found)
    for staged in world.staged:
        days = world.policy.class_of(Referrer.STAGING, staged.branch)
        tie = Tie(Referrer.STAGING, staged.branch, days)
        ties.setdefault((STAGED, staged.metarange_id), set()).add(tie)
    return [Metarange(folder, content_id, tuple(found)) for (folder, content_id), found in ties.items()]
