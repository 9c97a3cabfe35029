"""Plans that are not as they were made, manifest or table: nothing is deleted by them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.services.lake import RAW_30_DAYS, Lake, make_lake

from ebbtide.core.decision import Decision
from ebbtide.core.errors import EbbtideError, MetadataError, StalePlan
from ebbtide.core.manifest import Manifest, manifest_from_json
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import sample_decisions, stream_decisions
from ebbtide.engine.tables.row_counts import RECORD, adopt_counts
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark


def refusal(lake: Lake, manifest: Manifest, kind: type[EbbtideError]) -> EbbtideError:
    """Apply a plan that must be refused, see that no object is gone, and give the error."""
    before = lake.stored()
    with pytest.raises(kind) as refused:
        lake.apply(manifest)

    assert kind is type(refused.value)
    assert before == lake.stored()
    assert {} == lake.outcomes(manifest)
    return refused.value


Rows = Callable[[pa.Table], pa.Table]


def rewriting(change: Rows) -> Callable[[Path], None]:
    """Change the rows of a Parquet file, as somebody with an editor for it would."""

    def damage(file: Path) -> None:
        pq.write_table(change(pq.ParquetFile(file).read()), file)
        forget_checksum(file)

    return damage


def forget_checksum(file: Path) -> None:
    """Remove Hadoop's checksum, so that it is not what finds the damage."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def with_column(name: str, value: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Make a change of every value of one column."""

    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        values = [value(old) for old in table.column(name).to_pylist()]
        return table.set_column(index, name, pa.array(values, table.schema.field(name).type))

    return rewriting(change)


def cut_in_half(file: Path) -> None:
    """Lose the second half of a file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    forget_checksum(file)


def emptied(file: Path) -> None:
    """Lose all of a file but its name."""
    file.write_bytes(b"")
    forget_checksum(file)


def to_another_batch(file: Path) -> None:
    """Give the rows of a batch another number."""
    file.parent.rename(file.parent.with_name("batch=9"))


TABLE_DAMAGES = {
    "another address": with_column("address", lambda old: old[:-1] + "x"),
    "another deadline": with_column("deadline", lambda old: old.replace(year=2000)),
    "another rule": with_column("rules", lambda _old: ["another"]),
    "another time": with_column("created", lambda old: old.replace(year=2000)),
    "another action": with_column("action", lambda _old: "another"),
    "another version": with_column("version", lambda _old: "another"),
    "another hash": with_column("hash", lambda old: old + 2),
    "a row less": rewriting(lambda table: table.slice(1)),
    "a row twice": rewriting(lambda table: pa.concat_tables([table, table.slice(0, 1)])),
    "no hashes": rewriting(lambda table: table.drop_columns(["hash"])),
    "numbers as addresses": rewriting(
        lambda table: table.set_column(1, "address", pa.array(range(table.num_rows)))
    ),
    "a file removed": Path.unlink,
    "a file cut": cut_in_half,
    "a file emptied": emptied,
    "another batch": to_another_batch,
    "a batch removed": lambda file: shutil.rmtree(file.parent),
}

MANIFEST_CHANGES = [
    {"digest": "0" * 64},
    {"policy_hash": "0" * 64},
    {"target_uid": "another"},
    {"collector": "another"},
    {"format": 1},
    {"format": 2},
    {"format": 4},
    {"namespace": "file:///elsewhere"},
    {"policy": "{}"},
    {"waves": 7},
    {"batches": 7},
    {"now": "2026-02-09T12:00:00Z"},
    {"made_at": "2026-02-11T12:00:00Z"},
    {"snapshot": {"sequence": 10_000}},
    {"run_id": 2},
]


@pytest.fixture(scope="module")
def manifest_text(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a real manifest; altering it needs no Spark."""
    lake = make_lake(spark, tmp_path_factory.mktemp("lake"))
    lake.policy(RAW_30_DAYS)
    return lake.plan().to_json()


@pytest.mark.parametrize("change", MANIFEST_CHANGES, ids=str)
def test_an_altered_manifest_is_refused(manifest_text, change):
    """A manifest of which anything was altered is damaged, so nothing can be deleted by it."""
    with pytest.raises(MetadataError, match=r"was altered|has format"):
        manifest_from_json(json.dumps(json.loads(manifest_text) | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"plan_hash": 1}', "\0"])
def test_a_manifest_that_is_no_manifest_is_refused(tmp_path, text):
    """A cut or foreign manifest is a damaged plan, never an empty one."""
    folder = run_folder(tmp_path, 1)
    folder.path.mkdir(parents=True)
    folder.manifest_file.write_text(text)
    with pytest.raises(MetadataError, match="What to do: make a new plan"):
        folder.read_manifest()


def test_a_manifest_that_the_ledger_does_not_know_is_refused(lake):
    """A manifest that fits itself and its table, but is not the one that was recorded, deletes nothing."""
    manifest = lake.plan()
    forged = replace(manifest, collector="another")
    refused = refusal(lake, forged, StalePlan)

    assert RunState.PLANNED == lake.state(manifest)
    assert "make a new plan" == refused.fix


SEEN_BY_APPLY_ALONE = {
    "another deadline",
    "another rule",
    "another time",
    "another action",
    "another version",
    "another batch",
}
"""Of a due row `ebb plan show` compares the item; an apply compares the whole row, with Spark."""
SEEN_AT_ONCE = {"a row less", "a row twice", "a file removed", "a file cut", "a batch removed"}
"""Also seen by who reads only the first rows."""


def test_an_altered_plan_table_is_refused(lake):
    """A plan table with other rows, columns or batches than were planned is neither applied nor shown."""
    manifest = lake.plan(batch_size=3)
    plan = lake.folder(manifest).plan
    pristine = shutil.copytree(plan, plan.with_name("pristine"))
    for name, damage in TABLE_DAMAGES.items():
        shutil.rmtree(plan)
        shutil.copytree(pristine, plan)
        damage(max(plan.rglob("*.parquet"), key=lambda file: file.parent.name))
        # Who alters a table may alter its record too.
        (plan / RECORD).unlink()
        with suppress(MetadataError):
            adopt_counts(plan)
        refused = refusal(lake, manifest, MetadataError)

        assert (name, "make a new plan") == (name, refused.fix)
        assert RunState.PLANNED == lake.state(manifest)
        if name not in SEEN_BY_APPLY_ALONE:
            with pytest.raises(MetadataError, match="make a new plan"):
                list(stream_decisions(lake.folder(manifest), Decision.DUE))
        if name in SEEN_AT_ONCE:
            with pytest.raises(MetadataError, match="make a new plan"):
                sample_decisions(lake.folder(manifest), Decision.DUE, 1)
    shutil.rmtree(plan)
    pristine.rename(plan)

    assert 5 == len(list(stream_decisions(lake.folder(manifest), Decision.DUE)))
    assert 5 == lake.apply(manifest).freed.objects
