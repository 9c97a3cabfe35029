"""
The recycle bin of a bucket: set expired objects aside, restore them, and hold restored objects.

For a bucket that keeps versions see `versioned_bin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.bin_label import Label
from ebbtide.core.decision import Outcome
from ebbtide.core.errors import BadInput, EbbtideError, NotFound
from ebbtide.core.instant import to_micros
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.bin import BinItem, RestoreChoice, Returned
from ebbtide.engine.object_bin import ObjectBin, StoreBin
from ebbtide.engine.removed_items import RemovedItems
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.storage.rate_limit import polite_move
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.store import DeleteResult, MoveRequest, Store, StoreSpec, open_store
from ebbtide.targets.s3.actions.deleter import BucketActor
from ebbtide.targets.s3.actions.recheck import RETIMED
from ebbtide.targets.s3.actions.requests import PlannedItem, planned_items, same_moment
from ebbtide.targets.s3.context import BucketContext
from ebbtide.targets.s3.evaluation.verdicts import RESTORED_UNTIL
from ebbtide.targets.s3.model import BIN_ROOT, Action, Versioning, is_in_bin
from ebbtide.targets.s3.versioned_bin import (
    MARKER,
    VERSIONS,
    VersionBin,
    VersionBinDeleter,
    VersionKeeper,
    kept_of,
)


def bucket_bin(bucket: BucketContext) -> StoreBin:
    """Open a bucket's bin to read it."""
    store = open_store(bucket.spec)
    if open_bucket(bucket.spec).versioning() == Versioning.DISABLED:
        return StoreBin(store, BIN_ROOT, bucket.uid)
    return VersionBin(store, BIN_ROOT, bucket.uid, bucket.spec)


def check_not_suspended(bucket: BucketContext) -> None:
    """
    Refuse to restore anything while versioning is suspended.

    A restored object would become the null version of its key and replace an older null version that a delete
    marker hides. And a null marker that was seen a moment ago may be a new object of a client by now.
    """
    if open_bucket(bucket.spec).versioning() == Versioning.SUSPENDED:
        raise BadInput(
            f"the versioning of {bucket.spec.url} is suspended, and nothing is restored in such a bucket",
            why="a restored object would destroy a null version that a delete marker hides",
            fix="enable versioning, restore, and suspend it again; or copy items out of the bin with --to",
        )


class BucketBin(ObjectBin):
    """The bin of a bucket; one that keeps versions gets versions back, and delete markers removed."""

    def __init__(self, bucket: BucketContext) -> None:
        super().__init__(bucket.context, bucket.identity, bucket_bin(bucket))
        self.bucket = bucket

    @property
    def keeps_versions(self) -> bool:
        """Whether a delete in the bucket only adds a delete marker (versioning enabled or suspended)."""
        return isinstance(self.contents, VersionBin)

    def check_setting(self, days: int | None) -> None:
        """Refuse a bin where versioning is suspended."""
        if days is not None and open_bucket(self.bucket.spec).versioning() == Versioning.SUSPENDED:
            raise no_bin_when_suspended(self.bucket.spec.url)

    def check_restore(self, choice: RestoreChoice) -> None:  # noqa: ARG002 (nothing comes back at all)
        """Refuse to restore where versioning is suspended."""
        check_not_suspended(self.bucket)

    def named(self, label: Label, name: str) -> Iterator[BinItem]:
        """Find the items of a key: one object, or several versions and notes of delete markers."""
        if label.form == VERSIONS:
            yield from self.contents.named(label, name)
        elif (item := self.contents.find(label, name)) is not None:
            yield item

    def bring_back(self, page: Sequence[BinItem], choice: RestoreChoice) -> Sequence[Returned]:
        """Move items back, each according to the form of its folder."""
        if not self.keeps_versions:
            return super().bring_back(page, choice)
        check_not_suspended(self.bucket)
        forms = {folder: self.contents.label(folder).form for folder in {item.folder for item in page}}
        return [self._moved(item, forms[item.folder]) for item in page]

    def _moved(self, item: BinItem, form: str) -> Returned:
        name, keeper = self.contents.place_of(item.folder, item.address), VersionKeeper(self.bucket.spec)
        if form == VERSIONS:
            kept = kept_of(item.address)
            result = keeper.restore(kept, name)
            version = kept.version if kept.kind == MARKER else keeper.current(kept.key)
            return Returned(result, kept.key, version)
        (result,) = self.contents.store.move([MoveRequest(name, item.address)])
        return Returned(result, item.address, keeper.current(item.address))

    def deleter(self, attempt: Attempt) -> Actor:
        """Delete objects of the bin, with all their versions where there are any."""
        if self.keeps_versions:
            return VersionBinDeleter(self.bucket.spec, attempt)
        return super().deleter(attempt)


def no_bin_when_suspended(bucket: str) -> BadInput:
    """Return the error for a bucket whose versioning is suspended, which has no bin."""
    return BadInput(
        f"the versioning of {bucket} is suspended, and such a bucket has no recycle bin",
        why="a delete marker there destroys the null version below it",
        fix=f"enable versioning, or switch the bin off: ebb recycle set {bucket} --off",
    )


_UNKNOWN = "the plan has no ETag for it, so it is unknown whether its content is still the same"
_TAKEN = "the bin has other content under this name, so it was left in its place; plan again"


@dataclass(frozen=True)
class BucketRecycler:
    """Acts on the rows of one task; expired objects are moved into the bin."""

    usual: BucketActor
    spec: StoreSpec
    attempt: Attempt
    place: str
    """The folder of the objects, each under its own key; it ends with a slash."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Set expired objects aside, then let the usual actor move versions and abort uploads."""
        gathered = list(batches)
        expiring = [pc.equal(batch.column("action"), str(Action.EXPIRE)) for batch in gathered]
        for batch, chosen in zip(gathered, expiring, strict=True):
            rows = batch.filter(chosen)
            if rows.num_rows:
                results = self._set_aside(list(planned_items([rows])))
                yield self.attempt.outcomes(rows, results)
        rest = [batch.filter(pc.invert(chosen)) for batch, chosen in zip(gathered, expiring, strict=True)]
        yield from self.usual(batch for batch in rest if batch.num_rows)

    def _set_aside(self, items: Sequence[PlannedItem]) -> list[DeleteResult]:
        try:
            results = self._refused_items(items)
            store, options = open_store(self.spec), self.attempt.options
            left = [item for item in items if item.number not in results]
            requests = [MoveRequest(item.key, self.place + item.key, item.etag) for item in left]
            rate = options.rate_for(self.spec, self.attempt.tasks)
            moved = {result.key: result for result in polite_move(store, requests, rate, options.page)}
        except EbbtideError as broken:
            return [DeleteResult(item.key, Outcome.FAILED, str(broken)) for item in items]
        return [results.get(item.number) or _settled(moved[item.key]) for item in items]

    def _refused_items(self, items: Sequence[PlannedItem]) -> dict[int, DeleteResult]:
        """Return the results of items that must not be touched: they changed, or that is unknown."""
        versioning = open_bucket(self.spec).versioning()
        if versioning != Versioning.DISABLED:
            why = (
                f"the bucket's versioning is {versioning} now, and the plan was made for one without versions"
            )
            return {item.number: DeleteResult(item.key, Outcome.CHANGED, why) for item in items}
        store = open_store(self.spec)
        found = {item.number: _problem(store, item) for item in items}
        return {number: problem for number, problem in found.items() if problem is not None}


def _problem(store: Store, item: PlannedItem) -> DeleteResult | None:
    """Return why an object must not be set aside; the move itself reports a missing object."""
    refused = _refused(item)
    if refused is not None:
        return refused
    try:
        info = store.stat(item.key)
    except NotFound:
        return None
    except EbbtideError as broken:
        return DeleteResult(item.key, Outcome.FAILED, str(broken))
    # If the same content was written again, its days begin again.
    same = same_moment(item.micros, to_micros(info.last_modified))
    return None if same else DeleteResult(item.key, Outcome.CHANGED, RETIMED)


def _refused(item: PlannedItem) -> DeleteResult | None:
    if item.kept is not None:
        return DeleteResult(item.key, Outcome.CHANGED, item.kept)
    if is_in_bin(item.key):
        return DeleteResult(item.key, Outcome.DENIED, "it is in the recycle bin")
    return None if item.etag else DeleteResult(item.key, Outcome.DENIED, _UNKNOWN)


def _settled(moved: DeleteResult) -> DeleteResult:
    if moved.outcome is Outcome.DELETED:
        return replace(moved, outcome=Outcome.RECYCLED)
    return replace(moved, outcome=Outcome.FAILED, reason=_TAKEN) if moved.outcome is Outcome.TAKEN else moved


def warnings_of_the_bin(spec: StoreSpec) -> tuple[str, ...]:
    """Warn if the bucket's own lifecycle rules, which the server applies, reach the bin."""
    found = open_bucket(spec).lifecycle() or {}
    reaching = [str(rule.get("ID", "(no id)")) for rule in found.get("Rules", ()) if _reaches_bin(rule)]
    if not reaching:
        return ()
    names = ", ".join(sorted(reaching))
    may = "the server may delete items there before their days are over"
    return (f"the bucket's own lifecycle rules ({names}) reach its recycle bin, {BIN_ROOT}: {may}",)


def _reaches_bin(rule: Mapping[str, Any]) -> bool:
    """Return True if an enabled rule can expire keys in the bin, whatever its other conditions are."""
    chosen = rule.get("Filter") or {}
    prefix = chosen.get("Prefix") or (chosen.get("And") or {}).get("Prefix") or rule.get("Prefix") or ""
    ends = rule.get("Status") == "Enabled" and "Expiration" in rule
    return ends and (BIN_ROOT.startswith(prefix) or prefix.startswith(BIN_ROOT))


_ANY = ""
"""Stands for every version of a key, if it is unknown which one was restored."""


def with_restored(versions: DataFrame, removed: RemovedItems) -> DataFrame:
    """Add to each version until when it is held because it was restored."""
    if not removed.restored:
        return versions.withColumn(RESTORED_UNTIL, f.lit(None).cast("timestamp"))
    held = removed.held(versions.sparkSession)
    entries = f.collect_list(f.struct(f.coalesce("version", f.lit(_ANY)), "until"))
    by_key = held.groupBy(f.col("address").alias("key")).agg(f.map_from_entries(entries).alias("_holds"))
    until = [f.try_element_at("_holds", name) for name in (f.col("version_id"), f.lit(_ANY))]
    joined = versions.join(by_key.hint("broadcast" if removed.is_few else "shuffle_hash"), "key", "left")
    return joined.withColumn(RESTORED_UNTIL, f.greatest(*until)).drop("_holds")


def restored_versions(table: RemovedTable, key: str) -> Mapping[str, datetime]:
    """Return until when each restored version of a key is held; without Spark."""
    rows: list[dict[str, Any]] = [row for row in table.find(key) if row["outcome"] == Outcome.RESTORED]
    return {row["version"] or _ANY: row["until"] for row in rows if row["until"] is not None}


def restored_until(holds: Mapping[str, datetime], version: str) -> datetime | None:
    """Return until when a version is held."""
    return max((holds[name] for name in (version, _ANY) if name in holds), default=None)
