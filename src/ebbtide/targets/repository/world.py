"""
A world: everything that a decision about a repository depends on.

A repository is one world. Simulations and policy tests evaluate hundreds of worlds in one Spark job, each
under its number, and the pipeline is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import types as t

from ebbtide.core.decision import HoldReason
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.repository.model import COMMITTED, STAGED, Commit, Snapshot, StagedRange
from ebbtide.targets.repository.policy import LakePolicy, ReferrerKind
from ebbtide.targets.repository.protocol import RangeDecoder, VersionedRepository
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.referrers import Referrer, commit_referrers
from ebbtide.targets.repository.retention_rules import RetentionRules
from ebbtide.targets.repository.terms import Term, commit_terms, staging_term

ONLY_WORLD = 0
"""The number of the world in a run over one repository."""
WORLD_VERDICTS = VERDICTS.adding(world=t.IntegerType())
"""Verdicts on several worlds at once; a run has one world, and writes verdicts without its number."""


@dataclass(frozen=True)
class World:
    """The references of a repository, and the policy and time by which they are evaluated."""

    store: StoreSpec
    decoder: RangeDecoder
    namespace: str
    """Objects outside of it are never deleted."""
    policy: LakePolicy
    now: datetime
    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    staged: tuple[StagedRange, ...]
    default_branch: str = ""
    """Of the branches that rules treat alike this one is named, because it outlives the others."""
    reference_folder: Path | None = None
    """The folder of the range cache; None decodes every range."""
    retention: RetentionRules | None = None
    """For how long commits keep what they reach; None if retention is not evaluated."""

    @property
    def files(self) -> RangeCache:
        """The decoded ranges of the world."""
        return RangeCache(self.reference_folder, self.decoder, self.namespace)


def world_of(
    repository: VersionedRepository,
    snapshot: Snapshot,
    policy: LakePolicy,
    now: datetime,
    retention: RetentionRules | None = None,
) -> World:
    """Return the world of a repository at a snapshot; nothing is cached."""
    return World(
        store=repository.store_spec(),
        decoder=repository.decoder,
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
    """A list of ranges to read, and the referrers that reach it."""

    folder: str
    id: str
    referrers: tuple[Referrer, ...]
    term: Term | None
    """The longest of their terms, where retention is evaluated."""
    lapses: bool
    """At least one of their terms ends."""


def metaranges_of(world: World) -> list[Metarange]:
    """Return every metarange with references: one per distinct content of commits and of staged entries."""
    found: dict[tuple[str, str], tuple[set[Referrer], list[Term]]] = {}
    terms = _terms(world)
    reaching = commit_referrers(world.commits, world.branches, world.tags, world.policy, world.default_branch)
    for commit_id, reached in reaching.items():
        referrers, until = found.setdefault((COMMITTED, world.commits[commit_id].metarange_id), (set(), []))
        referrers.update(reached)
        until += [terms[commit_id]] if world.retention else []
    for staged in world.staged:
        referrers, until = found.setdefault((STAGED, staged.metarange_id), (set(), []))
        days = world.policy.class_of(ReferrerKind.STAGING, staged.branch)
        referrers.add(Referrer(ReferrerKind.STAGING, staged.branch, days))
        until += [staging_term(staged.branch)] if world.retention else []
    return [
        Metarange(
            folder,
            content_id,
            tuple(referrers),
            max(until, key=latest_order, default=None),
            any(term.lapses for term in until),
        )
        for (folder, content_id), (referrers, until) in found.items()
    ]


def _terms(world: World) -> dict[str, Term]:
    if world.retention is None:
        return {}
    return commit_terms(world.commits, world.branches, world.tags, world.retention)


def latest_order(term: Term) -> tuple[datetime, bool, str]:
    """Return the order of terms by their end; of those that never end, that of a head is the last."""
    return (term.until, term.why == HoldReason.HEAD, term.keeper)
