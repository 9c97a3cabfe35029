"""Recovery of a repository whose catalog was restored from an older copy."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.lost_history import Recovered
from ebbtide.targets.lake.catalog.partitions import BRANCHES, branch_path, repository_path
from ebbtide.targets.repository.sweeps import BadState, read_state, state_key


def recover(catalog: Catalog, repo: str, by: str, branch: str | None = None) -> Recovered:
    """Import the commits that the namespace has and the catalog lacks, and accept the rest as lost."""
    made = catalog.recover_history(repo, by, branch)
    _drop_lost_states(catalog, repo)
    return made


def forget(catalog: Catalog, repo: str, metaranges: Collection[str] | None, by: str) -> tuple[str, ...]:
    """Declare some metaranges that the catalog lacks, or all of them, to be garbage."""
    forgotten = catalog.forget_history(repo, metaranges, by)
    if not catalog.unknown_metaranges(repo):
        _drop_lost_states(catalog, repo)
    return forgotten


def _drop_lost_states(catalog: Catalog, repo: str) -> None:
    """Remove the states of sweeps that had seen lost commits, so that the next sweep is a clean run."""
    repository, store = catalog.repository(repo), catalog.store(repo)
    known = catalog.snapshot(repo).commits
    for folder in list(store.children(repository_path(repository.uid) + BRANCHES)):
        path = branch_path(repository.uid, folder.rstrip("/"))
        with suppress(BadState):
            if read_state(store, path, folder.rstrip("/")).newest_commit not in known:
                store.delete([DeleteRequest(state_key(path))])
