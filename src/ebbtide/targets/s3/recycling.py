"""
Setting aside what expires in a bucket without versions, in place of deleting it.

A bucket that keeps versions has other ways to undo and other things to lose: see `version_recycling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError, NotFound
from ebbtide.core.instant import to_micros
from ebbtide.engine.actor import Attempt
from ebbtide.storage.rate_limit import polite_move
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.store import DeleteResult, MoveRequest, Store, StoreSpec, open_store
from ebbtide.targets.s3.acting import BucketActor
from ebbtide.targets.s3.actions.judging import RETIMED, same_moment
from ebbtide.targets.s3.actions.planned import Planned, planned_items, versions_of
from ebbtide.targets.s3.bin_place import BIN_ROOT, is_in_bin
from ebbtide.targets.s3.model import Action, Versioning

_UNKNOWN = "its content is not known to the plan, so it cannot be told whether it is still the same"
_TAKEN = "the bin has another content under this name, so it was left in its place; plan again"


@dataclass(frozen=True)
class BucketRecycler:
    """Does all that the rows of one task ask for; what expires goes into the bin."""

    usual: BucketActor
    spec: StoreSpec
    attempt: Attempt
    place: str
    """Below which each object lies under its own key; it ends in a slash."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Set aside first; moves and aborted uploads are for who always does them."""
        gathered = list(batches)
        expiring = [pc.equal(_actions(batch), str(Action.EXPIRE)) for batch in gathered]
        for batch, chosen in zip(gathered, expiring, strict=True):
            rows = batch.filter(chosen)
            if rows.num_rows:
                results = self._set_aside(list(planned_items([rows])))
                yield self.attempt.outcomes(rows, results, versions_of(rows))
        rest = [batch.filter(pc.invert(chosen)) for batch, chosen in zip(gathered, expiring, strict=True)]
        yield from self.usual(batch for batch in rest if batch.num_rows)

    def _set_aside(self, items: Sequence[Planned]) -> list[DeleteResult]:
        try:
            results = self._looked_at(items)
            store, options = open_store(self.spec), self.attempt.options
            left = [item for item in items if item.number not in results]
            requests = [MoveRequest(item.key, self.place + item.key, item.etag) for item in left]
            rate = options.rate_for(self.spec, self.attempt.tasks)
            moved = {result.key: result for result in polite_move(store, requests, rate, options.page)}
        except EbbtideError as broken:
            return [DeleteResult(item.key, Outcome.FAILED, str(broken)) for item in items]
        return [results.get(item.number) or _settled(moved[item.key]) for item in items]

    def _looked_at(self, items: Sequence[Planned]) -> dict[int, DeleteResult]:
        """Give the results of what must not be touched: it is not what was planned, or cannot be told."""
        versioning = open_bucket(self.spec).versioning()
        if versioning != Versioning.DISABLED:
            why = (
                f"the bucket's versioning is {versioning} now, and the plan was made for one without versions"
            )
            return {item.number: DeleteResult(item.key, Outcome.CHANGED, why) for item in items}
        store = open_store(self.spec)
        found = {item.number: _problem(store, item) for item in items}
        return {number: problem for number, problem in found.items() if problem is not None}


def _problem(store: Store, item: Planned) -> DeleteResult | None:
    """Say why an object is not to be set aside; what is not there any more is the move's to tell."""
    refused = _refused(item)
    if refused is not None:
        return refused
    try:
        info = store.stat(item.key)
    except NotFound:
        return None
    except EbbtideError as broken:
        return DeleteResult(item.key, Outcome.FAILED, str(broken))
    # The same content may have been written again, and then its days begin anew.
    same = same_moment(item.micros, to_micros(info.last_modified))
    return None if same else DeleteResult(item.key, Outcome.CHANGED, RETIMED)


def _refused(item: Planned) -> DeleteResult | None:
    if item.kept is not None:
        return DeleteResult(item.key, Outcome.CHANGED, item.kept)
    if is_in_bin(item.key):
        return DeleteResult(item.key, Outcome.DENIED, "it lies in the recycle bin")
    return None if item.etag else DeleteResult(item.key, Outcome.DENIED, _UNKNOWN)


def _settled(moved: DeleteResult) -> DeleteResult:
    if moved.outcome is Outcome.DELETED:
        return replace(moved, outcome=Outcome.RECYCLED)
    return replace(moved, outcome=Outcome.FAILED, reason=_TAKEN) if moved.outcome is Outcome.TAKEN else moved


def _actions(batch: Any) -> Any:
    return pc.struct_field(batch.column("task"), "action")


def warnings_of_the_bin(spec: StoreSpec) -> tuple[str, ...]:
    """Warn if the bucket's own lifecycle rules, which the server carries out, reach the bin."""
    found = open_bucket(spec).lifecycle() or {}
    reaching = [str(rule.get("ID", "(no id)")) for rule in found.get("Rules", ()) if _reaches_bin(rule)]
    if not reaching:
        return ()
    names = ", ".join(sorted(reaching))
    may = "the server may delete what lies there before its days are over"
    return (f"the bucket's own lifecycle rules ({names}) reach its recycle bin, {BIN_ROOT}: {may}",)


def _reaches_bin(rule: Mapping[str, Any]) -> bool:
    """Tell whether a rule that can end objects is about keys in the bin, whatever else it filters by."""
    chosen = rule.get("Filter") or {}
    prefix = chosen.get("Prefix") or (chosen.get("And") or {}).get("Prefix") or rule.get("Prefix") or ""
    ends = rule.get("Status") == "Enabled" and "Expiration" in rule
    return ends and (BIN_ROOT.startswith(prefix) or prefix.startswith(BIN_ROOT))
