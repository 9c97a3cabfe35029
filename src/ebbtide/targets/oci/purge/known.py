"""What the last scan knows of a repository, without Spark: for listing and explaining what is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.engine.tables.row_counts import counted_files
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.inventory.snapshots import (
    IMAGES_FOLDER,
    TAGS_FOLDER,
    check_snapshot,
    snapshot_folder,
)
from ebbtide.targets.oci.model import Image, Tag
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.records.model import Mark, Target
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.tables import assigned_of, image_of, tag_of

Row = dict[str, Any]
_BATCH = 8192


@dataclass(frozen=True)
class Known:
    """The current snapshot of a registry, with what people have said of its images."""

    folder: Path
    uid: str
    records: ImageRecords
    scanned_at: datetime

    def tags(self, repository: str = "") -> Iterator[tuple[str, str, Tag]]:
        """Stream all tags, or those of a repository, each with its repository and its digest."""
        for rows in self._rows(TAGS_FOLDER, repository):
            targets = [Target(row["repository"], row["tag"], row["digest"]) for row in rows]
            marks = self.records.marks_of(self.uid, targets)
            for row, target in zip(rows, targets, strict=True):
                yield row["repository"], row["digest"], marked_tag(tag_of(row), target, marks.get(target.key))

    def images(self, repository: str) -> list[Image]:
        """Give all manifests of a repository with their tags, as the oracle takes them."""
        tags: dict[str, list[Tag]] = {}
        for _, digest, tag in self.tags(repository):
            tags.setdefault(digest, []).append(tag)
        found = []
        for rows in self._rows(IMAGES_FOLDER, repository):
            targets = [Target(row["repository"], "", row["digest"]) for row in rows]
            marks = self.records.marks_of(self.uid, targets)
            dates = self.records.creation_dates_of(self.uid, [row["digest"] for row in rows])
            for row, target in zip(rows, targets, strict=True):
                image = image_of(row, tuple(tags.get(row["digest"], ())))
                image = replace(image, created_at=dates.get(image.digest))
                found.append(marked_image(image, marks.get(target.key)))
        return found

    def copied(self, target: Target) -> Assigned | None:
        """Give what the scan copied onto a tag or manifest, None if it is not known as what it is now."""
        key, value = ("tag", target.tag) if target.tag else ("digest", target.digest)
        table = TAGS_FOLDER if target.tag else IMAGES_FOLDER
        for rows in self._rows(table, target.repository, ds.field(key) == value):
            for row in rows:
                if row["digest"] == target.digest:
                    found = assigned_of(row)
                    return None if found == Assigned() else found
        return None

    def _rows(self, table: str, repository: str, among: ds.Expression | None = None) -> Iterator[list[Row]]:
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


def known(records: ImageRecords, root: Path, uid: str, target: str) -> Known:
    """Find the current snapshot of a registry; NotFound before the first scan."""
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
    return Known(folder, uid, records, recorded.scanned_at)


def copied_before(
    records: ImageRecords, root: Path, uid: str, where: str, target: Target
) -> dict[tuple[str, str, str], Assigned]:
    """Find what the last scan copied onto an image, so that the log can say what it had before."""
    try:
        found = known(records, root, uid, where).copied(target)
    except (NotFound, MetadataError):
        # Nobody has scanned it, or the scan is lost: a change must not wait for that.
        return {}
    return {} if found is None else {target.key: found}


def marked_tag(tag: Tag, target: Target, mark: Mark | None) -> Tag:
    """Lay over a tag what people have said of it; `overlay.with_marks` does the same on Spark."""
    if mark is None or _is_silent(mark.assigned):
        return replace(tag, copied=True)
    stays = mark.target.digest == target.digest
    if stays or mark.assigned.can_delete_prior is False:
        return replace(tag, assigned=mark.assigned, copied=mark.by == SYSTEM)
    return replace(tag, copied=True)


def marked_image(image: Image, mark: Mark | None) -> Image:
    """Lay over a manifest what people have said of it, unless the scan itself holds it."""
    if mark is None:
        return image
    quarantine = mark.quarantine or image.quarantine
    held = image.assigned.policy is None and image.assigned.can_delete_prior is False
    assigned = image.assigned if held or _is_silent(mark.assigned) else mark.assigned
    return replace(image, assigned=assigned, quarantine=quarantine)


def _is_silent(assigned: Assigned) -> bool:
    return assigned == Assigned()


def with_names(images: Iterable[Image], digest: str, tag: str) -> Image | None:
    """Find the image of a tag or digest among those of its repository."""
    for image in images:
        if image.digest == digest or any(one.name == tag for one in image.tags if tag):
            return image
    return None
