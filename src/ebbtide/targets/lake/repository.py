"""The embedded catalog as a versioned repository: the adapter between the catalog and the collectors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ebbtide.engine.collector import Context
from ebbtide.engine.object_bin import StoreBin
from ebbtide.engine.restore import Restorer
from ebbtide.storage.namespace import MARKER, overlap
from ebbtide.storage.store import DeleteRequest, Store, StoreSpec, open_store
from ebbtide.targets.lake.bin import BIN_ROOT, LakeBin, lake_bin
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.lost_history import Recovered
from ebbtide.targets.lake.catalog.names import path_safe
from ebbtide.targets.lake.catalog.partitions import (
    BRANCHES,
    PARTITION_LIFE,
    branch_path,
    object_pattern,
    partition_began,
    repository_path,
)
from ebbtide.targets.lake.catalog.ranges import METARANGES, metarange_table, read_range
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.kind import SCHEME
from ebbtide.targets.repository.model import COMMITTED, DeletedRepository, RangeInfo, RepositoryInfo, Snapshot
from ebbtide.targets.repository.sweeps import BadState, read_state, state_key

_REPOSITORIES = "repos/"
_UID = re.compile(r"[0-9a-f]{12}", re.ASCII)
_COLUMNS = ("key", "address", "created", "size")


@dataclass(frozen=True)
class CatalogDecoder:
    """Reads the Parquet ranges of the catalog; each is checked against its name, the digest of its bytes."""

    store: StoreSpec

    def ranges(self, source: str, metarange_id: str) -> Any:
        """Return the ranges of a metarange."""
        return metarange_table(open_store(self.store), source, metarange_id)

    def entries(self, source: str, info: RangeInfo) -> Any:
        """Return the entries of a range."""
        return read_range(open_store(self.store), source, info, _COLUMNS)


@dataclass(frozen=True)
class CatalogLayout:
    """`repos/UID/branches/BRANCH/PARTITION/OBJECT`, as seed 001 describes it."""

    repository_uid: str

    partition_life = PARTITION_LIFE

    @property
    def home(self) -> str:
        """The folder of the repository's data objects."""
        return repository_path(self.repository_uid)

    @property
    def levels(self) -> tuple[str, ...]:
        """The folders on the way down to the paths of branches."""
        return ("", _REPOSITORIES, self.home, self.home + BRANCHES)

    @property
    def object_pattern(self) -> str:
        """A regular expression of the addresses of data objects."""
        return object_pattern(self.repository_uid)

    @property
    def partition_pattern(self) -> str:
        """A regular expression of what is in a partition."""
        return f"^{re.escape(self.home + BRANCHES)}(?P<branch>[^/]+)/(?P<partition>[^/]+)/"

    def path(self, path_id: str) -> str:
        """Return the folder of a branch."""
        return branch_path(self.repository_uid, path_id)

    def paths(self, store: Store) -> set[str]:
        """Return the ids of all branches that ever wrote an object."""
        names = store.children(self.home + BRANCHES)
        return {name.removesuffix("/") for name in names if name.endswith("/")}

    def is_path_of(self, path_id: str, branch: str) -> bool:
        """Return True if a branch of this name may have had this id: the name, made safe, and a uid."""
        stem = path_safe(branch, "")
        return path_id.startswith(stem) and _UID.fullmatch(path_id[len(stem) :]) is not None

    def partition_began(self, partition: str) -> datetime | None:
        """Return when a partition was begun; None if this is not the name of a partition."""
        return partition_began(partition)


@dataclass(frozen=True)
class CatalogRepository:
    """A repository of the embedded catalog, as collectors see it."""

    catalog: Catalog
    name: str

    command = "ebb lake"
    has_fence = True

    @property
    def url(self) -> str:
        """The URL of the repository as a target."""
        return f"{SCHEME}{self.name}"

    @property
    def decoder(self) -> CatalogDecoder:
        """The reader of ranges and metaranges."""
        return CatalogDecoder(self.store_spec())

    @property
    def layout(self) -> CatalogLayout:
        """Where data objects are."""
        return CatalogLayout(self.info().uid)

    def info(self) -> RepositoryInfo:
        """Read which repository has this name now."""
        return self.catalog.repository(self.name)

    def now(self) -> datetime:
        """Return the time of the catalog's clock."""
        return self.catalog.now()

    def policy(self) -> tuple[str, str] | None:
        """Return the lifecycle policy."""
        return self.catalog.policy(self.name)

    def retention(self) -> tuple[str, str] | None:
        """Return the retention rules."""
        return self.catalog.retention(self.name)

    def snapshot(self) -> Snapshot:
        """Read heads, tags, commits, staged entries and the change counter in one transaction."""
        return self.catalog.snapshot(self.name)

    def sequence(self) -> int:
        """Return the change counter."""
        return self.catalog.sequence(self.name)

    def branch_ids(self) -> Mapping[str, str]:
        """Return the id of each branch, by name."""
        return self.catalog.branch_ids(self.name)

    def estimate(self) -> int | None:
        """Return the number of entries in all ranges and in staging; None if there are many commits."""
        return self.catalog.entry_estimate(self.name)

    def store(self) -> Store:
        """Open the store at the namespace."""
        return self.catalog.store(self.name)

    def store_spec(self) -> StoreSpec:
        """Return how executors open the store, with a witness."""
        return witnessed(self.store())

    def open_uploads(self) -> Iterator[Any]:
        """Return the addresses that clients may still upload to and link, and until when."""
        return self.catalog.open_uploads(self.name)

    @property
    def upload_life(self) -> timedelta:
        """How long an upload token is valid."""
        return self.catalog.token_life

    def reaped(self) -> Iterator[str]:
        """Return the addresses that the reaper has fenced or deleted lately."""
        return self.catalog.reaped(self.info().uid)

    def check_owner(self) -> None:
        """Raise ForeignNamespace unless the namespace belongs to this repository of this catalog."""
        self.catalog.check_owner(self.name)

    def check_history(self) -> None:
        """Raise HistoryLost if the catalog lacks commits that the namespace or an earlier plan knows of."""
        self.catalog.check_history(self.name)

    def remember(self, snapshot: Snapshot) -> None:
        """Record in the namespace what a plan has read."""
        self.catalog.remember_history(snapshot)

    def close_fence(self, holder: str) -> int:
        """Keep out new references to existing objects, and return the sequence at that moment."""
        return self.catalog.close_fence(self.name, holder)

    def open_fence(self, holder: str) -> None:
        """Open the fence if this holder closed it."""
        self.catalog.open_fence(self.name, holder)

    def bin(self) -> StoreBin:
        """Open the recycle bin."""
        return lake_bin(self.catalog, self.name)

    def finish_interrupted_restore(self, context: Context) -> None:
        """Finish a restore that was interrupted, if there is one."""
        lake = LakeContext(self.catalog, context.ledger, context.root, context.clock)
        Restorer(LakeBin(lake, self.name)).finish_interrupted()


@dataclass(frozen=True)
class DeletedCatalogRepository:
    """What a deleted repository of the embedded catalog left in its namespace."""

    catalog: Catalog
    repository: DeletedRepository

    bin_root = BIN_ROOT

    @property
    def url(self) -> str:
        """The URL under which the repository was a target."""
        return f"{SCHEME}{self.repository.name}"

    @property
    def layout(self) -> CatalogLayout:
        """Where its data objects are."""
        return CatalogLayout(self.repository.uid)

    def neighbours(self) -> list[str]:
        """Return the folders of other repositories in the namespace: another catalog may know them."""
        found = (_REPOSITORIES + name for name in self.store().children(_REPOSITORIES))
        return [folder for folder in found if folder.endswith("/") and folder != self.layout.home]

    def store(self) -> Store:
        """Open the store at the namespace."""
        return self.catalog.deleted_store(self.repository.uid)

    def store_spec(self) -> StoreSpec:
        """Return how executors open the store, with a witness."""
        return witnessed(self.store())

    def find(self) -> DeletedRepository | None:
        """Look the repository up by its uid; None if there is nothing left to collect of it."""
        uid = self.repository.uid
        return next((gone for gone in self.catalog.deleted_repositories() if gone.uid == uid), None)

    def overlapping(self) -> RepositoryInfo | None:
        """Return a repository of the catalog that uses the namespace or a part of it."""
        place, living = self.repository.namespace, self.catalog.repositories()
        return next((one for one in living if overlap(one.namespace, place)), None)

    def check_owner(self) -> None:
        """Raise ForeignNamespace unless the namespace still belongs to the deleted repository."""
        self.catalog.check_deleted_owner(self.repository.uid)

    def forget(self) -> None:
        """
        Free the namespace.

        The marker is removed first: once the repository is forgotten, the namespace may be another's.
        """
        self.catalog.release(self.repository.uid)
        self.catalog.forget_deleted(self.repository.uid)


def witnessed(store: Store) -> StoreSpec:
    """
    Return how to open the store of a repository, with an object in it that every host must find.

    A host with another disk under the same path would find the namespace empty: what it lists would be gone,
    and what it deletes absent. The owner marker is the last object to be removed; a repository without one,
    because an earlier Ebbtide made it, has committed metadata, which never changes while it exists. Only
    folders have a witness: a bucket is the same one for every host.
    """
    if not store.spec.url.startswith("file://"):
        return store.spec
    for prefix in (MARKER, f"{METARANGES}/", f"{COMMITTED}/"):
        for batch in store.list(prefix):
            if batch.num_rows:
                return replace(store.spec, witness=str(batch.column("key")[0].as_py()))
    return store.spec


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
