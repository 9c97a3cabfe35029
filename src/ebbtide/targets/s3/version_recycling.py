"""Acting on a bucket that keeps versions when what would be lost is to be set aside first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.engine.actor import Attempt
from ebbtide.storage.store import DeleteResult, StoreSpec
from ebbtide.targets.s3.acting import BucketActor
from ebbtide.targets.s3.actions.planned import Planned, planned_items, versions_of
from ebbtide.targets.s3.bin_place import BIN_ROOT, is_in_bin
from ebbtide.targets.s3.model import Action
from ebbtide.targets.s3.version_bin import COPY, MARKER, Kept, VersionKeeper

_THREADS = 8
_KINDS = {Action.DELETE_VERSION: COPY, Action.EXPIRE: MARKER}


@dataclass(frozen=True)
class VersionRecycler:
    """Does all that the rows of one task ask for; a version is deleted only if the bin has a proven copy."""

    usual: BucketActor
    spec: StoreSpec
    attempt: Attempt
    place: str
    """Below which the items of the run lie; it ends in a slash."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Keep what would be lost, act as always, and say of what is gone then that it was set aside."""
        left: list[Any] = []
        aside: dict[tuple[str, str], Planned] = {}
        for batch in batches:
            items = list(planned_items([batch]))
            with ThreadPoolExecutor(_THREADS) as threads:
                kept = list(threads.map(self._keep, items))
            stays = pa.array([isinstance(result, DeleteResult) for result in kept], pa.bool_())
            refused = [result for result in kept if isinstance(result, DeleteResult)]
            if refused:
                rows = batch.filter(stays)
                yield self.attempt.outcomes(rows, refused, versions_of(rows))
            left.append(batch.filter(pc.invert(stays)))
            found = zip(items, kept, strict=True)
            aside |= {(item.key, item.version): item for item, result in found if result is True}
        # All at once: who deletes looks at all the rows of a key together.
        yield from (self._settled(done, aside) for done in self.usual(part for part in left if part.num_rows))

    def _keep(self, item: Planned) -> DeleteResult | bool:
        """Have in the bin what undoes an action: True if it has, False if nothing is lost, or why not."""
        if item.action not in _KINDS or item.kept is not None or is_in_bin(item.key):
            return False
        try:
            keeper, name = VersionKeeper(self.spec), self._name(item)
            if item.action == Action.EXPIRE:
                keeper.note(name)
                return True
            if keeper.is_marker(item.key, item.version):
                return False
            return keeper.keep(item.key, item.version, item.etag, name) or True
        except EbbtideError as broken:
            return DeleteResult(item.key, getattr(broken, "outcome", Outcome.FAILED), str(broken))

    def _settled(self, done: Any, aside: dict[tuple[str, str], Planned]) -> Any:
        """Say `recycled` of what is gone and can be restored, and forget what was kept of the rest."""
        outcomes = done.column("outcome").to_pylist()
        names = zip(done.column("address").to_pylist(), done.column("version").to_pylist(), strict=True)
        for place, ((key, version), outcome) in enumerate(zip(names, outcomes, strict=True)):
            item = aside.get((key, version or "null"))
            if item is not None:
                outcomes[place] = self._outcome(item, Outcome(outcome))
        column = done.schema.get_field_index("outcome")
        return done.set_column(column, "outcome", pa.array(outcomes, pa.string()))

    def _outcome(self, item: Planned, outcome: Outcome) -> str:
        gone = outcome in {Outcome.DELETED, Outcome.HIDDEN} or (
            outcome is Outcome.ABSENT and item.action != Action.EXPIRE
        )
        if gone:
            return str(Outcome.RECYCLED)
        if outcome.is_final:
            # It stays, or somebody else hid it: then there is nothing of ours to undo.
            try:
                VersionKeeper(self.spec).forget(self._name(item))
            except EbbtideError:
                # What is too much in the bin goes with its expiry.
                return str(outcome)
        return str(outcome)

    def _name(self, item: Planned) -> str:
        return self.place + Kept(item.key, item.version, _KINDS[Action(item.action or "")]).address


@dataclass(frozen=True)
class VersionBinDeleter:
    """Deletes items of such a bin on an executor, with all their versions, and reaches nothing else."""

    spec: StoreSpec
    attempt: Attempt

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Delete the rows of one task."""
        for batch in batches:
            with ThreadPoolExecutor(_THREADS) as threads:
                results = list(threads.map(self._delete, batch.column("address").to_pylist()))
            yield self.attempt.outcomes(batch, results)

    def _delete(self, name: str) -> DeleteResult:
        if not name.startswith(BIN_ROOT):
            return DeleteResult(name, Outcome.DENIED, f"not below {BIN_ROOT}")
        try:
            keeper = VersionKeeper(self.spec)
            if not keeper.rows(name):
                again = self.attempt.is_repeated()
                return DeleteResult(name, Outcome.DELETED if again else Outcome.ABSENT)
            keeper.forget(name)
        except EbbtideError as broken:
            return DeleteResult(name, getattr(broken, "outcome", Outcome.FAILED), str(broken))
        return DeleteResult(name, Outcome.DELETED)
