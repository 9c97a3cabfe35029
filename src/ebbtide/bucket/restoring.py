"""The bin of a bucket: restoring from it, and its own expiry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

from pyspark.sql import SparkSession

from ebbtide.bucket.bin_place import BIN_ROOT
from ebbtide.bucket.model import Versioning
from ebbtide.bucket.shop import BucketShop
from ebbtide.bucket.version_bin import VERSIONS, VersionBin, VersionKeeper, kept_of
from ebbtide.bucket.version_recycling import VersionBinDeleter
from ebbtide.engine.bins import Bin, BinItem
from ebbtide.engine.emptying import BinKeeper
from ebbtide.engine.freezing import FreezeOptions, OnStep, no_step
from ebbtide.engine.restoring import (
    RestoreChoice,
    Restored,
    Restorer,
    check_none_interrupted,
    chosen_labels,
    to_addresses,
)
from ebbtide.errors import BadInput, NotFound, StalePlan
from ebbtide.ledger.locks import target_lock
from ebbtide.plan.manifest import Manifest
from ebbtide.plan.recycling import Label
from ebbtide.store.base import DeleteResult, MoveRequest
from ebbtide.store.opening import open_store
from ebbtide.store.s3_versions import open_bucket
from ebbtide.tables.progress import OnProgress, no_progress


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

    def moves(page: Sequence[BinItem]) -> list[DeleteResult]:
        """Move items back, each as its folder's form asks for."""
        check_not_suspended(shop)
        forms = {folder: contents.label(folder).form for folder in {item.folder for item in page}}
        return [_moved(shop, contents, item, forms[item.folder]) for item in page]

    back = moves if isinstance(contents, VersionBin) else partial(to_addresses, contents)
    return Restorer(shop.root, shop.ledger, contents, shop.clock, back, on_step=on_step)


def _moved(shop: BucketShop, contents: Bin, item: BinItem, form: str) -> DeleteResult:
    name = contents.place_of(item.folder, item.address)
    if form == VERSIONS:
        return VersionKeeper(shop.spec).restore(kept_of(item.address), name)
    (result,) = contents.store.move([MoveRequest(name, item.address)])
    return result


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
        items = wanted_keys(contents, labels, choice)
        asked = {"folder": choice.folder, "items": len(choice.items) or "all"}
        done = work.restore(shop.spec.url, json.dumps({"restore": asked}), items)
        for label in labels:
            contents.tidy(label)
    return done


def wanted_keys(contents: Bin, labels: Sequence[Label], choice: RestoreChoice) -> Iterator[BinItem]:
    """Find what is to come back; of a key that several runs took, the newest."""
    if not choice.items:
        return (item for label in labels for item in contents.items(label))
    found = []
    for key in dict.fromkeys(choice.items):
        places = (list(_of_key(contents, label, key)) for label in labels)
        items = next((place for place in places if place), None)
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


def bucket_bin_keeper(shop: BucketShop) -> BinKeeper:
    """Give what plans for a bucket's bin, and applies such plans."""

    def check_same(manifest: Manifest) -> None:
        """Stop if it is another server's bucket."""
        if manifest.target_uid != shop.uid:
            raise StalePlan(
                f"{manifest.target} is on another server now",
                why="the plan was made for something else",
                fix="plan again",
            )

    url = shop.spec.url
    contents = bucket_bin(shop)
    make = partial(VersionBinDeleter, shop.spec) if isinstance(contents, VersionBin) else None
    return BinKeeper(contents, url, url, shop.ledger, shop.root, shop.clock, check_same, make)


def plan_bucket_bin(
    spark: SparkSession,
    shop: BucketShop,
    *,
    options: FreezeOptions,
    older_than: int | None = None,
    on_progress: OnProgress = no_progress,
) -> Manifest:
    """Plan to delete for good what a bucket's bin has kept for its time."""
    with target_lock(shop.root, shop.uid, f"ebb plan {shop.spec.url} --bin"):
        bucket_restorer(shop).finish_interrupted()
        keeper = bucket_bin_keeper(shop)
        return keeper.plan(spark, options=options, older_than=older_than, on_progress=on_progress)
