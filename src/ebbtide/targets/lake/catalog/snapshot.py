"""Snapshots: everything that can reach an object, read at one moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection

from ebbtide.targets.lake.catalog import history, refs, staging
from ebbtide.targets.lake.catalog.base import CatalogBase
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.range_writer import RangeWriter
from ebbtide.targets.lake.catalog.ranges import write_metarange
from ebbtide.targets.repository.model import STAGED, Snapshot, StagedRange

_MOST_ESTIMATED = 64
"""So many metaranges are read for an estimate: a small repository has few commits."""
_SIDE_BY_SIDE = 16


class Snapshots(CatalogBase):
    """Snapshots and "GC commits", each from one read transaction, however long the writing takes."""

    def prepare_uncommitted(self, repo: str, branch: str | None = None) -> tuple[StagedRange, ...]:
        """
        Write what is staged, on a branch or on all, as ranges and metaranges under ``_lakefs/staged``.

        Deletions are left out. Branches with nothing staged give nothing. Entries that were overwritten
        while a commit was reading them are included, because that commit still needs them.
        """
        with self._reading(repo) as (connection, found):
            if branch is None:
                return self._prepare(connection, found)
            target = refs.branch(connection, found, branch)
            return self._prepare(connection, found, [(target.id, target.name)])

    def snapshot(self, repo: str) -> Snapshot:
        """Read heads, tags, all commits (dangling ones too), staging and sequence in one transaction."""
        # The clock is read first: ages are counted up to taken_at, and must not be too high.
        taken_at = self._clock()
        with self._reading(repo) as (connection, found):
            return Snapshot(
                repository=found,
                sequence=refs.sequence(connection, found),
                taken_at=taken_at,
                branches=refs.heads(connection, found),
                tags=refs.tags(connection, found),
                commits=history.all_commits(connection, found),
                staged=self._prepare(connection, found),
                branch_ids=refs.branch_ids(connection, found),
            )

    def entry_estimate(self, repo: str) -> int | None:
        """Count the entries of all ranges, each once, and staged ones; None if there are many commits."""
        with self._reading(repo) as (connection, found):
            metaranges = history.metarange_ids(connection, found, _MOST_ESTIMATED + 1)
            staged = staging.count_all(connection, found.uid)
        if len(metaranges) > _MOST_ESTIMATED:
            return None
        content = self._content(found.namespace)
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            listed = pool.map(content.ranges, metaranges)
            return staged + sum({info.id: info.count for infos in listed for info in infos}.values())

    def _prepare(
        self,
        connection: Connection,
        repo: Repository,
        branches: list[tuple[str, str]] | None = None,
    ) -> tuple[StagedRange, ...]:
        """Write what is staged on these branches, or on all."""
        if branches is None:
            branches = staging.staged_branches(connection, repo.uid)
        prepared = [self._prepare_branch(connection, repo, *branch) for branch in branches]
        return tuple(staged for staged in prepared if staged.count)

    def _prepare_branch(
        self, connection: Connection, repo: Repository, branch_id: str, name: str
    ) -> StagedRange:
        """Write what is staged on one branch, page by page."""
        store = self._content(repo.namespace).store
        writer = RangeWriter(store, STAGED, repo.range_keys)
        for page in staging.references(connection, branch_id):
            writer.add(page)
        ranges = writer.finish()
        metarange_id = write_metarange(store, STAGED, ranges)
        return StagedRange(name, metarange_id, sum(found.count for found in ranges), branch_id)
