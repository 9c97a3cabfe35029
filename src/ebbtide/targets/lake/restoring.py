"""Restoring in a repository: from the bin to the old address, where every commit that has it reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError, NotFound
from ebbtide.core.instant import format_instant
from ebbtide.core.manifest import Manifest
from ebbtide.core.recycling import Label
from ebbtide.engine.bins import Bin, BinItem
from ebbtide.engine.layout import OnStep, no_step, run_folder
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.restoring import (
    RestoreChoice,
    Restored,
    Restorer,
    Returned,
    check_none_interrupted,
    chosen_labels,
    fate_outside_bin,
    to_addresses,
)
from ebbtide.engine.tables.row_counts import counted_files
from ebbtide.state.locks import target_lock
from ebbtide.storage.store import DeleteResult, Store
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.partitions import branch_path, object_pattern
from ebbtide.targets.lake.recycling import BIN_ROOT
from ebbtide.targets.lake.uncommitted.state import BadState, read_state, state_key
from ebbtide.targets.lake.workshop import Workshop

_FENCED = "the reaper is about to delete what lies at its address, see 'ebb lake queue'"


def restorer(shop: Workshop, repository: Repository, on_step: OnStep = no_step) -> Restorer:
    """Make what brings a repository's items back."""
    store = shop.catalog.store(repository.name)
    contents = Bin(store, BIN_ROOT, repository.uid)

    def before(page: Sequence[BinItem], run_id: int) -> None:
        unsettle(store, repository.uid, [item.address for item in page], run_id)

    def moves(page: Sequence[BinItem]) -> list[Returned]:
        return _back(shop, contents, page)

    return Restorer(shop.root, shop.ledger, contents, shop.clock, moves, before, on_step)


def _back(shop: Workshop, contents: Bin, page: Sequence[BinItem]) -> list[Returned]:
    """
    Move objects to their addresses, where the reaper must not find them in its queue.

    Garbage that a sweep set aside may wait there since somebody dropped it, to be deleted for good. The next
    sweep finds it again, and sets it aside.
    """
    late = shop.catalog.reprieve(contents.target_uid, [item.address for item in page])
    moved = iter(to_addresses(contents, [item for item in page if item.address not in late]))
    return [
        Returned(DeleteResult(item.address, Outcome.DENIED, _FENCED), item.address)
        if item.address in late
        else next(moved)
        for item in page
    ]


def restore_lake(
    shop: Workshop, repository: str, choice: RestoreChoice, on_step: OnStep = no_step
) -> Restored:
    """Bring back what was chosen, and forget the folders of the bin that are empty then."""
    found = shop.catalog.repository(repository)
    with target_lock(shop.root, found.uid, f"ebb restore lake:{repository}"):
        work = restorer(shop, found, on_step)
        # First, so that what it has brought back is no longer looked for.
        work.finish_interrupted()
        labels = chosen_labels(work.bin, choice)
        whole = _own_manifest(shop, labels[0]) if choice.folder and not choice.items else None
        check_none_interrupted(shop.ledger, found.uid, whole.run_id if whole else None)
        gone: list[str] = []
        items = wanted_items(shop, work.bin, labels, choice, gone)
        done = work.restore(f"lake:{repository}", choice.asked(), items).with_gone(gone)
        for label in labels:
            work.bin.tidy(label)
        if whole is not None:
            # A run that is wholly back can never be finished, so nobody else opens what it left closed.
            with suppress(NotFound):
                shop.catalog.open_gate(repository, gate_holder(whole))
    return done


def wanted_items(
    shop: Workshop,
    contents: Bin,
    labels: Sequence[Label],
    choice: RestoreChoice,
    gone: list[str] | None = None,
) -> Iterator[BinItem]:
    """
    Find what is to come back; a name that nobody knows stops everything before it begins.

    Items that a run took away and the bin does not have any more are added to `gone`, each with the reason.
    """
    if not choice.items:
        return (item for label in labels for item in contents.items(label))
    found: dict[tuple[str, str], BinItem] = {}
    for text in choice.items:
        matches = list(_named(shop, contents, labels, text))
        fate = None if matches else _fate(shop, contents, labels, text)
        if fate is not None and gone is not None:
            gone.append(f"{text}: {fate}")
            continue
        if not matches:
            raise NotFound(
                f"{text!r} is not in the recycle bin",
                why="nothing was restored",
                fix="see 'ebb recycle ls' for what the bin has; an item is named by its key or its address",
            )
        found |= {(item.folder, item.address): item for item in matches}
    return iter(found.values())


def _named(shop: Workshop, contents: Bin, labels: Sequence[Label], text: str) -> Iterator[BinItem]:
    """Find the items of an address, or of all addresses that a key had when it went."""
    for label in labels:
        for address in {text, *_addresses(shop, label, text)}:
            with suppress(EbbtideError):
                item = contents.find(label, address)
                if item is not None:
                    yield item


def _fate(shop: Workshop, contents: Bin, labels: Sequence[Label], text: str) -> str | None:
    """Say why an address, or one that a key had, is not in the bin; None if no run took it away."""
    table = RemovedTable(shop.root, shop.ledger, contents.target_uid)
    known = [text, *(address for label in labels for address in _addresses(shop, label, text))]
    return next((fate for address in known if (fate := fate_outside_bin(table, address))), None)


def _addresses(shop: Workshop, label: Label, key: str) -> Iterator[str]:
    """Look up in the plan, if it is in this state root, which addresses a key had."""
    if _own_manifest(shop, label) is None:
        return
    folder = run_folder(shop.root, label.run)
    files = [str(file) for file in counted_files(folder.plan)]
    if not files:
        return
    for batch in ds.dataset(files, format="parquet").to_batches(columns=["address", "paths"]):
        paths = batch.column("paths")
        rows = pc.list_parent_indices(paths).filter(pc.equal(pc.list_flatten(paths), pa.scalar(key)))
        yield from batch.column("address").take(rows.unique()).to_pylist()


def _own_manifest(shop: Workshop, label: Label) -> Manifest | None:
    """Find the plan that set aside what a folder of the bin has; None if it is not in this state root."""
    try:
        manifest = run_folder(shop.root, label.run).read_manifest()
    except EbbtideError:
        return None
    return manifest if manifest.recycling and manifest.recycling.folder == label.folder else None


def gate_holder(plan: Manifest) -> str:
    """Name a run to the gate; two ledgers may each have a run 7 on one catalog, so its time is added."""
    return f"{plan.run_id}@{format_instant(plan.made_at)}"


def unsettle(store: Store, repo_uid: str, addresses: Sequence[str], run_id: int) -> None:
    """
    Let the next sweep list the partitions that items come back to, before they do.

    A run that swept them has seen them settled, and an optimized run would not look there again.
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
