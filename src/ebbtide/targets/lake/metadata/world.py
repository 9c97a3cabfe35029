"""
A world: all that a decision about a repository depends on.

A repository is one world. Simulations and policy tests evaluate hundreds of worlds in one Spark job, each
under its number, so the pipeline below is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ebbtide.core.decision import HoldReason
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.lake.catalog.model import Commit, Snapshot, StagedRange
from ebbtide.targets.lake.catalog.ranges import COMMITTED, STAGED
from ebbtide.targets.lake.metadata.reference_files import ReferenceFiles
from ebbtide.targets.lake.metadata.terms import Term, commit_terms, staging_term
from ebbtide.targets.lake.metadata.ties import Tie, commit_ties
from ebbtide.targets.repository.policy import LakePolicy, Referrer
from ebbtide.targets.repository.retention_rules import RetentionRules

ONLY_WORLD = 0
"""The number of the world in a run over one repository."""


@dataclass(frozen=True)
class World:
    """A repository's references and the policy and time by which they are judged."""

    store: StoreSpec
    namespace: str
    """What lies outside is never deleted."""
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
    retention: RetentionRules | None = None
    """For how long commits keep what they reach; None if nobody asks."""

    @property
    def files(self) -> ReferenceFiles:
        """The world's ranges, decoded."""
        return ReferenceFiles(self.reference_folder, self.store, self.namespace)


def world_of(
    snapshot: Snapshot,
    store: StoreSpec,
    policy: LakePolicy,
    now: datetime,
    retention: RetentionRules | None = None,
) -> World:
    """See a repository's snapshot as a world that is read from the store itself."""
    return World(
        store=store,
        namespace=snapshot.repository.namespace,
        policy=policy,
        now=now,
        commits=snapshot.commits,
        branches=snapshot.branches,
        tags=snapshot.tags,
        staged=snapshot.staged,
        default_branch=snapshot.repository.default_branch,
        retention=retention,
    )


@dataclass(frozen=True)
class Metarange:
    """A list of ranges to read, with everyone who reaches it."""

    folder: str
    id: str
    ties: tuple[Tie, ...]
    term: Term | None
    """Until when the last of them keeps it, where retention is asked for."""
    lapses: bool
    """At least one of them will let go of it."""


def metaranges_of(world: World) -> list[Metarange]:
    """Name every metarange that holds references: one for each distinct content of commits and of staging."""
    found: dict[tuple[str, str], tuple[set[Tie], list[Term]]] = {}
    terms = _terms(world)
    reaching = commit_ties(world.commits, world.branches, world.tags, world.policy, world.default_branch)
    for commit_id, reached in reaching.items():
        ties, until = found.setdefault((COMMITTED, world.commits[commit_id].metarange_id), (set(), []))
        ties.update(reached)
        until += [terms[commit_id]] if world.retention else []
    for staged in world.staged:
        ties, until = found.setdefault((STAGED, staged.metarange_id), (set(), []))
        days = world.policy.class_of(Referrer.STAGING, staged.branch)
        ties.add(Tie(Referrer.STAGING, staged.branch, days))
        until += [staging_term(staged.branch)] if world.retention else []
    return [
        Metarange(
            folder,
            content_id,
            tuple(ties),
            max(until, key=latest_order, default=None),
            any(term.lapses for term in until),
        )
        for (folder, content_id), (ties, until) in found.items()
    ]


def _terms(world: World) -> dict[str, Term]:
    if world.retention is None:
        return {}
    return commit_terms(world.commits, world.branches, world.tags, world.retention)


def latest_order(term: Term) -> tuple[datetime, bool, str]:
    """Order terms by their end; of those without, a head's comes last, for nothing is needed more."""
    return (term.until, term.why == HoldReason.HEAD, term.keeper)
