"""The embedded catalog, all of it in one class."""

from __future__ import annotations

from ebbtide.targets.lake.catalog.branches import Branches
from ebbtide.targets.lake.catalog.fence import FencedCatalog
from ebbtide.targets.lake.catalog.imports import Imports
from ebbtide.targets.lake.catalog.merge import Merges
from ebbtide.targets.lake.catalog.objects import Objects
from ebbtide.targets.lake.catalog.reclaim_batches import ReclaimBatches
from ebbtide.targets.lake.catalog.repositories import DeletedRepositories, Policies, Repositories
from ebbtide.targets.lake.catalog.snapshot import Snapshots
from ebbtide.targets.lake.catalog.uploads import Uploads


class Catalog(
    Repositories,
    DeletedRepositories,
    Branches,
    Uploads,
    Objects,
    Merges,
    Imports,
    Policies,
    Snapshots,
    FencedCatalog,
    ReclaimBatches,
):
    """
    Versioned repositories on one machine: metadata in SQLite or PostgreSQL, objects in a store.

    >>> catalog = Catalog("sqlite:////tmp/lake.db")  # doctest: +SKIP
    >>> catalog.create_repository("lake", "/data/lake")  # doctest: +SKIP
    >>> catalog.upload("lake", "main", "a/b", b"bytes")  # doctest: +SKIP
    >>> catalog.commit("lake", "main", "first")  # doctest: +SKIP

    Every operation is one transaction unless it says otherwise. Writers of one repository wait for each
    other; readers never wait. A catalog may be shared by threads, and the database by processes.
    """
