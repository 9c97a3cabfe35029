"""The recycle bin of a repository: where it is, how long it keeps items, and restoring to old addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ebbtide.core.bin_label import Label
from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError, NotFound
from ebbtide.engine.bin import BinItem, RestoreChoice, Returned, Wanted
from ebbtide.engine.collector import Identity
from ebbtide.engine.object_bin import ObjectBin, StoreBin, to_addresses
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.tables.row_counts import counted_files
from ebbtide.storage.store import DeleteResult, Store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.partitions import branch_path, object_pattern
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.kind import SCHEME
from ebbtide.targets.repository.collector import fence_holder
from ebbtide.targets.repository.model import METADATA
from ebbtide.targets.repository.sweeps import BadState, read_state, state_key

BIN_ROOT = f"{METADATA}recycle/"
"""Below the metadata, where no collector looks for anything and no deleter of data goes."""
_FENCED = "the reaper is about to delete the object at its address, see 'ebb lake queue'"


def lake_bin(catalog: Catalog, repository: str) -> StoreBin:
    """Open a repository's bin to read it."""
    return StoreBin(catalog.store(repository), BIN_ROOT, catalog.repository(repository).uid)


def identity_of(lake: LakeContext, repository: str) -> Identity:
    """Return the identity of a repository as it is now."""
    found = lake.catalog.repository(repository)
    return Identity(f"{SCHEME}{repository}", found.uid, found.namespace)


class LakeBin(ObjectBin):
    """The bin of a repository; commits can read a restored object again."""

    newest_only = False
    """A key may have had several addresses, and all of them are restored."""

    def __init__(self, lake: LakeContext, repository: str) -> None:
        super().__init__(lake.context, identity_of(lake, repository), lake_bin(lake.catalog, repository))
        self.lake = lake
        self.repository = repository

    def check_owner(self) -> Identity:
        """Check that the namespace is the repository's own."""
        self.lake.catalog.check_owner(self.repository)
        return identity_of(self.lake, self.repository)

    def before_page(self, page: Sequence[BinItem], run_id: int) -> None:
        """Let the next sweep list the partitions of restored items."""
        unsettle(self.contents.store, self.identity.uid, [item.address for item in page], run_id)

    def bring_back(self, page: Sequence[BinItem], choice: RestoreChoice) -> Sequence[Returned]:  # noqa: ARG002 (they go back as they were)
        """
        Move objects to their addresses, and remove these from the reclaim queue first.

        Garbage that a sweep set aside may be in that queue since a user dropped it. The next sweep finds it
        again and sets it aside.
        """
        late = self.lake.catalog.reprieve(self.identity.uid, [item.address for item in page])
        moved = iter(to_addresses(self.contents, [item for item in page if item.address not in late]))
        return [
            Returned(DeleteResult(item.address, Outcome.DENIED, _FENCED), item.address)
            if item.address in late
            else next(moved)
            for item in page
        ]

    def after_restore(self, choice: RestoreChoice, wanted: Wanted, back: int) -> None:
        """Open the fence that a run left closed: a run that was restored completely is never finished."""
        super().after_restore(choice, wanted, back)
        if wanted.whole is not None:
            with suppress(NotFound):
                self.lake.catalog.open_fence(self.repository, fence_holder(wanted.whole))

    def named(self, label: Label, name: str) -> Iterator[BinItem]:
        """Find the items of an address, or of all addresses that a key had when it was removed."""
        for address in {name, *self.addresses(label, name)}:
            with suppress(EbbtideError):
                item = self.contents.find(label, address)
                if item is not None:
                    yield item

    def addresses(self, label: Label, name: str) -> Iterator[str]:
        """Look up in the plan, if it is in this state root, which addresses a key had."""
        if self.plan_of(label) is None:
            return
        files = [str(file) for file in counted_files(run_folder(self.lake.root, label.run).plan)]
        if not files:
            return
        table = ds.dataset(files, format="parquet")
        # Plans of earlier versions have `paths`.
        named = "names" if "names" in table.schema.names else "paths"
        for batch in table.to_batches(columns=["address", named]):
            paths = batch.column(named)
            rows = pc.list_parent_indices(paths).filter(pc.equal(pc.list_flatten(paths), pa.scalar(name)))
            yield from batch.column("address").take(rows.unique()).to_pylist()


def unsettle(store: Store, repo_uid: str, addresses: Sequence[str], run_id: int) -> None:
    """
    Let the next sweep list the partitions of items that are about to be restored.

    The last sweep found these partitions settled, and an optimized run would not list them again.
    """
    pattern = re.compile(object_pattern(repo_uid))
    oldest: dict[str, str] = {}
    for address in addresses:
        if found := pattern.match(address):
            branch_id, partition = found[1], found[2]
            oldest[branch_id] = max(partition, oldest.get(branch_id, ""))
    for branch_id, partition in oldest.items():
        path = branch_path(repo_uid, branch_id)
        try:
            state = read_state(store, path, branch_id)
        except BadState:
            # Without a state that can be used the next run lists everything.
            continue
        if state.last_partition is not None:
            last = max(state.last_partition, partition)
            store.write(
                state_key(path), replace(state, last_partition=last, run_id=run_id).to_json().encode()
            )
