"""What a run remembers makes the next one cheaper, and never different."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from tests.services.lake import REPOSITORY

from ebbtide.core.decision import Decision
from ebbtide.core.errors import EbbtideError, MetadataError
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark


def decisions(lake, manifest):
    """Give all rows of a plan's decisions, in an order."""
    rows = [row for kind in Decision for row in stream_decisions(lake.folder(manifest), kind)]
    return sorted(rows, key=lambda row: row["address"])


def memory(lake):
    """Find the folder in which runs remember."""
    (folder,) = (lake.shop.root / "memory" / lake.catalog.repository(REPOSITORY).uid).iterdir()
    return folder


def test_a_second_plan_decodes_only_what_is_new(lake):
    """After one more commit, only that commit's ranges are decoded, and the plan is that of a full run."""
    first = lake.plan()
    lake.upload("raw/1")
    lake.commit()
    second = lake.plan()
    full = lake.plan(full=True)

    assert first.snapshot["ranges"] == first.snapshot["ranges_decoded"]
    assert 1 == second.snapshot["ranges_decoded"]
    assert full.snapshot["ranges"] == full.snapshot["ranges_decoded"]
    assert decisions(lake, full) == decisions(lake, second)


def flip(file):
    """Alter one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def flip_page(file):
    """Alter one bit in the first page of a Parquet file; its footer stays as it is."""
    column = pq.read_metadata(file).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(file.read_bytes())
    data[start + column.total_compressed_size - 1] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("what", ["references", pytest.param("current", marks=pytest.mark.long)])
def test_what_is_damaged_or_gone_is_made_again(lake, what):
    """A plan over a damaged memory is the plan of a full run."""
    lake.plan()
    folder = memory(lake)
    if what == "current":
        (folder / "current.json").write_text("{")
    else:
        for file in [*folder.glob("references/*/*.rows"), *folder.glob("references/*/*.hashes")]:
            flip(file)
    lake.catalog.delete(REPOSITORY, "main", "keep/shared")
    lake.catalog.reset(REPOSITORY, "main", to="main~1")
    again = lake.plan()

    assert decisions(lake, lake.plan(full=True)) == decisions(lake, again)


def test_damaged_verdicts_stop_a_plan(lake):
    """A plan that finds its remembered verdicts altered stops and says so; a full one makes them again."""
    first = lake.plan()
    (touched,) = memory(lake).glob("run-*/base/kind=touched/*.parquet")
    flip_page(touched)
    lake.upload("raw/1")
    with pytest.raises(EbbtideError, match="--full"):
        lake.plan()
    again = lake.plan(full=True)

    assert lake.due(again) == lake.due(lake.plan())
    assert 5 == first.summary.due.objects == again.summary.due.objects
    assert [RunState.PLANNED, RunState.ABANDONED] == [run.state for run in lake.ledger.runs()][:2]


def test_a_plan_is_what_was_counted(lake):
    """Standings that vanish between counting and writing stop the plan: the breaker judged by the count."""

    def vanish(step):
        if step == "verdicts linked":
            base = lake.folder_of(1).verdicts / "base"
            for file in base.rglob("*.parquet"):
                file.unlink()
            record_counts(base, 0)

    with pytest.raises(MetadataError, match="5 items were counted as due, and 0 were written"):
        lake.plan(on_step=vanish)

    assert [RunState.ABANDONED] == [run.state for run in lake.ledger.runs()]
    assert not lake.folder_of(1).path.exists()


@pytest.mark.long
def test_other_rules_begin_anew(lake):
    """Standings that other rules added up are not used, even if the rule's name has stayed the same."""
    lake.plan()
    lake.policy({"old-raw": {"prefix": "keep/", "days": 30}})
    again = lake.plan()

    assert decisions(lake, lake.plan(full=True)) == decisions(lake, again)


@pytest.mark.long
def test_an_address_does_not_outlive_its_references(lake):
    """What was staged, planned with and dropped is neither decided upon nor counted any more."""
    lake.upload("raw/staged", "keep/staged")
    lake.plan()
    lake.catalog.reset(REPOSITORY, "main")
    again = lake.plan()
    full = lake.plan(full=True)

    assert decisions(lake, full) == decisions(lake, again)
    assert full.summary == again.summary


@pytest.mark.long
def test_what_nobody_needs_is_forgotten(lake):
    """Reference files of ranges that nothing reaches any more, and earlier verdicts, do not pile up."""
    lake.upload("raw/staged")
    lake.plan()
    before = {file.name for file in memory(lake).glob("references/*/*.rows")}
    lake.catalog.reset(REPOSITORY, "main")
    lake.plan()
    after = {file.name for file in memory(lake).glob("references/*/*.rows")}

    assert after < before
    assert 1 == len(list(memory(lake).glob("run-*/ranges")))
