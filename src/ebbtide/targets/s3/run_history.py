"""The run history of a key: what runs did to its versions and uploads, from their plans and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from ebbtide.core.decision import Outcome
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.tables.row_counts import counted_files
from ebbtide.targets.s3.context import planned_rules
from ebbtide.targets.s3.model import NULL, Action, Versioning

_MOVED = "moved to "
_WORDS = {
    Action.DELETE_VERSION: "deleted it for good",
    Action.REMOVE_DELETE_MARKER: "removed this delete marker",
    Action.ABORT_UPLOAD: "aborted this upload",
}


@dataclass(frozen=True)
class PastAction:
    """What one run did to a version, delete marker or upload, when, and by which rules."""

    version: str
    """The id of the version or upload."""
    action: Action
    run_id: int
    at: datetime
    rules: tuple[str, ...]
    outcome: Outcome
    reason: str
    versioning: Versioning
    """The versioning of the bucket at that time, which decides what an expiration did."""

    @property
    def ended_it(self) -> bool:
        """Return True if the version is gone since then. A version with the same id is a new one."""
        if self.action is Action.EXPIRE:
            # Earlier versions of Ebbtide recorded `deleted` for objects that only got a delete marker.
            done = self.outcome in (Outcome.DELETED, Outcome.RECYCLED)
            return done and (self.versioning is Versioning.DISABLED or self._was_replaced)
        if self.outcome is Outcome.ABSENT:
            return True
        return self.action is not Action.TRANSITION or self.reason.startswith(_MOVED)

    @property
    def what(self) -> str:
        """What was done, as a phrase that continues "run N"."""
        if self.outcome is Outcome.ABSENT:
            return "found it gone or hidden already"
        if self.action is Action.TRANSITION:
            moved = self.reason.startswith(_MOVED)
            return (
                f"moved it to {self.reason.removeprefix(_MOVED)}"
                if moved
                else f"changed its class: {self.reason}"
            )
        if self.outcome is Outcome.RECYCLED:
            return f"set it aside in the recycle bin (ebb restore {self.run_id} KEY)"
        if self.action is not Action.EXPIRE:
            return _WORDS[self.action]
        if self.versioning is Versioning.DISABLED:
            return "deleted it for good"
        return f"put a delete marker {'in its place' if self._was_replaced else 'over it'}"

    @property
    def _was_replaced(self) -> bool:
        """Return True if the delete marker replaced the version, as null markers do."""
        return self.versioning is Versioning.SUSPENDED and self.version == NULL


def past_actions(removed: RemovedTable, key: str) -> list[PastAction]:
    """Return the last action of runs on each version and upload of a key, the latest first."""
    return [_past_action(removed, row) for row in removed.find(key) if row["outcome"] != Outcome.RESTORED]


def _past_action(removed: RemovedTable, row: dict[str, Any]) -> PastAction:
    run_id, version = row["run_id"], row["version"]
    action = row["action"] or _planned_action(run_folder(removed.root, run_id).plan, row["address"], version)
    return PastAction(
        version or NULL,
        Action(action),
        run_id,
        row["at"],
        tuple(row["rules"]),
        Outcome(row["outcome"]),
        row["reason"] or "",
        planned_rules(removed.ledger.policy(run_id)).versioning,
    )


def _planned_action(plan: Path, key: str, version: str | None) -> str:
    """Look up the action in a plan; outcomes of earlier versions of Ebbtide do not have it."""
    table = ds.dataset([str(file) for file in counted_files(plan)], format="parquet")
    rows = table.to_table(columns=["task"], filter=ds.field("address") == key).to_pylist()
    return str(next(row["task"]["action"] for row in rows if row["task"]["version"] == version))
