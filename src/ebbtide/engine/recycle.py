"""Recycle: the actor that sets items aside in a recycle bin instead of deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ebbtide.core.bin_label import items_of, label_of
from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, planned_etags, refuse, store_deleter, unknown_items
from ebbtide.engine.object_bin import ObjectBin
from ebbtide.storage.rate_limit import polite_move
from ebbtide.storage.store import DeleteResult, MoveRequest, StoreSpec, open_store

_BACK = "an interrupted attempt had set it aside, and it was brought back: {}"
_SILENT = "the store did not answer for this key"
_TAKEN = "the bin has other content under this name, so it was left in its place; make a new plan"


def store_actor(bin_: ObjectBin, plan: Manifest, attempt: Attempt) -> Actor:
    """
    Return the actor that removes objects of the bin's store: into the bin if the plan says so, or for good.

    An object is removed only if it still has the ETag that was planned, and never from the bin itself. The
    label is written first, so that every folder of the bin has one.
    """
    contents, label = bin_.contents, label_of(plan, attempt.now())
    spec = contents.store.spec
    if label is None:
        return store_deleter(spec, attempt, not_below=contents.root, by_etag=True)
    contents.write(label)
    place = items_of(contents.root, label.folder)
    return Recycler(spec, attempt, place, contents.root, by_etag=True)


@dataclass(frozen=True)
class Recycler:
    """
    Moves the rows of one partition into a run's folder of the bin.

    Repeating it is safe: items that are in the folder already were set aside by the same run, because no
    other run has a folder of this name.
    """

    store: StoreSpec
    attempt: Attempt
    place: str
    """The folder of the items, each under its own address; it ends with a slash."""
    not_below: str
    """A folder from which nothing is moved, such as the target's metadata or its bin."""
    by_etag: bool = False
    """Whether an object is moved only if it has the ETag that was planned."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Set the rows aside, batch by batch."""
        for batch in batches:
            yield self._set_aside(batch)

    def _set_aside(self, batch: Any) -> Any:
        addresses = batch.column("address").to_pylist()
        kept = batch.column("kept_because").to_pylist()
        results = {
            address: refused
            for address, reason in zip(addresses, kept, strict=True)
            if (refused := refuse(address, reason, not_below=self.not_below))
        }
        if self.attempt.resumed:
            results |= self._brought_back([one for one in results.values() if one.outcome is Outcome.CHANGED])
        etags = planned_etags(batch) if self.by_etag else {}
        results = unknown_items(etags) | results
        wanted = [address for address in addresses if address not in results]
        moved = self._move(
            [MoveRequest(address, self.place + address, etags.get(address)) for address in wanted]
        )
        results |= {address: _settled(moved[address]) for address in wanted}
        return self.attempt.outcomes(batch, [results[address] for address in addresses])

    def _brought_back(self, needed: list[DeleteResult]) -> dict[str, DeleteResult]:
        """Bring back items that the interrupted attempt set aside and that were referenced since."""
        moved = self._move([MoveRequest(self.place + one.key, one.key) for one in needed])
        found = {}
        for one in needed:
            result = moved[self.place + one.key]
            if result.outcome is Outcome.DELETED and not result.reason:
                found[one.key] = replace(one, reason=_BACK.format(one.reason))
            elif not result.outcome.is_final:
                found[one.key] = DeleteResult(one.key, result.outcome, result.reason)
        return found

    def _move(self, requests: list[MoveRequest]) -> dict[str, DeleteResult]:
        found: dict[str, DeleteResult] = {}
        reason = _SILENT
        try:
            store, options = open_store(self.store), self.attempt.options
            rate = options.rate_for(self.store, self.attempt.tasks)
            for result in polite_move(store, requests, rate, options.page):
                found[result.key] = result
        except EbbtideError as broken:
            # What was moved before the store broke down is in `found`; the rest failed and is tried again.
            reason = str(broken)
        for request in requests:
            found.setdefault(request.source, DeleteResult(request.source, Outcome.FAILED, reason))
        return found


def _settled(moved: DeleteResult) -> DeleteResult:
    """Return the outcome of a move as the outcome of a run."""
    if moved.outcome is Outcome.DELETED:
        return replace(moved, outcome=Outcome.RECYCLED)
    if moved.outcome is Outcome.TAKEN:
        return DeleteResult(moved.key, Outcome.FAILED, _TAKEN)
    return moved
