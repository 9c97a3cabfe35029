"""Removing objects of a store for a target without an actor of its own, against an oracle of dictionaries."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.engine.collector import Context, Identity
from ebbtide.engine.object_bin import ObjectBin
from ebbtide.engine.recycle import store_actor
from ebbtide.storage.store import StoreSpec, open_store

BIN, FOLDER = ".bin/", "000001-0123456789ab"
KEYS = ("a", "b/c", f"{BIN}000000-x/items/a", f"{BIN}000000-x/label.json")
_CONDITION = pa.struct([("etag", pa.string()), ("is_latest", pa.bool_()), ("newer_versions", pa.int32())])
NEEDED = "referenced since the plan was made"

rows = st.fixed_dictionaries(
    {
        "stored": st.sampled_from([None, b"planned", b"rewritten"]),
        "etag": st.sampled_from(["planned", "unknown"]),
        "kept": st.booleans(),
    }
)


def expected(key: str, row: dict, *, recycles: bool) -> tuple[str, bytes | None, bytes | None]:
    """Return the outcome of a row, and what lies at its key and in the bin afterwards."""
    there = row["stored"]
    if row["kept"]:
        return "changed", there, None
    if key.startswith(BIN) or row["etag"] == "unknown":
        return "denied", there, None
    if there is None:
        return "absent", None, None
    if there == b"rewritten":
        return "changed", there, None
    return ("recycled", None, there) if recycles else ("deleted", None, None)


@settings(deadline=None, max_examples=60)
@given(st.fixed_dictionaries(dict.fromkeys(KEYS, rows)), st.booleans())
def test_only_the_planned_content_outside_the_bin_goes(world, recycles):
    """What was rewritten, is needed, lies in the bin, or has no known content stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        spec = StoreSpec(Path(folder).as_uri())
        store = open_store(spec)
        etags = {}
        for key, row in world.items():
            store.write(key, b"planned")
            etags[key] = store.stat(key).etag if row["etag"] == "planned" else None
            if row["stored"] != b"planned":
                Path(folder, key).unlink()
            if row["stored"] == b"rewritten":
                store.write(key, b"rewritten")
        recycling = SimpleNamespace(folder=FOLDER, days=7) if recycles else None
        plan = SimpleNamespace(
            recycling=recycling,
            run_id=1,
            target="files:x",
            target_uid="uid",
            collector="files",
            policy_hash="",
            rehearsal=False,
        )
        context = Context(Path(folder), None, lambda: datetime(2026, 1, 1, tzinfo=UTC))
        own_bin = ObjectBin.in_store(context, Identity("files:x", "uid", spec.url), spec, BIN)
        actor = store_actor(own_bin, plan, Attempt(DeleteOptions(), 1, 0, resumed=False))
        (done,) = actor([planned(world, etags)])
        found = {
            key: (outcome, read(folder, key), read(folder, f"{BIN}{FOLDER}/items/{key}"))
            for key, outcome in zip(world, done.column("outcome").to_pylist(), strict=True)
        }
        labelled = Path(folder, BIN, FOLDER, "label.json").is_file()

    assert {key: expected(key, row, recycles=recycles) for key, row in world.items()} == found
    assert recycles == labelled


def planned(world, etags) -> pa.RecordBatch:
    """Make the rows of a batch."""
    conditions = [{"etag": etags[key], "is_latest": None, "newer_versions": None} for key in world]
    columns = {
        "hash": pa.array(range(len(world)), pa.int64()),
        "address": pa.array(list(world)),
        "rules": pa.array([["old"]] * len(world)),
        "size": pa.array([1] * len(world), pa.int64()),
        "version": pa.nulls(len(world), pa.string()),
        "action": pa.array(["delete"] * len(world)),
        "condition": pa.array(conditions, _CONDITION),
        "batch": pa.array([0] * len(world), pa.int32()),
        "kept_because": pa.array([NEEDED if row["kept"] else None for row in world.values()], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def read(folder, key) -> bytes | None:
    """Read a file, if it is there."""
    file = Path(folder, key)
    return file.read_bytes() if file.is_file() else None
