"""The graveyard of the catalog's readers: what runs took away, looked up in their outcomes and in the bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ebbtide.core.bin_label import Label
from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.engine.burials import Buried, RestoredItem, find_burial
from ebbtide.engine.layout import run_folder
from ebbtide.engine.object_bin import StoreBin
from ebbtide.state.runs import Ledger
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.bin import BIN_ROOT
from ebbtide.targets.lake.catalog.model import RemovedItem


@dataclass(frozen=True)
class RunGraveyard:
    """Knows what the runs of a ledger have deleted or set aside."""

    root: Path
    ledger: Ledger
    store_options: Mapping[str, str] = field(default_factory=dict)

    def lookup(self, repository: str, address: str) -> RemovedItem | None:
        """Say what became of an address of this repository."""
        found = find_burial(self.root, self.ledger, f"lake:{repository}", address)
        if not isinstance(found, Buried):
            return None
        label = self._label(found) if found.recycled else None
        until = label.expires if label else None
        return RemovedItem(found.address, found.since, found.run_id, found.rules, label is not None, until)

    def restored(self, repository: str, address: str) -> RestoredItem | None:
        """Return when an address was restored and until when it is held; None if it was not restored."""
        found = find_burial(self.root, self.ledger, f"lake:{repository}", address)
        return found if isinstance(found, RestoredItem) else None

    def _label(self, found: Buried) -> Label | None:
        """Look whether the bin still has an item; None if it was emptied of it since."""
        manifest = run_folder(self.root, found.run_id).read_manifest()
        if manifest.recycling is None:
            return None
        store = open_store(StoreSpec(manifest.namespace, self.store_options))
        contents = StoreBin(store, BIN_ROOT, manifest.target_uid)
        try:
            label = contents.label(manifest.recycling.folder)
        except (NotFound, MetadataError):
            return None
        return label if contents.find(label, found.address) else None
