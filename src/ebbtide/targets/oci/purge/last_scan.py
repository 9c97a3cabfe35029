"""The last scan of a registry, without Spark, and what was removed since: for listings and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ebbtide.core.decision import EMPTY_BIN, Outcome
from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import outcome_folders
from ebbtide.engine.tables.row_counts import counted_files
from ebbtide.state.runs import Ledger, Run
from ebbtide.targets.oci.inventory.snapshots import (
    IMAGES_FOLDER,
    TAGS_FOLDER,
    check_snapshot,
    scan_times,
    snapshot_folder,
)
from ebbtide.targets.oci.model import Image, Tag
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.purge.marks import marked_image, marked_tag
from ebbtide.targets.oci.records.model import LogKind, Target
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.tables import assigned_of, image_of, tag_of

Row = dict[str, Any]
_BATCH = 8192


@dataclass(frozen=True)
class LastScan:
    """The current snapshot of a registry, with the marks of its images."""

    folder: Path
    uid: str
    records: ImageRecords
    scanned_at: datetime

    def tags(self, repository: str = "") -> Iterator[tuple[str, str, Tag]]:
        """Stream all tags, or those of a repository, each with its repository and its digest."""
        for rows in self._batches(TAGS_FOLDER, repository):
            targets = [Target(row["repository"], row["tag"], row["digest"]) for row in rows]
            marks = self.records.marks_of(self.uid, targets)
            for row, target in zip(rows, targets, strict=True):
                yield row["repository"], row["digest"], marked_tag(tag_of(row), target, marks.get(target.key))

    def images(self, repository: str) -> list[Image]:
        """Return all manifests of a repository with their tags, as the oracle takes them."""
        tags: dict[str, list[Tag]] = {}
        for _, digest, tag in self.tags(repository):
            tags.setdefault(digest, []).append(tag)
        found = []
        for rows in self._batches(IMAGES_FOLDER, repository):
            targets = [Target(row["repository"], "", row["digest"]) for row in rows]
            marks = self.records.marks_of(self.uid, targets)
            dates = self.records.creation_dates_of(self.uid, [row["digest"] for row in rows])
            for row, target in zip(rows, targets, strict=True):
                image = image_of(row, tuple(tags.get(row["digest"], ())))
                image = replace(image, created_at=dates.get(image.digest))
                found.append(marked_image(image, marks.get(target.key)))
        return found

    def copied(self, target: Target) -> Assigned | None:
        """Return what the scan assigned to a tag or manifest, None if it was not seen as it is now."""
        key, value = ("tag", target.tag) if target.tag else ("digest", target.digest)
        table = TAGS_FOLDER if target.tag else IMAGES_FOLDER
        for rows in self._batches(table, target.repository, ds.field(key) == value):
            for row in rows:
                if row["digest"] == target.digest:
                    found = assigned_of(row)
                    return None if found == Assigned() else found
        return None

    def _batches(
        self, table: str, repository: str, among: ds.Expression | None = None
    ) -> Iterator[list[Row]]:
        wanted = ds.field("repository") == repository if repository else None
        if among is not None:
            wanted = among if wanted is None else wanted & among
        files = [str(file) for file in counted_files(self.folder / table)]
        if not files:
            return
        try:
            scanner = ds.dataset(files, format="parquet").scanner(filter=wanted, batch_size=_BATCH)
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch.to_pylist()
        except pa.ArrowException as broken:
            raise MetadataError(
                f"the last scan of the registry cannot be read: {broken}",
                fix="scan again with 'ebb image scan'",
            ) from None


def last_scan(records: ImageRecords, root: Path, uid: str, target: str) -> LastScan:
    """Return the current snapshot of a registry; NotFound before the first scan."""
    recorded = records.snapshot(uid)
    if recorded is None:
        raise NotFound(f"{target} was never scanned", fix=f"run 'ebb image scan {target}' first")
    folder = snapshot_folder(root, uid, recorded.folder)
    if not folder.is_dir():
        raise MetadataError(
            "the last scan of the registry is not under the state root",
            why=f"{folder.name} should be there",
            fix="restore the state root from a backup",
        )
    check_snapshot(folder)
    return LastScan(folder, uid, records, recorded.scanned_at)


def copied_before(
    records: ImageRecords, root: Path, uid: str, where: str, target: Target
) -> dict[tuple[str, str, str], Assigned]:
    """Return what the last scan assigned to an image, so that the log can show it."""
    try:
        found = last_scan(records, root, uid, where).copied(target)
    except (NotFound, MetadataError):
        # It was never scanned, or the scan is lost: a change must not wait for that.
        return {}
    return {} if found is None else {target.key: found}


def with_names(images: Iterable[Image], digest: str, tag: str) -> Image | None:
    """Find the image of a tag or digest among those of its repository."""
    for image in images:
        if image.digest == digest or any(one.name == tag for one in image.tags if tag):
            return image
    return None


EMPTIED = "delete from the recycle bin"
"""What the log says about an image that a user removed from the bin."""
RESTORED = "assign its policy again, because it was restored"
"""What the log says about a restored tag or manifest that has a date of its own."""
BACK = "restored from the recycle bin"
"""What the log says about one that has none."""
_GONE = [str(outcome) for outcome in Outcome if outcome.is_gone]


class ImagePlace(StrEnum):
    """Where an image of the last scan is now, as far as Ebbtide knows."""

    PRESENT = "present"
    IN_BIN = "in the bin"
    GONE = "gone"


@dataclass(frozen=True)
class _Fact:
    """Something that happened to a tag, or to a manifest with all its tags."""

    at: datetime
    place: ImagePlace


class RemovedImages:
    """What happened to the images of a scan since then."""

    def __init__(self, facts: dict[str, _Fact], scanned: dict[str, datetime]) -> None:
        self._facts, self._scanned = facts, scanned

    def place(self, repository: str, digest: str, tag: str) -> ImagePlace:
        """Return where an image is that the last scan saw under this tag."""
        since = self._scanned.get(repository)
        known = [self._facts.get(name) for name in (f"{repository}@{digest} {tag}", f"{repository}:{tag}")]
        later = [fact for fact in known if fact is not None and (since is None or fact.at >= since)]
        if not later:
            return ImagePlace.PRESENT
        last = max(later, key=lambda fact: fact.at)
        emptied = self._facts.get(f"{repository}@{digest}")
        # An image that was removed from the bin may have been restored before.
        left_bin = last.place is ImagePlace.IN_BIN and emptied is not None and emptied.at >= last.at
        return ImagePlace.GONE if left_bin else last.place


def removed_images(known: LastScan, root: Path, ledger: Ledger) -> RemovedImages:
    """Read what happened to the images of a registry since its repositories were scanned."""
    scanned = scan_times(known.folder)
    first = min(scanned.values(), default=known.scanned_at)
    removed = list(_removed_tags(known, root, ledger, first))
    recycled = [fact.at for _, fact in removed if fact.place is ImagePlace.IN_BIN]
    # Only images that went into the bin since the scan can have left it.
    emptied = _emptied(known, root, ledger, min(recycled)) if recycled else ()
    facts: dict[str, _Fact] = {}
    for name, fact in (*removed, *emptied, *_log_facts(known, first)):
        if name not in facts or facts[name].at <= fact.at:
            facts[name] = fact
    return RemovedImages(facts, scanned)


def _removed_tags(
    known: LastScan, root: Path, ledger: Ledger, first: datetime
) -> Iterator[tuple[str, _Fact]]:
    """Yield the tags that runs removed, from the table of removed items: past runs are not read."""
    for row in RemovedTable(root, ledger, known.uid).gone_since(first):
        in_bin = row["outcome"] == Outcome.RECYCLED
        place = ImagePlace.IN_BIN if in_bin else ImagePlace.GONE
        yield f"{row['address']} {row['version'] or ''}", _Fact(row["at"], place)


def _emptied(known: LastScan, root: Path, ledger: Ledger, first: datetime) -> Iterator[tuple[str, _Fact]]:
    """Yield the manifests that runs deleted from the bin, which the table of removed items does not have."""
    for run in ledger.runs_since(known.uid, first, EMPTY_BIN):
        for row in _outcome_rows(root, ledger, run):
            # Spark's timestamps come without a zone; the session's is UTC.
            yield row["address"], _Fact(row["at"].replace(tzinfo=UTC), ImagePlace.GONE)


def _outcome_rows(root: Path, ledger: Ledger, run: Run) -> Iterator[dict[str, Any]]:
    for folder in outcome_folders(root, ledger, run.run_id):
        files = [str(file) for file in counted_files(folder)]
        if files:
            table = ds.dataset(files, format="parquet")
            gone = ds.field("outcome").isin(_GONE)
            yield from table.to_table(columns=["address", "at"], filter=gone).to_pylist()


def _log_facts(known: LastScan, first: datetime) -> Iterator[tuple[str, _Fact]]:
    """Yield the tags that users restored, and the manifests that they removed from the bin."""
    places = {RESTORED: ImagePlace.PRESENT, BACK: ImagePlace.PRESENT, EMPTIED: ImagePlace.GONE}
    for entry in known.records.log(known.uid, kind=LogKind.IMAGE):
        if entry.at < first:
            return
        of_tag = "@" not in entry.subject
        if entry.what in places and not entry.refused and of_tag == (entry.what != EMPTIED):
            yield entry.subject, _Fact(entry.at, places[entry.what])
