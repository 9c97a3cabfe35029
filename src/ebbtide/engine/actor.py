"""Actors: what acts on the rows of a batch on the executors, with one outcome for every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import DELETE, Outcome
from ebbtide.core.errors import EbbtideError, NotFound
from ebbtide.core.instant import from_micros, system_clock, to_micros
from ebbtide.engine.tables.contracts import OUTCOMES
from ebbtide.storage.rate_limit import polite_delete
from ebbtide.storage.store import DeleteRequest, DeleteResult, StoreSpec, open_store

ACTED_ON = (
    "hash",
    "address",
    "version",
    "size",
    "created",
    "action",
    "destination",
    "condition",
    "rules",
)
"""The columns of a plan that an actor reads; its digest covers them all."""
_UNLIMITED = 1e9
_S3_RATE = 3500.0
_RESUMED = "gone when an interrupted attempt of this run was taken up again"


@dataclass(frozen=True)
class DeleteOptions:
    """How fast deletes may be sent to the store."""

    rate_per_prefix: float | None = None
    """Objects per second per prefix, over all executors; None is S3's own limit, and unlimited on a disk."""
    page: int = 250
    tasks: int = 0
    """How many tasks delete at once; 0 leaves it to the cluster."""

    def rate_for(self, store: StoreSpec, tasks: int) -> float:
        """Return the share of the rate for each task."""
        rate = self.rate_per_prefix or (_S3_RATE if store.url.startswith("s3") else _UNLIMITED)
        return rate / tasks


@dataclass(frozen=True)
class Attempt:
    """An attempt at a batch, for the executors."""

    options: DeleteOptions
    tasks: int
    skew: int
    """How far the driver's clock, which may be a rehearsal's, is ahead of the machine's, in microseconds."""
    resumed: bool
    """An earlier attempt was interrupted, and may have removed items that are gone now."""

    def now(self) -> datetime:
        """Return the time by the driver's clock."""
        return from_micros(to_micros(system_clock()) + self.skew)

    def is_repeated(self) -> bool:
        """Return True if this run may have removed items that are gone; Spark repeats failed tasks."""
        context = TaskContext.get()
        return self.resumed or (context is not None and context.attemptNumber() > 0)

    def outcomes(self, rows: Any, results: Sequence[DeleteResult]) -> Any:
        """Return the table of outcomes for rows and their results."""
        count = rows.num_rows
        moment = to_micros(self.now())
        columns = {
            "hash": rows.column("hash"),
            "address": rows.column("address"),
            "version": rows.column("version"),
            "outcome": pa.array([str(result.outcome) for result in results], pa.string()),
            "reason": pa.array([result.reason for result in results], pa.string()),
            "rules": rows.column("rules"),
            "size": rows.column("size"),
            "at": pa.array([moment] * count, pa.timestamp("us", tz="UTC")),
            "batch": rows.column("batch"),
            "attempt": pa.array([0] * count, pa.int32()),
            "action": _recorded_action(rows),
            "until": pa.nulls(count, pa.timestamp("us", tz="UTC")),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in OUTCOMES.columns], OUTCOMES.columns)


def _recorded_action(rows: Any) -> Any:
    """
    Return the action of each row; null for an address that is simply deleted.

    The action is part of the key of removed items. A restore brings an address back without an action, and
    has to replace the row that took it away.
    """
    action = rows.column("action")
    only_deleted = pc.and_(pc.is_null(rows.column("version")), pc.equal(action, DELETE))
    return pc.if_else(only_deleted, pa.scalar(None, pa.string()), action)


def planned_etags(rows: Any) -> dict[str, str | None]:
    """Return the ETag that each row was planned with, by address."""
    etags = pc.struct_field(rows.column("condition"), "etag").to_pylist()
    return dict(zip(rows.column("address").to_pylist(), etags, strict=True))


def unknown_items(etags: Mapping[str, str | None]) -> dict[str, DeleteResult]:
    """Deny the items that were planned without an ETag: a change of their content would go unnoticed."""
    why = "the plan has no ETag for it, so it is unknown whether its content is still the same"
    return {key: DeleteResult(key, Outcome.DENIED, why) for key, etag in etags.items() if not etag}


Actor = Callable[[Iterable[Any]], Iterator[Any]]
"""
Acts on the rows of a plan on an executor: record batches of rows in, outcomes out.

Rows also have `kept_because`, which is not null if the item must not be touched.
"""


def act_on_rows(
    rows: DataFrame,
    make_actor: Callable[[Attempt], Actor],
    options: DeleteOptions,
    attempt: int,
    now: datetime,
    *,
    resumed: bool,
    in_order: bool = False,
) -> DataFrame:
    """
    Return the outcomes of acting on a batch's rows; Spark acts when they are written.

    Rows are distributed to tasks by hash, so that each task spreads its load over all prefixes; or by
    address (`in_order`), for an actor that lists neighbours together.
    """
    tasks = options.tasks or rows.sparkSession.sparkContext.defaultParallelism
    wanted = rows.select(*ACTED_ON, "batch", "kept_because")
    divided = wanted.repartitionByRange(tasks, "address") if in_order else wanted.repartition(tasks, "hash")
    skew = to_micros(now) - to_micros(system_clock())
    done = divided.mapInArrow(make_actor(Attempt(options, tasks, skew, resumed)), OUTCOMES.schema)
    return done.withColumn("attempt", f.lit(attempt).cast("int"))


def store_deleter(
    store: StoreSpec,
    attempt: Attempt,
    *,
    not_below: str,
    only_below: str = "",
    by_etag: bool = False,
) -> Actor:
    """
    Return an actor that deletes a store's objects, but nothing below `not_below`, which may be empty.

    With `only_below` it deletes only inside that folder. With `by_etag` it deletes an object only if it has
    the ETag that was planned.
    """
    return _Deleter(store, attempt, not_below, only_below, by_etag)


@dataclass(frozen=True)
class _Deleter:
    """Deletes the rows of one partition on an executor."""

    store: StoreSpec
    attempt: Attempt
    not_below: str
    """A folder in which nothing may be deleted, such as the target's metadata; empty if there is none."""
    only_below: str = ""
    """The only folder in which objects may be deleted; empty is the whole store."""
    by_etag: bool = False
    """Whether an object is deleted only if it has the ETag that was planned."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        again = self.attempt.is_repeated()
        for batch in batches:
            yield self._delete(batch, again=again)

    def _delete(self, batch: Any, *, again: bool) -> Any:
        addresses = batch.column("address").to_pylist()
        kept = batch.column("kept_because").to_pylist()
        results = {
            address: refused
            for address, reason in zip(addresses, kept, strict=True)
            if (refused := self._refuse(address, reason)) is not None
        }
        if self.attempt.resumed:
            results |= {address: self._as_found(result) for address, result in results.items()}
        etags = planned_etags(batch) if self.by_etag else {}
        results = unknown_items(etags) | results
        wanted = [DeleteRequest(key, etags.get(key)) for key in addresses if key not in results]
        results.update(self._ask_store(wanted))
        return self.attempt.outcomes(batch, [settle(results[address], again=again) for address in addresses])

    def _refuse(self, address: str, reason: str | None) -> DeleteResult | None:
        if self.only_below and not address.startswith(self.only_below):
            return DeleteResult(address, Outcome.DENIED, f"not below {self.only_below}")
        return refuse(address, reason, not_below=self.not_below)

    def _as_found(self, refused: DeleteResult) -> DeleteResult:
        """
        Check that an item that must stay is still there: the interrupted attempt may have deleted it.

        Then the new reference came too late, and the ledger must record which run deleted the item.
        """
        if refused.outcome is not Outcome.CHANGED:
            return refused
        try:
            open_store(self.store).stat(refused.key)
        except NotFound:
            return DeleteResult(refused.key, Outcome.DELETED, _RESUMED)
        except EbbtideError as broken:
            return DeleteResult(refused.key, Outcome.FAILED, str(broken))
        return refused

    def _ask_store(self, requests: list[DeleteRequest]) -> dict[str, DeleteResult]:
        found: dict[str, DeleteResult] = {}
        try:
            store, options = open_store(self.store), self.attempt.options
            rate = options.rate_for(self.store, self.attempt.tasks)
            for result in polite_delete(store, requests, rate, options.page):
                found[result.key] = result
        except EbbtideError as broken:
            # What was deleted before the store broke down is in `found`; the rest failed and is tried again.
            for request in requests:
                found.setdefault(request.key, DeleteResult(request.key, Outcome.FAILED, str(broken)))
        for request in requests:
            silent = DeleteResult(request.key, Outcome.FAILED, "the store did not answer for this key")
            found.setdefault(request.key, silent)
        return found


def refuse(address: str, kept_because: str | None, *, not_below: str) -> DeleteResult | None:
    """Return the result for an item that must not be touched; None if it may be."""
    if kept_because is not None:
        return DeleteResult(address, Outcome.CHANGED, kept_because)
    # Planning holds these, so a plan that has one is wrong and must not reach the store with it.
    if not_below and address.startswith(not_below):
        return DeleteResult(address, Outcome.DENIED, f"it lies below {not_below}")
    if "://" in address or not address:
        return DeleteResult(address, Outcome.DENIED, "not a data object of this namespace")
    return None


def settle(result: DeleteResult, *, again: bool) -> DeleteResult:
    """Count an absent item as deleted if an earlier attempt of this run may have deleted it."""
    if again and result.outcome is Outcome.ABSENT:
        return DeleteResult(result.key, Outcome.DELETED, _RESUMED)
    return result
