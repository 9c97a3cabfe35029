"""The bin of a bucket: restoring from it, and its own expiry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ebbtide.core.errors import BadInput, NotFound
from ebbtide.core.recycling import Label
from ebbtide.engine.bins import Bin, BinItem
from ebbtide.engine.expired_items import ExpiredItems
from ebbtide.engine.layout import OnStep, no_step
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
from ebbtide.state.locks import target_lock
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.store import MoveRequest, open_store
from ebbtide.targets.s3.bin_place import BIN_ROOT
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.shop import BucketShop
from ebbtide.targets.s3.version_bin import MARKER, VERSIONS, VersionBin, VersionKeeper, kept_of
from ebbtide.targets.s3.version_recycling import VersionBinDeleter


def bucket_bin(shop: BucketShop) -> Bin:
    """Open a bucket's bin."""
    store = open_store(shop.spec)
    if keeps_versions(shop):
        return VersionBin(store, BIN_ROOT, shop.uid, shop.spec)
    return Bin(store, BIN_ROOT, shop.uid)


def keeps_versions(shop: BucketShop) -> bool:
    """Tell whether to delete in a bucket is only to hide, as it is also where versions are kept no more."""
    return open_bucket(shop.spec).versioning() != Versioning.DISABLED


def check_not_suspended(shop: BucketShop) -> None:
    """
    Refuse to bring anything back where versioning is suspended.

    What is written there is the null version of its key, in place of an older one that a delete marker hides;
    and a null marker that was seen a moment ago may be somebody's new object.
    """
    if open_bucket(shop.spec).versioning() == Versioning.SUSPENDED:
        raise BadInput(
            f"the versioning of {shop.spec.url} is suspended, and nothing is restored in such a bucket",
            why="an object that comes back would destroy a null version that lies below a delete marker",
            fix="enable versioning, restore, and suspend it again; or copy items out of the bin with --to",
        )


def bucket_restorer(shop: BucketShop, on_step: OnStep = no_step) -> Restorer:
    """Make what brings a bucket's objects and versions back."""
    contents = bucket_bin(shop)

    def moves(page: Sequence[BinItem]) -> list[Returned]:
        """Move items back, each as its folder's form asks for."""
        check_not_suspended(shop)
        forms = {folder: contents.label(folder).form for folder in {item.folder for item in page}}
        return [_moved(shop, contents, item, forms[item.folder]) for item in page]

    back = moves if isinstance(contents, VersionBin) else partial(to_addresses, contents)
    return Restorer(shop.root, shop.ledger, contents, shop.clock, back, on_step=on_step)


def _moved(shop: BucketShop, contents: Bin, item: BinItem, form: str) -> Returned:
    name, keeper = contents.place_of(item.folder, item.address), VersionKeeper(shop.spec)
    if form == VERSIONS:
        kept = kept_of(item.address)
        result = keeper.restore(kept, name)
        version = kept.version if kept.kind == MARKER else keeper.current(kept.key)
        return Returned(result, kept.key, version)
    (result,) = contents.store.move([MoveRequest(name, item.address)])
    return Returned(result, item.address, keeper.current(item.address))


def restore_bucket(shop: BucketShop, choice: RestoreChoice, on_step: OnStep = no_step) -> Restored:
    """Bring back what was chosen, none over a newer object, and forget the folders that are empty then."""
    check_not_suspended(shop)
    work = bucket_restorer(shop, on_step)
    contents = work.bin
    with target_lock(shop.root, shop.uid, f"ebb restore {shop.spec.url}"):
        work.finish_interrupted()
        labels = chosen_labels(contents, choice)
        whole = labels[0].run if choice.folder and not choice.items else None
        check_none_interrupted(shop.ledger, shop.uid, whole)
        gone: list[str] = []
        table = RemovedTable(shop.root, shop.ledger, shop.uid)
        items = wanted_keys(contents, labels, choice, table, gone)
        done = work.restore(shop.spec.url, choice.asked(), items).with_gone(gone)
        for label in labels:
            contents.tidy(label)
    return done


def wanted_keys(
    contents: Bin,
    labels: Sequence[Label],
    choice: RestoreChoice,
    table: RemovedTable | None = None,
    gone: list[str] | None = None,
) -> Iterator[BinItem]:
    """
    Find what is to come back; of a key that several runs took, the newest.

    Keys that a run took away and the bin does not have any more are added to `gone`, each with the reason.
    """
    if not choice.items:
        return (item for label in labels for item in contents.items(label))
    found = []
    for key in dict.fromkeys(choice.items):
        places = (list(_of_key(contents, label, key)) for label in labels)
        items = next((place for place in places if place), None)
        fate = fate_outside_bin(table, key) if items is None and table is not None else None
        if fate is not None and gone is not None:
            gone.append(f"{key}: {fate}")
            continue
        if items is None:
            raise NotFound(
                f"{key!r} is not in the recycle bin",
                why="nothing was restored",
                fix="see 'ebb recycle ls' for what the bin has",
            )
        found += items
    return iter(found)


def _of_key(contents: Bin, label: Label, key: str) -> Iterator[BinItem]:
    """Find what a folder has of a key: one object, or several versions and notes of delete markers."""
    if label.form == VERSIONS:
        yield from contents.named(label, key)
    elif (item := contents.find(label, key)) is not None:
        yield item


def bucket_bin_collector(shop: BucketShop, older_than: int | None = None) -> ExpiredItems:
    """Return the collector of a bucket's bin."""
    contents = bucket_bin(shop)
    return ExpiredItems(
        shop.context,
        contents,
        shop.identity,
        lambda: shop.identity,
        older_than,
        bucket_restorer(shop).finish_interrupted,
        partial(VersionBinDeleter, shop.spec) if isinstance(contents, VersionBin) else None,
    )
