"""The folder of a run under the state root, and the names of its files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.core.manifest import Manifest, manifest_from_json
from ebbtide.engine.tables.row_counts import adopt_counts
from ebbtide.state.runs import Ledger

OnStep = Callable[[str], None]
"""Called after every durable step; tests crash there."""


def no_step(step: str) -> None:
    """Ignore steps."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its tables, and the manifest whose presence makes them a plan."""

    path: Path

    @property
    def manifest_file(self) -> Path:
        """The small document that is written last."""
        return self.path / "manifest.json"

    @property
    def verdicts(self) -> Path:
        """The verdict on every item that a rule touched; earlier versions named the folder `standings`."""
        earlier = self.path / "standings"
        return earlier if earlier.is_dir() else self.path / "verdicts"

    @property
    def removed(self) -> Path:
        """The removed items as the plan knew them: links to segments of the target's table."""
        return self.path / "removed"

    @property
    def buried_file(self) -> Path:
        """The outcomes of earlier runs that a plan of an earlier version of Ebbtide builds on."""
        return self.path / "buried.json"

    @property
    def plan(self) -> Path:
        """What would be deleted, by batch."""
        return self.path / "plan"

    @property
    def snapshot(self) -> Path:
        """What the collector read, for re-verification at apply."""
        return self.path / "snapshot"

    @property
    def scratch(self) -> Path:
        """Temporary tables of a collector."""
        return self.path / "scratch"

    @property
    def run_id(self) -> int:
        """The number of the run."""
        return int(self.path.name)

    @property
    def wanted(self) -> Path:
        """The items to restore, page by page; only a restore has this folder."""
        return self.path / "wanted"

    def outcomes(self, batch: int, attempt: int) -> Path:
        """Return the folder of an attempt's outcomes; earlier versions named it `wave-`."""
        name = f"{batch:05d}-attempt-{attempt:03d}"
        earlier = self.path / "outcomes" / f"wave-{name}"
        return earlier if earlier.is_dir() else self.path / "outcomes" / f"batch-{name}"

    def kept(self, sequence: int) -> Path:
        """Return the table of items that verification took out of the plan, at a sequence of the target."""
        return self.path / "kept" / f"sequence-{sequence}"

    def read_manifest(self) -> Manifest:
        """Read the plan's manifest; without one there is no plan."""
        try:
            manifest = manifest_from_json(self.manifest_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NotFound(f"there is no plan {self.path.name}", fix="list them with 'ebb runs'") from None
        except (OSError, UnicodeDecodeError) as broken:
            raise MetadataError(f"{self.manifest_file} cannot be read: {broken}") from None
        if not manifest.is_counted:
            self._adopt(manifest)
        return manifest

    def _adopt(self, manifest: Manifest) -> None:
        """Record the rows of tables that an earlier version wrote, so that its runs can still be read."""
        adopt_counts(self.plan, manifest.summary.due.objects)
        for table in (self.snapshot, self.verdicts / "base", self.verdicts / "since"):
            adopt_counts(table)


def run_folder(root: Path, run_id: int) -> RunFolder:
    """Return the folder of a run."""
    return RunFolder(root / "runs" / f"{run_id:06d}")


def outcome_folders(root: Path, ledger: Ledger, run_id: int) -> list[Path]:
    """List the folders of a run's outcomes whose attempts are finished in the ledger."""
    folder = run_folder(root, run_id)
    for batch, attempt in ledger.uncounted_attempts(run_id):
        adopt_counts(folder.outcomes(batch, attempt))
    found = [
        folder.outcomes(batch, attempt)
        for batch, attempts in ledger.batch_attempts(run_id).items()
        for attempt, finished in attempts
        if finished
    ]
    # A user has accepted that outcomes before this number may be missing.
    return [place for place in found if place.is_dir()] if run_id < ledger.acceptance() else found


@contextmanager
def scratch_folder(root: Path) -> Iterator[RunFolder]:
    """Yield a temporary folder like a run's for something that is not a run."""
    (root / "runs").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=root / "runs") as place:
        yield RunFolder(Path(place))
