"""Reading a recycle bin from its store alone: which runs set what aside, and until when it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ebbtide.core.errors import EbbtideError, MetadataError, NotFound
from ebbtide.core.recycling import Label, items_of, label_from_json, label_key
from ebbtide.storage.store import DeleteRequest, Store

OnDamage = Callable[[EbbtideError], None]


class FolderGone(NotFound):
    """A folder of the bin is not there: nothing was set aside, or all of it was restored or emptied since."""


@dataclass(frozen=True)
class BinItem:
    """One item in the bin: which run's folder has it, where it was, and how large it is."""

    folder: str
    run: int
    address: str
    size: int


@dataclass(frozen=True)
class Bin:
    """The recycle bin of one target: a folder of its store that nothing but the bin's own plans reach."""

    store: Store
    root: str
    target_uid: str

    def labels(self, on_damage: OnDamage) -> list[Label]:
        """Give the labels of all folders, the oldest run first; another target's are no concern of ours."""
        found = []
        for name in self.store.children(self.root):
            if not name.endswith("/"):
                continue
            try:
                label = self.label(name[:-1])
            except (MetadataError, NotFound) as broken:
                # Some stores show a folder for a while after the last that was in it is gone.
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
        """Say why a folder has no label: something is wrong with it, or it is not there (any more)."""
        fix = "see 'ebb recycle ls' for what the bin has"
        if self._has_something(f"{folder}/"):
            return NotFound(
                f"{folder!r} in the recycle bin has no label",
                why="until when its items are kept is unknown, so they are left alone",
                fix=fix,
            )
        return FolderGone(
            f"the recycle bin has no {folder!r}",
            why="nothing was set aside there, or all of it was restored or emptied since",
            fix=fix,
        )

    def _has_something(self, name: str) -> bool:
        """Tell whether anything lies in a folder, which is given with its slash."""
        return any(batch.num_rows for batch in self.store.list(self.root + name))

    def write(self, label: Label) -> None:
        """Write a label; it must be there before the first item is."""
        self.store.write(label_key(self.root, label.folder), label.to_json().encode())

    def items(self, label: Label, prefix: str = "") -> Iterator[BinItem]:
        """Stream what lies in a run's folder, or what of it begins so, however much it is."""
        place = items_of(self.root, label.folder)
        for batch in self.store.list(place + prefix):
            for key, size in zip(batch["key"].to_pylist(), batch["size"].to_pylist(), strict=True):
                yield BinItem(label.folder, label.run, key[len(place) :], size)

    def find(self, label: Label, address: str) -> BinItem | None:
        """Look for one item in a run's folder."""
        try:
            info = self.store.stat(self.place_of(label.folder, address))
        except NotFound:
            return None
        return BinItem(label.folder, label.run, address, info.size)

    def place_of(self, folder: str, address: str) -> str:
        """Name an item's place in the bin."""
        return items_of(self.root, folder) + address

    def tidy(self, label: Label) -> bool:
        """Remove the label of a folder that has no item left, and tell whether that was so."""
        if any(batch.num_rows for batch in self.store.list(items_of(self.root, label.folder))):
            return False
        self.remove(label_key(self.root, label.folder))
        return True

    def named(self, label: Label, name: str) -> Iterator[BinItem]:
        """Stream what a run's folder has of one name."""
        item = self.find(label, name)
        if item is not None:
            yield item

    def remove(self, key: str) -> None:
        """Remove an object of the bin for good."""
        self.store.delete([DeleteRequest(key)])
