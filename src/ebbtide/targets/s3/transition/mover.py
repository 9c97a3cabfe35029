"""The mover: does on an executor what rows of a plan with the action `transition` ask for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark import TaskContext

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.core.instant import from_micros, system_clock, to_micros
from ebbtide.engine.actor import Attempt
from ebbtide.engine.layout import OnStep, no_step
from ebbtide.storage.s3_copy import Sizes
from ebbtide.storage.s3_objects import NULL, open_objects
from ebbtide.storage.store import DeleteResult, StoreSpec, key_problem
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.transition.classes import change_class
from ebbtide.targets.s3.transition.moves import Moves
from ebbtide.targets.s3.transition.moving import Journey, refused
from ebbtide.targets.s3.transition.originals import Item, Originals
from ebbtide.targets.s3.transition.places import open_place

_THREADS = 4
_READ = [
    "address",
    "version",
    "size",
    "created",
    "destination",
    "condition",
    "rules",
    "batch",
    "kept_because",
]


@dataclass(frozen=True)
class Mover:
    """Moves versions of one bucket to other classes and locations; a Deleter that crosses to executors."""

    spec: StoreSpec
    """The bucket, as s3://BUCKET."""
    attempt: Attempt
    versioning: Versioning
    locations: Mapping[str, StoreSpec]
    """By the names that rules give as StorageClass; every other name is a class of the store."""
    root: Path
    """The state root, which all nodes share: the manifest of moves is there."""
    run: int | None = None
    sizes: Sizes = field(default_factory=Sizes)
    on_step: OnStep = no_step
    """Called after each step of a move; tests crash there."""
    threads: int = _THREADS

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Move what the batches name, and give their outcomes."""
        for batch in batches:
            yield self.attempt.outcomes(batch, [_told(result) for result in self.move(batch)])

    def move(self, rows: Any) -> list[DeleteResult]:
        """Move what the rows of a batch name, all of which ask for a transition; one result for each."""
        context = TaskContext.get()
        writer = _writer(os.getpid(), self.run, context.taskAttemptId() if context else None)
        wanted = rows.select(_READ)
        items = [_item(row) for row in wanted.to_pylist()]
        if not items:
            return []
        with ThreadPoolExecutor(min(self.threads, len(items))) as threads:
            return list(threads.map(lambda item: self._one(item, writer), items))

    def _one(self, item: Item, writer: str) -> DeleteResult:
        if item.kept_because is not None:
            return DeleteResult(item.key, Outcome.CHANGED, item.kept_because)
        problem = key_problem(item.key)
        if problem:
            return DeleteResult(item.key, Outcome.DENIED, problem)
        try:
            return self._go(item, writer)
        except EbbtideError as broken:
            return refused(item, broken)
        except OSError as broken:
            return DeleteResult(item.key, Outcome.FAILED, broken.strerror or type(broken).__name__)

    def _go(self, item: Item, writer: str) -> DeleteResult:
        originals = Originals(open_objects(self.spec), self.versioning, self._now())
        location = self.locations.get(item.goal)
        if location is None:
            again = self.attempt.is_repeated()
            return change_class(originals, item, self.sizes, self.on_step, again=again)
        journey = Journey(
            originals=originals,
            place=open_place(location, self.sizes),
            location=item.goal,
            moves=Moves(self.root),
            writer=writer,
            run=self.run,
            sizes=self.sizes,
            clock=self._now,
            on_step=self.on_step,
        )
        return journey.move(item)

    def _now(self) -> datetime:
        return from_micros(to_micros(system_clock()) + self.attempt.skew)


@cache
def _writer(process: int, run: int | None, task: int | None) -> str:  # noqa: ARG001 (they tell writers apart)
    """Name one who writes to the manifest: each attempt at a task has files of its own."""
    return f"run-{run or 0:06d}-{uuid4().hex}"


def _item(row: Mapping[str, Any]) -> Item:
    required = row["condition"] or {}
    return Item(
        key=row["address"],
        version=row["version"] or NULL,
        etag=(required.get("etag") or "").strip('"'),
        size=row["size"],
        created=row["created"],
        latest=required.get("is_latest"),
        goal=row["destination"] or "",
        rules=tuple(row["rules"] or ()),
        wave=row["batch"],
        kept_because=row["kept_because"],
    )


def _told(result: DeleteResult) -> DeleteResult:
    """Report `moved` for what went elsewhere: nothing of it is lost, and nothing is freed."""
    return replace(result, outcome=Outcome.MOVED) if result.outcome is Outcome.DELETED else result
