"""
The mover: moves versions to another storage class or location on the executors.

A move to a location is: copy, verify, record, and only then remove. Whatever is interrupted, the original is
complete until a complete copy was verified and recorded, and another attempt continues from what it finds. An
existing copy is used if it carries the mark of exactly this version and is verified like a new one. Anything
else under its name is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from ebbtide.core.instant import format_instant, from_micros, system_clock, to_micros
from ebbtide.engine.actor import Attempt
from ebbtide.engine.run_folder import OnStep, no_step
from ebbtide.storage.s3_copy import CopyProof, Sizes, simple
from ebbtide.storage.s3_objects import NULL, S3Object, open_objects
from ebbtide.storage.store import DeleteResult, StoreSpec, key_problem
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.transition.locations import (
    Location,
    NameTaken,
    SourceVersion,
    StoredCopy,
    VersionIdentity,
    open_location,
    target_name,
)
from ebbtide.targets.s3.transition.moves import (
    MoveLog,
    MoveRecord,
    Stage,
    current_records,
    others_hold,
    others_withdrew,
)
from ebbtide.targets.s3.transition.source import SourceBucket, SourceState, TransitionItem, change_class

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
class TransitionActor:
    """Moves versions of one bucket to other classes and locations, on executors."""

    spec: StoreSpec
    """The bucket, as s3://BUCKET."""
    attempt: Attempt
    versioning: Versioning
    locations: Mapping[str, StoreSpec]
    """By the names that rules use as StorageClass; every other name is a storage class of the store."""
    root: Path
    """The state root with the log of moves, which all nodes share."""
    run: int | None = None
    sizes: Sizes = field(default_factory=Sizes)
    on_step: OnStep = no_step
    """Called after each step of a move; tests interrupt it there."""
    threads: int = _THREADS

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Move what the batches name and return their outcomes."""
        for batch in batches:
            yield self.attempt.outcomes(batch, [_told(result) for result in self.move(batch)])

    def move(self, rows: Any) -> list[DeleteResult]:
        """Move what the rows of a batch name, all with the action `transition`; return a result per row."""
        context = TaskContext.get()
        writer = _writer(os.getpid(), self.run, context.taskAttemptId() if context else None)
        wanted = rows.select(_READ)
        items = [_item(row) for row in wanted.to_pylist()]
        if not items:
            return []
        with ThreadPoolExecutor(min(self.threads, len(items))) as threads:
            return list(threads.map(lambda item: self._one(item, writer), items))

    def _one(self, item: TransitionItem, writer: str) -> DeleteResult:
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

    def _go(self, item: TransitionItem, writer: str) -> DeleteResult:
        originals = SourceBucket(open_objects(self.spec), self.versioning, self._now())
        location = self.locations.get(item.goal)
        if location is None:
            again = self.attempt.is_repeated()
            return change_class(originals, item, self.sizes, self.on_step, again=again)
        journey = LocationMover(
            originals=originals,
            location=open_location(location, self.sizes),
            location_name=item.goal,
            moves=MoveLog(self.root),
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
def _writer(process: int, run: int | None, task: int | None) -> str:  # noqa: ARG001 (they distinguish writers)
    """Return the name of a writer of the move log: each attempt at a task has its own files."""
    return f"run-{run or 0:06d}-{uuid4().hex}"


def _item(row: Mapping[str, Any]) -> TransitionItem:
    required = row["condition"] or {}
    return TransitionItem(
        key=row["address"],
        version=row["version"] or NULL,
        etag=(required.get("etag") or "").strip('"'),
        size=row["size"],
        created=row["created"],
        latest=required.get("is_latest"),
        goal=row["destination"] or "",
        rules=tuple(row["rules"] or ()),
        batch=row["batch"],
        kept_because=row["kept_because"],
    )


def _told(result: DeleteResult) -> DeleteResult:
    """Report `moved` instead of `deleted`: nothing is lost and nothing is freed."""
    return replace(result, outcome=Outcome.MOVED) if result.outcome is Outcome.DELETED else result


COPIED, VERIFIED, RECORDED, REMOVED = "copied", "verified", "recorded", "removed"


@dataclass(frozen=True)
class Copy:
    """A copy at a location, and the proof that it must pass."""

    name: str
    proof: CopyProof
    ours: bool
    """This attempt made the copy, so it may remove it again."""
    held: StoredCopy | None = None
    """The verified copy as it was found."""


@dataclass(frozen=True)
class LocationMover:
    """Moves versions to one location."""

    originals: SourceBucket
    location: Location
    location_name: str
    moves: MoveLog
    writer: str
    run: int | None
    sizes: Sizes
    clock: Callable[[], datetime]
    on_step: OnStep

    def move(self, item: TransitionItem) -> DeleteResult:
        """Move one version, or say why not."""
        objects = self.originals.objects
        if self.location.holds(objects, item.key):
            why = f"it is in the location {self.location_name} already"
            return DeleteResult(item.key, Outcome.CHANGED, why)
        now = self.originals.look(item)
        before = self._recorded(item) if now.problem else []
        if before:
            now = self.originals.look(item, may_be_hidden=True)
        if now.found is None or now.problem:
            return self._moved_before(item, now, before) or DeleteResult(item.key, now.outcome, now.problem)
        known = VersionIdentity(objects.bucket, item.key, item.version, now.found.etag, now.found.modified)
        name = target_name(known, self.location.root)
        original = SourceVersion(objects, now.found, known.mark)
        copy = self._copy(name, original)
        if isinstance(copy, str):
            return self._not_copied(item, copy)
        self.on_step(COPIED)
        held = self.location.find(name)
        if held is None or not self._is_whole(held, copy.proof, original):
            return self._broken(item, copy, held, original)
        self.on_step(VERIFIED)
        copy = replace(copy, held=replace(held, version=copy.proof.version or held.version))
        return self._switch(item, now, copy, self._line(item, now.found, name))

    def _copy(self, name: str, original: SourceVersion) -> Copy | str:
        """Use an existing copy or make one; return a string if neither is possible."""
        held = self.location.find(name)
        if held is None:
            try:
                proof = self.location.fill(name, original)
            except NameTaken:
                # By another writer, or by our own request whose answer was lost.
                held = self.location.find(name)
            else:
                return Copy(name, proof, ours=True)
        if held is None:
            return f"{self.location.url(name)} was taken and is free again"
        if held.mark != original.mark:
            return f"{self.location.url(name)} holds something else, which is not overwritten"
        return Copy(name, CopyProof(etag=simple(original.found.etag)), ours=False)

    def _is_whole(self, held: StoredCopy, proof: CopyProof, original: SourceVersion) -> bool:
        """Return True if the copy has the original's bytes: by the store's checksum, or by reading it."""
        found = original.found
        if held.size != found.size or held.mark != original.mark:
            return False
        if proof.etag and held.etag == proof.etag:
            return True
        expected = proof.sha256 or original.objects.digest(found, self.sizes.part_of(found.size))
        return self.location.digest(held) == expected

    def _switch(self, item: TransitionItem, now: SourceState, copy: Copy, line: MoveRecord) -> DeleteResult:
        """Record durably where the version is, and then remove the original."""
        self.moves.append(line)
        self.on_step(RECORDED)
        if not copy.ours and others_withdrew(self.moves.lines(line.bucket, line.key), line):
            # The attempt that made the copy may be removing it; it looks for our record before it does.
            self.moves.append(replace(line, stage=Stage.WITHDRAWN))
            return DeleteResult(
                item.key, Outcome.FAILED, f"another attempt is removing the copy {line.url}; apply again"
            )
        result = self.originals.remove(item, now, self.on_step)
        if result.outcome.is_gone:
            # It was there a moment ago, so our request removed it even if its answer was lost.
            self.on_step(REMOVED)
            self.moves.append(replace(line, stage=Stage.MOVED, at=self._time()))
            return DeleteResult(item.key, Outcome.DELETED, f"moved to {line.url}")
        if result.outcome is Outcome.CHANGED:
            self._withdraw(item, copy, line)
        return result

    def _withdraw(self, item: TransitionItem, copy: Copy, line: MoveRecord) -> None:
        """
        Remove the copy of an original that stays, if this attempt made it and no other attempt uses it.

        We first record the withdrawal and then look for other records. Other attempts first write their
        record and then look for withdrawals. One of the two always sees the other, so a copy in use stays.
        """
        if not copy.ours or copy.held is None or self.originals.is_gone(item):
            return
        self.moves.append(replace(line, stage=Stage.WITHDRAWN))
        if not others_hold(self.moves.lines(line.bucket, line.key), line):
            self.location.remove(copy.held)

    def _not_copied(self, item: TransitionItem, why: str) -> DeleteResult:
        """Find out whether the original changed or the name was taken; the failed request does not say."""
        now = self.originals.look(item, may_be_hidden=True)
        if now.problem:
            return DeleteResult(item.key, now.outcome, now.problem)
        return DeleteResult(item.key, Outcome.FAILED, why)

    def _broken(
        self, item: TransitionItem, copy: Copy, held: StoredCopy | None, original: SourceVersion
    ) -> DeleteResult:
        """Discard a damaged copy; the original was not touched."""
        url = self.location.url(copy.name)
        if held is None:
            return DeleteResult(item.key, Outcome.FAILED, f"the copy at {url} disappeared")
        if copy.ours and held.mark == original.mark:
            self.location.remove(held)
            return DeleteResult(item.key, Outcome.FAILED, f"the copy at {url} was damaged and is removed")
        why = f"the copy at {url} is damaged; check it and remove it"
        return DeleteResult(item.key, Outcome.FAILED, why)

    def _recorded(self, item: TransitionItem) -> list[MoveRecord]:
        """Return the records of earlier attempts of this run."""
        lines = self.moves.lines(self.originals.objects.bucket, item.key)
        return [
            move
            for move in current_records(lines)
            if (move.version, move.etag, move.run) == (item.version, item.etag, self.run)
        ]

    def _moved_before(
        self, item: TransitionItem, now: SourceState, before: list[MoveRecord]
    ) -> DeleteResult | None:
        """Return the result if a version is gone because an earlier attempt of this run moved it."""
        if now.found is not None and now.found.etag == item.etag:
            return None
        for move in before:
            if self._is_held(item, move):
                if move.stage is not Stage.MOVED:
                    self.moves.append(replace(move, stage=Stage.MOVED, writer=self.writer, at=self._time()))
                return DeleteResult(item.key, Outcome.DELETED, f"moved to {move.url}")
        return None

    def _is_held(self, item: TransitionItem, move: MoveRecord) -> bool:
        modified = datetime.fromisoformat(move.modified)
        known = VersionIdentity(move.bucket, item.key, item.version, item.etag, modified)
        held = self.location.find(target_name(known, self.location.root))
        return held is not None and (held.mark, held.size) == (known.mark, move.size)

    def _line(self, item: TransitionItem, found: S3Object, name: str) -> MoveRecord:
        return MoveRecord(
            bucket=self.originals.objects.bucket,
            key=item.key,
            version=item.version,
            etag=item.etag,
            size=found.size,
            modified=format_instant(found.modified),
            location=self.location_name,
            url=self.location.url(name),
            rules=item.rules,
            run=self.run,
            wave=item.batch,
            stage=Stage.COPIED,
            at=self._time(),
            writer=self.writer,
        )

    def _time(self) -> str:
        return format_instant(self.clock())


def refused(item: TransitionItem, broken: EbbtideError) -> DeleteResult:
    """Return the result of an item that failed with an error."""
    outcome = getattr(broken, "outcome", Outcome.FAILED)
    return DeleteResult(item.key, outcome, str(broken))
