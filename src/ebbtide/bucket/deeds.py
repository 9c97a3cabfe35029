"""Deeds: what runs have done to the versions and uploads of a key, looked up in their plans and outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from ebbtide.bucket.model import Action, Versioning
from ebbtide.bucket.sources import planned_rules
from ebbtide.engine.burials import GONE, outcome_folders
from ebbtide.engine.layout import run_folder
from ebbtide.ledger.runs import Ledger, Run
from ebbtide.plan.decision import EMPTY_BIN, RESTORE, Outcome
from ebbtide.store.s3_objects import NULL

_MOVED = "moved to "
_WORDS = {
    Action.DELETE_VERSION: "deleted it for good",
    Action.REMOVE_DELETE_MARKER: "removed this delete marker",
    Action.ABORT_UPLOAD: "aborted this upload",
}


@dataclass(frozen=True)
class Deed:
    """What one run did to one version, delete marker or upload, when, and by which rules."""

    version: str
    """The version's id or the upload's."""
    action: Action
    run_id: int
    at: datetime
    rules: tuple[str, ...]
    outcome: Outcome
    reason: str
    versioning: Versioning
    """How the bucket was versioned then, which decides what expiring an object did."""

    @property
    def ended_it(self) -> bool:
        """Tell whether the version is gone since then; what has its id now is something else."""
        if self.action is Action.EXPIRE:
            done = self.outcome in (Outcome.DELETED, Outcome.RECYCLED)
            return done and (self.versioning is Versioning.DISABLED or self._was_replaced)
        if self.outcome is Outcome.ABSENT:
            return True
        return self.action is not Action.TRANSITION or self.reason.startswith(_MOVED)

    @property
    def what(self) -> str:
        """Say what was done, in words that go on after "the run"."""
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
        """Tell whether the delete marker took the version's own id, as null markers do."""
        return self.versioning is Versioning.SUSPENDED and self.version == NULL


def find_deeds(root: Path, ledger: Ledger, target_uid: str, key: str) -> list[Deed]:
    """Find all that runs on a bucket did to a key, the last first; without Spark."""
    return [deed for run in reversed(ledger.runs(target_uid)) for deed in _of_run(root, ledger, run, key)]


def _of_run(root: Path, ledger: Ledger, run: Run, key: str) -> list[Deed]:
    if run.collector in (EMPTY_BIN, RESTORE):
        # Of the bin's own runs the keys are the bin's; what they did to an object the bin tells.
        return []
    gone = ds.field("outcome").isin(GONE)
    rows = [row for folder in outcome_folders(root, ledger, run.run_id) for row in _rows(folder, key, gone)]
    if not rows:
        return []
    tasks = [row["task"] for row in _rows(run_folder(root, run.run_id).plan, key)]
    actions = {task["version"]: Action(task["action"]) for task in tasks}
    versioning = planned_rules(run.policy).versioning
    found: dict[str, Deed] = {}
    for row in rows:
        version = row["version"]
        deed = Deed(
            version or NULL,
            actions[version],
            run.run_id,
            # Spark's timestamps come without a zone; the session's is UTC.
            row["at"].replace(tzinfo=UTC),
            tuple(row["rules"]),
            Outcome(row["outcome"]),
            row["reason"] or "",
            versioning,
        )
        known = found.get(deed.version)
        # What one attempt did a later one finds done.
        if known is None or known.outcome is Outcome.ABSENT:
            found[deed.version] = deed
    return list(found.values())


def _rows(folder: Path, key: str, wanted: ds.Expression | None = None) -> Iterator[dict[str, Any]]:
    """Read the rows of a table that are about a key."""
    about = ds.field("address") == key
    table = ds.dataset(folder, format="parquet", exclude_invalid_files=False)
    yield from table.to_table(filter=about if wanted is None else about & wanted).to_pylist()
