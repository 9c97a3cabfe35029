"""
The versioned-repository protocol: what collectors require of anything that has branches and commits.

An implementation is an object that follows `VersionedRepository`. The embedded catalog is one
(`ebbtide.targets.lake.repository`); a lakeFS server can be another. The protocol does not say how metadata is
stored or encoded: a `RangeDecoder` returns entries as Arrow tables, whatever the files look like. Nothing in
it requires SQL, a clock of this machine, a change counter, a fence or a list of open uploads; the docstrings
say what an implementation without one of them must do instead, so that it errs on the side of keeping.

A read that fails or is incomplete must raise. An empty answer means that there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from ebbtide.engine.collector import Context
from ebbtide.engine.object_bin import StoreBin
from ebbtide.storage.store import Store, StoreSpec
from ebbtide.targets.repository.model import DeletedRepository, RangeInfo, RepositoryInfo, Snapshot

Table = Any
"""A pyarrow.Table; pyarrow ships no types."""


class RangeDecoder(Protocol):
    """
    Reads the metadata of a repository on executors; it is pickled, so it holds no connection.

    `source` is `COMMITTED` or `STAGED`. Content is immutable: the same id always has the same entries. Each
    method checks what it reads (a digest, a count), and raises MetadataError if it is missing or damaged.
    """

    def ranges(self, source: str, metarange_id: str) -> Table:
        """Return the ranges of a metarange: range_id, min_key, max_key (strings), count (int64)."""

    def entries(self, source: str, info: RangeInfo) -> Table:
        """
        Return the entries of a range, sorted by key: key, address, created, size.

        `created` is a UTC timestamp in microseconds and `size` an int64. `key` and `address` are strings, or
        binary. A key that is not UTF-8 keeps its object forever; an address that is not stops the run.
        """


class Layout(Protocol):
    """
    Where a repository puts data objects in its namespace: home, then a path, then a partition.

    Each branch has a path, or all of them share one. The names of partitions sort newest first. A path is
    identified by a path id, which for a branch is its branch id. It is pickled and sent to executors.
    """

    @property
    def partition_life(self) -> timedelta:
        """How long after it was begun a partition can still receive new objects."""

    @property
    def home(self) -> str:
        """The folder below which all data objects of this repository are, and of no other."""

    @property
    def levels(self) -> tuple[str, ...]:
        """The folders on the way down to the paths, from the namespace itself ("") to the last one."""

    @property
    def object_pattern(self) -> str:
        """A regular expression of the addresses of data objects, with the groups path id and partition."""

    @property
    def partition_pattern(self) -> str:
        """A regular expression of what is in a partition, with the groups `branch` and `partition`."""

    def path(self, path_id: str) -> str:
        """Return the folder of a path; it ends with a slash."""

    def paths(self, store: Store) -> set[str]:
        """Return the ids of all paths that a branch has written to, also of deleted branches."""

    def is_path_of(self, path_id: str, branch: str) -> bool:
        """Return True if a branch of this name may have written to a path before it was deleted."""

    def partition_began(self, partition: str) -> datetime | None:
        """Return when a partition was begun; None if this is not the name of a partition."""


class RuleSource(Protocol):
    """The rules that a repository stores, each as its text and format (json, yaml, toml); None if unset."""

    @property
    def name(self) -> str:
        """The name of the repository."""

    @property
    def command(self) -> str:
        """The start of the commands for this kind of repository, such as `ebb lake`, for messages."""

    def policy(self) -> tuple[str, str] | None:
        """Return the lifecycle policy."""

    def retention(self) -> tuple[str, str] | None:
        """Return the retention rules."""


class VersionedRepository(RuleSource, Protocol):
    """A repository with branches, tags, commits and staged entries."""

    @property
    def url(self) -> str:
        """The URL of the repository as a target, such as `lake:sales`."""

    @property
    def decoder(self) -> RangeDecoder:
        """The reader of ranges and metaranges."""

    @property
    def layout(self) -> Layout:
        """Where data objects are."""

    def info(self) -> RepositoryInfo:
        """Read which repository this is now; NotFound if there is none of this name."""

    def now(self) -> datetime:
        """Return the time of the clock that dates commits, partitions and uploads."""

    # References

    def snapshot(self) -> Snapshot:
        """
        Read heads, tags, all commits, staged entries and the change counter as of one moment.

        Every reference that was made before the call is in it. `taken_at` must not be later than that moment.
        """

    def sequence(self) -> int:
        """
        Return a number that grows with every change that can make a reference.

        A repository without such a counter returns a larger number at every call, so that it is read again.
        """

    def branch_ids(self) -> Mapping[str, str]:
        """Return the id of each branch, by name."""

    def estimate(self) -> int | None:
        """Return about how many entries commits and staging have; None if that takes long to find out."""

    # Objects

    def store(self) -> Store:
        """Open the store at the namespace."""

    def store_spec(self) -> StoreSpec:
        """
        Return how executors open the store.

        Where hosts may see different disks under one path, it names a witness that they must find there.
        """

    def open_uploads(self) -> Iterator[Table]:
        """
        Return the addresses that clients may still upload to and link, and until when: address, expires.

        A repository that does not know them returns nothing; its `upload_life` is as long as uploads take.
        """

    @property
    def upload_life(self) -> timedelta:
        """How long an upload may take from getting an address to being linked."""

    def reaped(self) -> Iterator[str]:
        """Return the addresses that something else than a run has lately deleted on purpose, if any."""

    # Identity and history

    def check_owner(self) -> None:
        """Raise ForeignNamespace unless the namespace belongs to this repository."""

    def check_history(self) -> None:
        """Raise HistoryLost if commits are missing that the namespace or an earlier plan knows of."""

    def remember(self, snapshot: Snapshot) -> None:
        """Record what a plan has read, so that `check_history` notices if any of it is missing later."""

    # The fence

    @property
    def has_fence(self) -> bool:
        """Whether new references can be kept out while a batch is deleted."""

    def close_fence(self, holder: str) -> int:
        """
        Keep out new references to existing objects until the fence is opened; return the sequence then.

        Busy if another holder closed it; nothing changes if this holder did. A repository without a fence
        returns its sequence.
        """

    def open_fence(self, holder: str) -> None:
        """Open the fence if this holder closed it; NotFound if the repository is gone."""

    # The recycle bin

    def bin(self) -> StoreBin:
        """Open the recycle bin of the repository."""

    def finish_interrupted_restore(self, context: Context) -> None:
        """Finish a restore that was interrupted, if there is one."""


class DeletedNamespace(Protocol):
    """What a deleted repository left in its namespace."""

    @property
    def url(self) -> str:
        """The URL under which the repository was a target."""

    @property
    def repository(self) -> DeletedRepository:
        """The repository: as it is known now, or as a plan recorded it."""

    @property
    def layout(self) -> Layout:
        """Where its data objects are."""

    @property
    def bin_root(self) -> str:
        """The folder of its recycle bin."""

    def neighbours(self) -> list[str]:
        """Return the folders of other repositories in the namespace: another catalog may know them."""

    def store(self) -> Store:
        """Open the store at the namespace."""

    def store_spec(self) -> StoreSpec:
        """Return how executors open the store; see `VersionedRepository.store_spec`."""

    def find(self) -> DeletedRepository | None:
        """Look the repository up by its uid; None if there is nothing left to collect of it."""

    def overlapping(self) -> RepositoryInfo | None:
        """Return a repository that uses the namespace now, or a part of it; None if there is none."""

    def check_owner(self) -> None:
        """Raise ForeignNamespace unless the namespace still belongs to the deleted repository."""

    def forget(self) -> None:
        """Remove the owner marker, and then the record of the repository: its namespace is free."""
