"""What other programs do to a lake behind the back of its catalog, and what the disk says afterwards."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import update
from tests.services.lake import REPOSITORY, Lake

from ebbtide.core.decision import Decision
from ebbtide.core.manifest import Manifest
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.ranges import ENTRIES, metadata_key, write_metarange, write_range
from ebbtide.targets.repository.model import COMMITTED, RangeInfo


def objects_folder(lake: Lake) -> Path:
    """Give the folder that is the lake's namespace."""
    return lake.shop.root.parent / "objects"


def data_files(lake: Lake) -> set[str]:
    """Look on the disk which data objects are there; a link is none."""
    folder = objects_folder(lake)
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix() for path in files if "_lakefs" not in path.parts}


def held_by(lake: Lake, manifest: Manifest) -> dict[str, str]:
    """Give the addresses that a rule touched and a plan keeps all the same, with what holds each."""
    rows = stream_decisions(lake.folder(manifest), Decision.HELD)
    return {row["address"]: row["holder"] for row in rows}


def make_undeletable(lake: Lake, address: str) -> Path:
    """Put a link in an object's place, which a store of files does not delete; give where the object is."""
    file, aside = objects_folder(lake) / address, lake.shop.root.parent / "aside"
    file.rename(aside)
    file.symlink_to(aside)
    return aside


def entry(lake: Lake, key: str, address: str) -> dict[str, Any]:
    """Make the row of an entry that is written now."""
    return {"key": key, "address": address, "created": lake.clock(), "size": 1, "checksum": ""}


def commit_unchecked(lake: Lake, branch: str, rows: list[dict[str, Any]]) -> None:
    """Commit entries whose addresses are spelled as another writer spells them."""
    info = write_range(lake.store, COMMITTED, pa.Table.from_pylist(rows, ENTRIES))
    _replace_head(lake, branch, info)


def commit_foreign_range(lake: Lake, branch: str, data: bytes, *keys: str) -> None:
    """Commit a range of another program's format; its name fits its bytes, as it would there."""
    content_id = hashlib.sha256(data).hexdigest()
    lake.store.write(metadata_key(COMMITTED, content_id), data)
    _replace_head(lake, branch, RangeInfo(content_id, keys[0], keys[-1], len(keys)))


def parquet_of(table: pa.Table) -> bytes:
    """Write a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _replace_head(lake: Lake, branch: str, info: RangeInfo) -> None:
    commit = lake.catalog.commit(REPOSITORY, branch, "by another writer", allow_empty=True)
    metarange = write_metarange(lake.store, COMMITTED, [info])
    table = schema.commits
    with lake.catalog._database.writing() as connection:
        connection.execute(update(table).where(table.c.id == commit.id).values(metarange_id=metarange))
    # What was replaced has no commit any more, and would look like lost history.
    lake.catalog.forget_history(REPOSITORY, None, "another writer")
