"""Metadata that is missing, damaged or senseless stops a run; nothing is deleted or half-recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import update
from tests.services.lake import REPOSITORY, Lake

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.errors import AddressError, EbbtideError, MetadataError, PolicyError
from ebbtide.state.runs import RunState
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.ranges import (
    ENTRIES,
    metadata_key,
    metarange_key,
    write_metarange,
    write_range,
)
from ebbtide.targets.repository.model import COMMITTED

pytestmark = pytest.mark.spark


def corrupt(file: Path) -> None:
    """Flip some bytes in the middle."""
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4] = bytes(255 - byte for byte in data[middle : middle + 4])
    file.write_bytes(data)


def truncate(file: Path) -> None:
    """Lose the second half."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "corrupt": corrupt,
    "truncated": truncate,
    "missing": Path.unlink,
}


def metadata_files(lake: Lake, ref: str) -> dict[str, Path]:
    """Give the file of a commit's metarange and of its last range."""
    metarange = next(iter(lake.catalog.log(REPOSITORY, ref))).metarange_id
    content = lake.catalog._content(lake.catalog.repository(REPOSITORY).namespace)
    folder = lake.shop.root.parent / "objects"
    return {
        "metarange": folder / metarange_key(COMMITTED, metarange),
        "range": folder / metadata_key(COMMITTED, content.ranges(metarange)[-1].id),
    }


@contextmanager
def damaged(file: Path, damage: Callable[[Path], None]) -> Iterator[None]:
    """Damage a file for the block."""
    data = file.read_bytes()
    damage(file)
    yield
    file.write_bytes(data)


def bad_runs(lake: Lake, kind: str, job: Callable[[], object]) -> dict[str, EbbtideError]:
    """Run a job once for each damage that must stop it; give the errors."""
    found = {}
    for name, damage in DAMAGES.items():
        with damaged(metadata_files(lake, "main")[kind], damage), pytest.raises(EbbtideError) as stopped:
            job()
        found[name] = stopped.value
    return found


@pytest.mark.parametrize("kind", ["range", "metarange"])
def test_a_plan_stops_at_damaged_metadata(lake, kind):
    """A corrupt, truncated or missing range or metarange stops planning; no plan and no object is touched."""
    before = lake.listing()
    stopped = bad_runs(lake, kind, lake.plan)

    assert dict.fromkeys(DAMAGES, MetadataError) == {name: type(error) for name, error in stopped.items()}
    assert dict.fromkeys(DAMAGES, 3) == {name: error.exit_code for name, error in stopped.items()}
    assert all("What to do: restore the file" in str(error) for error in stopped.values())
    assert "is missing" in stopped["missing"].what
    assert "is damaged" in stopped["truncated"].what
    assert [RunState.ABANDONED] * 3 == [run.state for run in lake.ledger.runs()]
    assert [] == list((lake.shop.root / "runs").iterdir())
    assert before == lake.listing()
    assert 5 == lake.plan().summary.due.objects


@pytest.mark.parametrize("kind", ["range", pytest.param("metarange", marks=pytest.mark.long)])
def test_an_apply_stops_at_damaged_new_metadata(lake, kind):
    """Metadata written after the plan is read at apply; while it is damaged, nothing is deleted."""
    manifest = lake.plan()
    lake.upload("zoo/1")
    lake.commit()
    before = lake.listing()
    stopped = bad_runs(lake, kind, lambda: lake.apply(manifest))

    assert dict.fromkeys(DAMAGES, MetadataError) == {name: type(error) for name, error in stopped.items()}
    assert {} == lake.outcomes(manifest)
    assert before == lake.listing()
    assert RunState.FAILED == lake.state(manifest)
    assert 5 == lake.apply(manifest).freed.objects


def rewrite_head(lake: Lake, rows: list[dict]) -> None:
    """Put a range of our own into the head commit, as a broken writer would."""
    info = write_range(lake.store, COMMITTED, pa.Table.from_pylist(rows, ENTRIES))
    metarange = write_metarange(lake.store, COMMITTED, [info])
    commits = schema.commits
    head = lake.catalog.branches(REPOSITORY)["main"]
    metadata_files(lake, "main")["metarange"].unlink()
    with lake.catalog._database.writing() as connection:
        connection.execute(update(commits).where(commits.c.id == head).values(metarange_id=metarange))


def test_a_plan_stops_at_a_senseless_range(lake):
    """An address without a canonical form, or keys out of order, stop planning with what is wrong."""
    plain = {"created": lake.clock(), "size": 1, "checksum": ""}
    rewrite_head(lake, [{"key": "raw/1", "address": "a/../../b", **plain}])
    with pytest.raises(AddressError) as unclear:
        lake.plan()
    rewrite_head(lake, [{"key": key, "address": key, **plain} for key in ("raw/2", "raw/1")])
    with pytest.raises(MetadataError, match="not sorted by key"):
        lake.plan()

    assert 3 == unclear.value.exit_code
    assert "a/../../b" in str(unclear.value)
    assert [RunState.ABANDONED] * 2 == [run.state for run in lake.ledger.runs()]


def test_a_plan_stops_at_an_unreadable_policy(lake):
    """A policy that cannot be read stops planning before there is a run."""
    lake.catalog.set_policy(REPOSITORY, "{ no policy", "json")
    with pytest.raises(PolicyError) as unreadable:
        lake.plan()

    assert 2 == unreadable.value.exit_code
    assert [] == lake.ledger.runs()


def test_what_the_command_line_says(lake, monkeypatch, tmp_path, capsys):
    """`ebb plan` says what it found, why it stopped and what to do, exits 3 or 2, and leaves no plan."""
    config = tmp_path / "ebbtide.toml"
    config.write_text(
        f'root = "{lake.shop.root}"\n[catalog]\nurl = "sqlite:///{tmp_path}/catalog.db"\n'
        f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n'
    )

    @contextmanager
    def shared_spark(*_):
        yield lake.spark

    monkeypatch.setattr(State, "spark", shared_spark)
    ebb = ["--config", str(config)]
    plan = [*ebb, "plan", "lake:lake", "--now", "2026-02-10"]
    with damaged(metadata_files(lake, "main")["range"], truncate):
        stopped = run(plan)
    said = capsys.readouterr()
    listed = run([*ebb, "runs", "--json"])
    runs = json.loads(capsys.readouterr().out)
    lake.catalog.set_policy(REPOSITORY, "{ no policy", "json")
    refused = run(plan)

    assert (3, 0, 2) == (stopped, listed, refused)
    assert "is damaged" in said.err
    assert "nothing may be deleted" in said.err
    assert "restore the file from a backup" in said.err
    assert "Traceback" not in said.err + said.out
    assert [("abandoned", None)] == [(run["state"], run["plan_hash"]) for run in runs]
    assert "policy is not readable as json" in capsys.readouterr().err
