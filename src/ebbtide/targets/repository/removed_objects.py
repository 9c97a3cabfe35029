"""Objects that runs removed: looked up in the outcomes of runs and in the recycle bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ebbtide.core.bin_label import Label
from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.engine.object_bin import StoreBin
from ebbtide.engine.removed_table import RemovedItem, RestoredItem, find_item
from ebbtide.engine.run_folder import run_folder
from ebbtide.state.runs import Ledger
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.repository.model import RemovedObject


@dataclass(frozen=True)
class RemovedObjects:
    """Knows what the runs of a ledger have deleted from repositories or put into their bins."""

    root: Path
    ledger: Ledger
    bin_root: str
    """The folder of the recycle bin in the namespace of every repository."""
    store_options: Mapping[str, str] = field(default_factory=dict)

    def find(self, url: str, address: str) -> RemovedObject | None:
        """Return what happened to an address of a repository; None if no run removed it."""
        found = find_item(self.root, self.ledger, url, address)
        if not isinstance(found, RemovedItem):
            return None
        label = self._label(found) if found.recycled else None
        until = label.expires if label else None
        return RemovedObject(found.address, found.since, found.run_id, found.rules, label is not None, until)

    def restored(self, url: str, address: str) -> RestoredItem | None:
        """Return when an address was restored and until when it is held; None if it was not restored."""
        found = find_item(self.root, self.ledger, url, address)
        return found if isinstance(found, RestoredItem) else None

    def _label(self, found: RemovedItem) -> Label | None:
        """Return the label of an item that is still in the bin; None if it is not there any more."""
        manifest = run_folder(self.root, found.run_id).read_manifest()
        if manifest.recycling is None:
            return None
        store = open_store(StoreSpec(manifest.namespace, self.store_options))
        contents = StoreBin(store, self.bin_root, manifest.target_uid)
        try:
            label = contents.label(manifest.recycling.folder)
        except (NotFound, MetadataError):
            return None
        return label if contents.find(label, found.address) else None
