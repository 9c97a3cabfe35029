"""What runs, restores and emptied bins did since the last scan, so that a listing can mark it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from ebbtide.core.decision import EMPTY_BIN, Outcome
from ebbtide.engine.burials import outcome_folders
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.tables.row_counts import counted_files
from ebbtide.state.runs import Ledger, Run
from ebbtide.targets.oci.inventory.snapshots import scan_times
from ebbtide.targets.oci.purge.known import Known
from ebbtide.targets.oci.records.model import LogKind

EMPTIED = "delete from the recycle bin"
"""What the log says of an image that somebody emptied out of the bin."""
RESTORED = "assign its policy again, because it was restored"
"""What the log says of a restored tag or manifest that has a date of its own."""
BACK = "restored from the recycle bin"
"""What the log says of one that has none."""
_GONE = [str(outcome) for outcome in Outcome if outcome.is_gone]


class Place(StrEnum):
    """Where an image of the last scan is now, as far as Ebbtide knows."""

    PRESENT = "present"
    IN_BIN = "in the bin"
    GONE = "gone"


@dataclass(frozen=True)
class _Fact:
    """Something that happened to a tag, or to a manifest with all its tags."""

    at: datetime
    place: Place


class RemovedImages:
    """What became of the images of a scan since then."""

    def __init__(self, facts: dict[str, _Fact], scanned: dict[str, datetime]) -> None:
        self._facts, self._scanned = facts, scanned

    def place(self, repository: str, digest: str, tag: str) -> Place:
        """Say where an image is that the last scan saw under this tag."""
        since = self._scanned.get(repository)
        known = [self._facts.get(name) for name in (f"{repository}@{digest} {tag}", f"{repository}:{tag}")]
        later = [fact for fact in known if fact is not None and (since is None or fact.at >= since)]
        if not later:
            return Place.PRESENT
        last = max(later, key=lambda fact: fact.at)
        emptied = self._facts.get(f"{repository}@{digest}")
        # What is taken out of the bin says nothing of an image that was restored before.
        left_bin = last.place is Place.IN_BIN and emptied is not None and emptied.at >= last.at
        return Place.GONE if left_bin else last.place


def removed_images(known: Known, root: Path, ledger: Ledger) -> RemovedImages:
    """Read what happened to the images of a registry since its repositories were scanned."""
    scanned = scan_times(known.folder)
    first = min(scanned.values(), default=known.scanned_at)
    removed = list(_removed_tags(known, root, ledger, first))
    recycled = [fact.at for _, fact in removed if fact.place is Place.IN_BIN]
    # Only what went into the bin since the scan can be looked for there.
    emptied = _emptied(known, root, ledger, min(recycled)) if recycled else ()
    facts: dict[str, _Fact] = {}
    for name, fact in (*removed, *emptied, *_log_facts(known, first)):
        if name not in facts or facts[name].at <= fact.at:
            facts[name] = fact
    return RemovedImages(facts, scanned)


def _removed_tags(known: Known, root: Path, ledger: Ledger, first: datetime) -> Iterator[tuple[str, _Fact]]:
    """Give the tags that runs removed, from the table of removed items: past runs are not read."""
    for row in RemovedTable(root, ledger, known.uid).gone_since(first):
        in_bin = row["outcome"] == Outcome.RECYCLED
        place = Place.IN_BIN if in_bin else Place.GONE
        yield f"{row['address']} {row['version'] or ''}", _Fact(row["at"], place)


def _emptied(known: Known, root: Path, ledger: Ledger, first: datetime) -> Iterator[tuple[str, _Fact]]:
    """Give the manifests that runs deleted from the bin, which the table of removed items does not have."""
    for run in ledger.runs_since(known.uid, first, EMPTY_BIN):
        for row in _rows(root, ledger, run):
            # Spark's timestamps come without a zone; the session's is UTC.
            yield row["address"], _Fact(row["at"].replace(tzinfo=UTC), Place.GONE)


def _rows(root: Path, ledger: Ledger, run: Run) -> Iterator[dict[str, Any]]:
    for folder in outcome_folders(root, ledger, run.run_id):
        files = [str(file) for file in counted_files(folder)]
        if files:
            table = ds.dataset(files, format="parquet")
            gone = ds.field("outcome").isin(_GONE)
            yield from table.to_table(columns=["address", "at"], filter=gone).to_pylist()


def _log_facts(known: Known, first: datetime) -> Iterator[tuple[str, _Fact]]:
    """Give the tags that people restored, and the manifests that they emptied out of the bin."""
    places = {RESTORED: Place.PRESENT, BACK: Place.PRESENT, EMPTIED: Place.GONE}
    for entry in known.records.log(known.uid, kind=LogKind.IMAGE):
        if entry.at < first:
            return
        of_tag = "@" not in entry.subject
        if entry.what in places and not entry.refused and of_tag == (entry.what != EMPTIED):
            yield entry.subject, _Fact(entry.at, places[entry.what])
