"""
The recycle bin in an object store: a folder for each run, with a label that describes it.

`StoreBin` reads and writes such a folder. `ObjectBin` is the bin of a target whose items are restored by
moves in the store; a target with other needs overrides what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.bin_label import Label, items_of, label_from_json, label_key
from ebbtide.core.decision import Outcome
from ebbtide.core.display import Table
from ebbtide.core.errors import BadInput, EbbtideError, MetadataError, NotFound, StalePlan
from ebbtide.core.format import count, human_bytes, plural
from ebbtide.core.instant import days_after, format_second, to_micros
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.actor import Actor, Attempt, store_deleter
from ebbtide.engine.bin import (
    EXPIRY,
    BinItem,
    BinRows,
    FolderGone,
    Listing,
    OnDamage,
    RecycleBin,
    RestoreChoice,
    Returned,
    Wanted,
)
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Context, Identity, Run
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import run_folder
from ebbtide.storage.store import DeleteRequest, MoveRequest, Store, StoreSpec, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebbtide.engine.apply import Applied

_COLUMNS = ("run", "folder", "found by", "set aside", "kept until", "objects", "bytes")
_FOLDERS = "prefix string, rule string, set_aside long, ends long, held_by string"


@dataclass(frozen=True)
class StoreBin:
    """The recycle bin of one target: a folder of its store that only the bin's own plans delete from."""

    store: Store
    root: str
    target_uid: str

    def labels(self, on_damage: OnDamage) -> list[Label]:
        """Return the labels of the target's folders, the oldest run first."""
        found = []
        for name in self.store.children(self.root):
            if not name.endswith("/"):
                continue
            try:
                label = self.label(name[:-1])
            except (MetadataError, NotFound) as broken:
                # Some stores list a folder for a while after its last object is gone.
                if isinstance(broken, MetadataError) or self._has_something(name):
                    on_damage(broken)
                continue
            if label.target_uid == self.target_uid:
                found.append(label)
        return sorted(found, key=lambda label: (label.run, label.folder))

    def label(self, folder: str) -> Label:
        """Read one folder's label."""
        try:
            text = self.store.read(label_key(self.root, folder)).decode()
        except UnicodeDecodeError:
            text = ""
        except NotFound:
            raise self._unlabelled(folder) from None
        return label_from_json(text, folder)

    def _unlabelled(self, folder: str) -> NotFound:
        """Return the error for a folder without a label: it is damaged, or it does not exist."""
        fix = "see 'ebb recycle ls' for what the bin has"
        if self._has_something(f"{folder}/"):
            return NotFound(
                f"{folder!r} in the recycle bin has no label",
                why="it is unknown until when its items are kept, so they are left alone",
                fix=fix,
            )
        return FolderGone(
            f"the recycle bin has no {folder!r}",
            why="nothing was set aside there, or all of it was restored or deleted since",
            fix=fix,
        )

    def _has_something(self, name: str) -> bool:
        """Return True if a folder (with its slash) is not empty."""
        return any(batch.num_rows for batch in self.store.list(self.root + name))

    def write(self, label: Label) -> None:
        """Write a label; this must happen before the first item is set aside."""
        self.store.write(label_key(self.root, label.folder), label.to_json().encode())

    def items(self, label: Label, prefix: str = "") -> Iterator[BinItem]:
        """Stream the items of a run's folder, or those with a prefix."""
        place = items_of(self.root, label.folder)
        for batch in self.store.list(place + prefix):
            for key, size in zip(batch["key"].to_pylist(), batch["size"].to_pylist(), strict=True):
                yield BinItem(label.folder, label.run, key[len(place) :], size)

    def find(self, label: Label, address: str) -> BinItem | None:
        """Return one item of a run's folder; None if it is not there."""
        try:
            info = self.store.stat(self.place_of(label.folder, address))
        except NotFound:
            return None
        return BinItem(label.folder, label.run, address, info.size)

    def place_of(self, folder: str, address: str) -> str:
        """Return the key of an item in the bin."""
        return items_of(self.root, folder) + address

    def tidy(self, label: Label) -> bool:
        """Remove the label of an empty folder; return True if it was empty."""
        if any(batch.num_rows for batch in self.store.list(items_of(self.root, label.folder))):
            return False
        self.remove(label_key(self.root, label.folder))
        return True

    def named(self, label: Label, name: str) -> Iterator[BinItem]:
        """Stream the items of a run's folder with one name."""
        item = self.find(label, name)
        if item is not None:
            yield item

    def remove(self, key: str) -> None:
        """Remove an object of the bin for good."""
        self.store.delete([DeleteRequest(key)])


def to_addresses(contents: StoreBin, page: Sequence[BinItem]) -> Sequence[Returned]:
    """Move items back to their addresses in the store."""
    requests = [MoveRequest(contents.place_of(one.folder, one.address), one.address) for one in page]
    moved = contents.store.move(requests)
    return [Returned(result, item.address) for item, result in zip(page, moved, strict=True)]


def chosen_labels(contents: StoreBin, choice: RestoreChoice) -> list[Label]:
    """Return the labels of the folders to search, the newest run first; raise if a named one is damaged."""
    if choice.folder is not None:
        label = contents.label(choice.folder)
        if label.target_uid != contents.target_uid:
            raise NotFound(f"{choice.folder!r} is in the bin of another target: {label.target}")
        return [label]
    return contents.labels(lambda _broken: None)[::-1]


class ObjectBin(RecycleBin):
    """The bin of a target whose items are objects of one store."""

    newest_only = True
    """Whether only the newest item is restored if several runs set aside the same name."""

    def __init__(self, context: Context, identity: Identity, contents: StoreBin) -> None:
        self.context = context
        self._identity = identity
        self.contents = contents

    @classmethod
    def in_store(cls, context: Context, identity: Identity, store: StoreSpec, root: str) -> Self:
        """Open the bin of a target below a folder of its store."""
        return cls(context, identity, StoreBin(open_store(store), root, identity.uid))

    @property
    def identity(self) -> Identity:
        """The target that the bin belongs to."""
        return self._identity

    def labels(self, run: int | None, on_damage: OnDamage) -> list[Label]:
        """Return the labels of all folders, or of those of a run."""
        return [label for label in self.contents.labels(on_damage) if run in (None, label.run)]

    def listing(self, run: int | None = None) -> Listing:
        """Count what each run set aside."""
        damage: list[EbbtideError] = []
        found = [(label, self._sum(label)) for label in self.labels(run, damage.append)]
        days = self.context.ledger.recycling_days(self.identity.uid)
        kept = f"set aside for {plural(days, 'day')}" if days else "delete at once, unless a policy says else"
        objects, size = sum(one.objects for _, one in found), sum(one.bytes for _, one in found)
        footer = f"{plural(objects, 'object')}, {human_bytes(size)}; runs {kept}"
        rows = [_row(label, total) for label, total in found]
        runs = [_plain(label) | {"objects": total.objects, "bytes": total.bytes} for label, total in found]
        plain = {"target": self.identity.url, "recycle_days": days, "runs": runs}
        return Listing(Table("Recycle bin", _COLUMNS, rows, (0, 5, 6), footer), plain, tuple(damage))

    def _sum(self, label: Label) -> Tally:
        objects = size = 0
        for item in self.contents.items(label):
            objects, size = objects + 1, size + item.size
        return Tally(label.folder, objects, size)

    def stream(self, run: int | None, on_damage: OnDamage) -> Iterator[tuple[BinItem, datetime]]:
        """Stream every item, folder by folder."""
        for label in self.labels(run, on_damage):
            for item in self.contents.items(label):
                yield item, label.expires

    def damaged(self, found: Sequence[EbbtideError]) -> MetadataError:
        """Make the error for folders that cannot be understood."""
        return MetadataError(
            f"{plural(len(found), 'folder')} of the recycle bin cannot be understood",
            why="all others were read; these are left alone",
            fix="look at the folder's items/ in the store, and remove the folder by hand",
            details=[str(broken.what) for broken in found],
        )

    def choice_of(self, plan: Manifest, items: tuple[str, ...]) -> RestoreChoice:
        """Return the choice of all or some items in a run's folder."""
        if plan.recycling is None:
            raise NotFound(
                f"run {plan.run_id} on {plan.target} sets nothing aside",
                why="it deletes items for good",
                fix="let later runs set items aside: ebb recycle set TARGET --days 14",
            )
        return RestoreChoice(plan.recycling.folder, items)

    def wanted(self, choice: RestoreChoice) -> Wanted:
        """Find items by folder or by name."""
        if not choice.items and choice.folder is None:
            raise BadInput(
                f"nothing of {self.identity.url} is named",
                why="restoring everything in the bin is rarely wanted",
                fix="name a run (ebb restore 7), items, or a folder of the bin with --from",
            )
        labels = tuple(chosen_labels(self.contents, choice))
        if not choice.items:
            items = (item for label in labels for item in self.contents.items(label))
            return Wanted(items, labels, self.plan_of(labels[0]))
        found: dict[tuple[str, str], BinItem] = {}
        gone = []
        for name in dict.fromkeys(choice.items):
            matches = self._find(labels, name)
            fate = None if matches else self._fate(labels, name)
            if fate is not None:
                gone.append(f"{name}: {fate}")
            elif not matches:
                raise NotFound(
                    f"{name!r} is not in the recycle bin",
                    why="nothing was restored",
                    fix="see 'ebb recycle ls' for what the bin has",
                )
            found |= {(item.folder, item.address): item for item in matches}
        return Wanted(list(found.values()), labels, None, tuple(gone))

    def _find(self, labels: Sequence[Label], name: str) -> list[BinItem]:
        """Find the items with a name in folders, the newest folder first."""
        found: list[BinItem] = []
        for label in labels:
            found += self.named(label, name)
            if found and self.newest_only:
                break
        return found

    def _fate(self, labels: Sequence[Label], name: str) -> str | None:
        """Return why the bin does not have an item that a run took away; None if no run did."""
        table = RemovedTable(self.context.root, self.context.ledger, self.identity.uid)
        known = [name, *(address for label in labels for address in self.addresses(label, name))]
        return next((fate for address in known if (fate := fate_outside_bin(table, address))), None)

    def named(self, label: Label, name: str) -> Iterator[BinItem]:
        """Stream the items of a run's folder with a name."""
        return self.contents.named(label, name)

    def addresses(self, label: Label, name: str) -> Iterator[str]:  # noqa: ARG002 (a name is an address)
        """Return more addresses that a name had when a run removed it."""
        return iter(())

    def plan_of(self, label: Label) -> Manifest | None:
        """Return the plan that set aside the items of a folder; None if it is not in this state root."""
        try:
            plan = run_folder(self.context.root, label.run).read_manifest()
        except EbbtideError:
            return None
        return plan if plan.recycling and plan.recycling.folder == label.folder else None

    def bring_back(self, page: Sequence[BinItem], choice: RestoreChoice) -> Sequence[Returned]:  # noqa: ARG002 (they go back as they were)
        """Move items back to their addresses."""
        return to_addresses(self.contents, page)

    def after_restore(self, choice: RestoreChoice, wanted: Wanted, back: int) -> None:  # noqa: ARG002 (the store is the truth)
        """Remove the labels of folders that are empty."""
        for label in wanted.labels:
            self.contents.tidy(label)

    def days_of(self, folder: str) -> int:
        """Hold restored items for as long as their folder keeps items."""
        try:
            return self.contents.label(folder).days
        except EbbtideError:
            return self.context.ledger.recycling_days(self.identity.uid) or 0

    def read(self, item: BinItem) -> bytes:
        """Read an item in the bin."""
        return self.contents.store.read(self.contents.place_of(item.folder, item.address))

    def holding(self, verdicts: DataFrame) -> DataFrame:
        """Move the deadline of every restored item to the end of its hold, if that is later."""
        return self._removed.folded(self.context.clock()).holding(verdicts)

    def held_until(self, address: str) -> datetime | None:
        """Return until when an item is held because it was restored; None if it is not."""
        for row in self._removed.find(address):
            return row["until"] if row["outcome"] == Outcome.RESTORED else None
        return None

    @property
    def _removed(self) -> RemovedTable:
        return RemovedTable(self.context.root, self.context.ledger, self.identity.uid)

    def reach(self) -> Reach:
        """Reach the store that the bin is in."""
        return StoreReach(self.contents.store.spec)

    def check_ready(self) -> None:
        """Raise if the store that the bin is in does not answer."""
        open_store(self.contents.store.spec)

    def expiry(self, run: Run, older_than: int | None) -> BinRows:
        """List the folders whose labels can be read; the others are left alone."""
        damage: list[EbbtideError] = []
        labels = self.contents.labels(damage.append)
        rows = [
            (
                items_of(self.contents.root, label.folder),
                f"recycled by run {label.run}",
                to_micros(label.set_aside),
                to_micros(label.expires if older_than is None else days_after(label.set_aside, older_than)),
                f"set aside {format_second(label.set_aside)} for {label.days} days",
            )
            for label in labels
        ]
        folders = run.spark.createDataFrame(rows, _FOLDERS).repartition(max(1, len(rows)))
        listed = folders.mapInArrow(_FolderLister(self.contents.store.spec), EXPIRY)
        warnings = tuple(f"{broken.what}; what lies there is left alone" for broken in damage)
        return BinRows(listed, {"bins": 1, "bin_folders": len(labels)}, warnings)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if this is no longer the target that was planned."""
        now = self.check_owner()
        if (now.uid, now.namespace) != (plan.target_uid, plan.namespace):
            raise StalePlan(
                f"{plan.target} is now another target of the same name, or lies elsewhere",
                why="the plan was made for something else",
                fix="make a new plan",
            )

    def deleter(self, attempt: Attempt) -> Actor:
        """Delete items of the bin, and nothing else, whatever the plan says."""
        return store_deleter(self.contents.store.spec, attempt, not_below="", only_below=self.contents.root)

    def after_expiry(self, plan: Manifest, applied: Applied) -> None:  # noqa: ARG002 (the store is the truth)
        """Remove the labels of folders that are empty."""
        for label in self.contents.labels(lambda _broken: None):
            self.contents.tidy(label)


def fate_outside_bin(table: RemovedTable, address: str) -> str | None:
    """Return why the bin does not have an item that a run took away; None if no run did."""
    for row in table.find(address):
        if row["outcome"] == Outcome.RESTORED:
            return f"already restored by run {row['run_id']}"
        if row["outcome"] == Outcome.RECYCLED:
            return f"gone from the bin, where run {row['run_id']} had set it aside"
        return f"not in the bin: run {row['run_id']} left it {row['outcome']}"
    return None


def _row(label: Label, total: Tally) -> tuple[object, ...]:
    return (
        label.run,
        label.folder,
        label.collector,
        format_second(label.set_aside),
        format_second(label.expires),
        count(total.objects),
        human_bytes(total.bytes),
    )


def _plain(label: Label) -> dict[str, Any]:
    return {name: getattr(label, name) for name in label.__dataclass_fields__} | {"expires": label.expires}


@dataclass(frozen=True)
class _FolderLister:
    """Lists folders of a bin on an executor; what their labels say goes with each item."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for row in batch.to_pylist():
                for found in store.list(row["prefix"]):
                    yield _with_label(found, row)


def _with_label(found: Any, row: dict[str, Any]) -> Any:
    rows, utc = found.num_rows, pa.timestamp("us", tz="UTC")
    names = pc.utf8_slice_codeunits(found.column("key").cast(pa.string()), len(row["prefix"]))
    columns = {
        "address": found.column("key"),
        "names": pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), names),
        "rule": pa.repeat(pa.scalar(row["rule"]), rows),
        "held_by": pa.repeat(pa.scalar(row["held_by"]), rows),
        "size": found.column("size"),
        "set_aside": pa.repeat(pa.scalar(row["set_aside"], pa.int64()), rows).cast(utc),
        "ends": pa.repeat(pa.scalar(row["ends"], pa.int64()), rows).cast(utc),
    }
    return pa.RecordBatch.from_pydict(columns)
