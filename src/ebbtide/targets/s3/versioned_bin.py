"""
The bin of a bucket that keeps versions: everything in it is identified by version ids.

A version is copied into the bin before it is deleted. An object that expires only gets a delete marker; the
bin has a note of it, an empty object, so that a restore knows which marker to remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.bin_label import Label
from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.engine.actor import Attempt
from ebbtide.engine.bin import BinItem
from ebbtide.engine.object_bin import StoreBin
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.s3_copy import Sizes, copy_to_key, has_same_bytes
from ebbtide.storage.s3_objects import About, Refusal, S3Object, S3Objects, open_objects
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.storage.store import DeleteResult, StoreSpec
from ebbtide.targets.s3.actions.deleter import BucketActor
from ebbtide.targets.s3.actions.requests import PlannedItem, planned_items
from ebbtide.targets.s3.model import BIN_ROOT, Action, is_in_bin

COPY, MARKER = "copy", "marker"
VERSIONS = "versions"
"""The form of a folder of the bin whose items are named after versions."""

_BEFORE = "it was restored before"
_NEWER = "there is another object in its place"
_MARKERS = frozenset({"405", "MethodNotAllowed"})
"""The error codes of a server for a request of a delete marker's content."""


class Kept(NamedTuple):
    """The version that an item of the bin stands for, and whether it is a copy or a note of a marker."""

    key: str
    version: str
    kind: str

    @property
    def address(self) -> str:
        """Its name in the bin; version ids have no slash, so the name can be parsed again."""
        return f"{self.key}/{self.version}/{self.kind}"


def kept_of(address: str) -> Kept:
    """Parse a name in the bin."""
    return Kept(*address.rsplit("/", 2))


@dataclass(frozen=True)
class VersionBin(StoreBin):
    """A bin whose labels and items are removed with all their versions."""

    spec: StoreSpec = field(default_factory=lambda: StoreSpec(""))

    def named(self, label: Label, key: str) -> Iterator[BinItem]:
        """Stream the items of one key in a run's folder."""
        for item in self.items(label, f"{key}/"):
            if item.address.count("/") >= 2 and kept_of(item.address).key == key:
                yield item

    def remove(self, key: str) -> None:
        """Remove an object of the bin without leaving a delete marker."""
        VersionKeeper(self.spec).forget(key)


@dataclass(frozen=True)
class VersionKeeper:
    """Copies versions into the bin and restores them; every step can be repeated."""

    spec: StoreSpec
    sizes: Sizes = field(default_factory=Sizes)

    @property
    def objects(self) -> S3Objects:
        """The bucket's objects, by whole keys."""
        return open_objects(self.spec)

    def is_marker(self, key: str, version: str) -> bool:
        """Return True if a version is a delete marker, which has no content that could be lost."""
        try:
            self.objects.describe(key, version)
        except Refusal as no:
            if no.code in _MARKERS:
                return True
            raise
        return False

    def keep(self, key: str, version: str, etag: str | None, name: str) -> DeleteResult | None:
        """Make a verified copy of a version; return a result if the version must not be deleted."""
        found = self.objects.describe(key, version)
        if found is None:
            self.objects.check_bucket()
            held = self.objects.describe(name)
            return None if held else DeleteResult(key, Outcome.ABSENT)
        if etag and found.etag != etag:
            return DeleteResult(key, Outcome.CHANGED, "its content differs from the plan")
        return self._copied(found, name, key)

    def note(self, name: str) -> None:
        """Write the note of an object that is about to get a delete marker."""
        if self.objects.describe(name) is None:
            self.objects.put(name, b"", About())

    def forget(self, name: str) -> None:
        """Remove a name of the bin with all its versions."""
        for row in self.rows(name):
            self.objects.remove_version(name, row.version_id)

    def rows(self, key: str) -> list[VersionRow]:
        """List the versions and markers of one key, the newest first."""
        pages = open_bucket(self.spec).version_rows(key, up_to=key)
        return [row for rows in pages for row in rows if row.key == key]

    def restore(self, kept: Kept, name: str) -> DeleteResult:
        """Restore one item, unless that would hide another object."""
        try:
            outcome, reason = self._unmarked(kept) if kept.kind == MARKER else self._put_back(kept, name)
            if outcome is Outcome.DELETED:
                self.forget(name)
        except Refusal as no:
            return DeleteResult(name, Outcome.FAILED if no.changed else no.outcome, str(no))
        except EbbtideError as broken:
            return DeleteResult(name, Outcome.FAILED, str(broken))
        return DeleteResult(name, outcome, reason)

    def current(self, key: str) -> str | None:
        """Return the id of a key's current version; None if it is unknown."""
        try:
            found = self.objects.describe(key)
        except EbbtideError:
            return None
        return found.version if found else None

    def _put_back(self, kept: Kept, name: str) -> tuple[Outcome, str]:
        held, current = self.objects.describe(name), self.objects.describe(kept.key)
        if held is None:
            self.objects.check_bucket()
            return (Outcome.DELETED, _BEFORE) if current else (Outcome.ABSENT, "")
        if current is None:
            refused = self._copied(held, kept.key, name)
            return (refused.outcome, refused.reason) if refused else (Outcome.DELETED, "")
        # A restore that was killed before it removed the copy in the bin has made it the current version.
        same = has_same_bytes(self.objects, held, current, self.sizes)
        return (Outcome.DELETED, _BEFORE) if same else (Outcome.TAKEN, _NEWER)

    def _unmarked(self, kept: Kept) -> tuple[Outcome, str]:
        """Remove the delete marker directly above a version, if nothing came after it."""
        rows = self.rows(kept.key)
        if rows and rows[0].version_id == kept.version:
            return Outcome.DELETED, _BEFORE
        if all(row.version_id != kept.version for row in rows):
            return Outcome.ABSENT, "the version that was hidden is gone"
        if not rows[0].is_delete_marker or rows[1].version_id != kept.version:
            return Outcome.TAKEN, "the key has something newer than the version"
        self.objects.remove_version(kept.key, rows[0].version_id)
        current = self.objects.describe(kept.key)
        same = current is not None and current.version in (None, kept.version)
        return (Outcome.DELETED, "") if same else (Outcome.FAILED, "the version is still not the current one")

    def _copied(self, found: S3Object, name: str, key: str) -> DeleteResult | None:
        """Copy to a free name, or accept an existing object with the same content."""
        held = self.objects.describe(name)
        ours = held is None
        if ours:
            copy_to_key(self.objects, found, name, self.sizes)
            held = self.objects.describe(name)
        if held is not None and has_same_bytes(self.objects, found, held, self.sizes):
            return None
        if ours and held is not None and held.version:
            self.objects.remove_version(name, held.version)
        return DeleteResult(key, Outcome.FAILED, f"there is no whole copy at {name}")


_THREADS = 8
_KINDS = {Action.DELETE_VERSION: COPY, Action.EXPIRE: MARKER}


@dataclass(frozen=True)
class VersionRecycler:
    """Acts on the rows of one task; a version is deleted only if the bin has a verified copy."""

    usual: BucketActor
    spec: StoreSpec
    attempt: Attempt
    place: str
    """The folder of the run's items; it ends with a slash."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Copy what would be lost, let the usual actor act, and report removed items as recycled."""
        left: list[Any] = []
        aside: dict[tuple[str, str], PlannedItem] = {}
        for batch in batches:
            items = list(planned_items([batch]))
            with ThreadPoolExecutor(_THREADS) as threads:
                kept = list(threads.map(self._keep, items))
            stays = pa.array([isinstance(result, DeleteResult) for result in kept], pa.bool_())
            refused = [result for result in kept if isinstance(result, DeleteResult)]
            if refused:
                rows = batch.filter(stays)
                yield self.attempt.outcomes(rows, refused)
            left.append(batch.filter(pc.invert(stays)))
            found = zip(items, kept, strict=True)
            aside |= {(item.key, item.version): item for item, result in found if result is True}
        # All rows at once, because the deleter checks all versions of a key together.
        yield from (self._settled(done, aside) for done in self.usual(part for part in left if part.num_rows))

    def _keep(self, item: PlannedItem) -> DeleteResult | bool:
        """Return True if the bin can undo the action, False if nothing is lost, or why it must not act."""
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

    def _settled(self, done: Any, aside: dict[tuple[str, str], PlannedItem]) -> Any:
        """Report removed items that can be restored as `recycled`, and drop the copies of the others."""
        outcomes = done.column("outcome").to_pylist()
        names = zip(done.column("address").to_pylist(), done.column("version").to_pylist(), strict=True)
        for place, ((key, version), outcome) in enumerate(zip(names, outcomes, strict=True)):
            item = aside.get((key, version or "null"))
            if item is not None:
                outcomes[place] = self._outcome(item, Outcome(outcome))
        column = done.schema.get_field_index("outcome")
        return done.set_column(column, "outcome", pa.array(outcomes, pa.string()))

    def _outcome(self, item: PlannedItem, outcome: Outcome) -> str:
        gone = outcome in {Outcome.DELETED, Outcome.HIDDEN} or (
            outcome is Outcome.ABSENT and item.action != Action.EXPIRE
        )
        if gone:
            return str(Outcome.RECYCLED)
        if outcome.is_final:
            # The item stays, or another client hid it: this run has nothing to undo.
            try:
                VersionKeeper(self.spec).forget(self._name(item))
            except EbbtideError:
                # A superfluous copy in the bin goes with its expiry.
                return str(outcome)
        return str(outcome)

    def _name(self, item: PlannedItem) -> str:
        return self.place + Kept(item.key, item.version, _KINDS[Action(item.action or "")]).address


@dataclass(frozen=True)
class VersionBinDeleter:
    """Deletes items of the bin on an executor, with all their versions, and nothing outside it."""

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
