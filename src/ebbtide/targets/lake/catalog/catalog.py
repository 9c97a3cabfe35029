"""The embedded catalog, all of it in one class."""

from __future__ import annotations

from ebbtide.targets.lake.catalog.branching import Branching
from ebbtide.targets.lake.catalog.gating import Gating
from ebbtide.targets.lake.catalog.policies import Policies
from ebbtide.targets.lake.catalog.rearranging import Rearranging
from ebbtide.targets.lake.catalog.reclaiming import Reclaiming
from ebbtide.targets.lake.catalog.reconciling import Reconciling
from ebbtide.targets.lake.catalog.repositories import Repositories
from ebbtide.targets.lake.catalog.retiring import Retiring
from ebbtide.targets.lake.catalog.snapshots import Snapshots
from ebbtide.targets.lake.catalog.uploading import Uploading


class Catalog(
    Repositories,
    Retiring,
    Branching,
    Uploading,
    Rearranging,
    Reconciling,
    Policies,
    Snapshots,
    Gating,
    Reclaiming,
):
    """
    Versioned repositories on one machine: metadata in SQLite or PostgreSQL, objects in a store.

    >>> catalog = Catalog("sqlite:////tmp/lake.db")  # doctest: +SKIP
    >>> catalog.create_repository("lake", "/data/lake")  # doctest: +SKIP
    >>> catalog.upload("lake", "main", "a/b", b"bytes")  # doctest: +SKIP
    >>> catalog.commit("lake", "main", "first")  # doctest: +SKIP

    Every operation is one transaction unless it says otherwise. Writers of one repository wait for each
    other; readers wait for nobody. A catalog may be shared by threads, and the database by processes.
    """
