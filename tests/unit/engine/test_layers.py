"""Standings that runs share: linked whole, or not at all."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebbtide.core.errors import MetadataError
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import earlier_outcomes
from ebbtide.engine.tables.row_counts import counted_rows, record_counts
from ebbtide.engine.verdicts import Layers


def make_layer(folder, *kinds):
    """Make a table with one row of each kind."""
    folder.mkdir()
    for kind in kinds:
        (folder / f"kind={kind}").mkdir()
        pq.write_table(pa.table({"reason": [kind]}), folder / f"kind={kind}" / "part.parquet")
    record_counts(folder, len(kinds))
    return folder


def test_what_is_needed_is_linked(tmp_path):
    """Of the base only what rules touch is linked, of what takes its rows' place every kind."""
    base = make_layer(tmp_path / "base", "touched", "untouched")
    since = make_layer(tmp_path / "since", "gone", "untouched")
    Layers(base, since, 2).linked(tmp_path / "run")
    files = {str(file.relative_to(tmp_path / "run")) for file in (tmp_path / "run").rglob("*.parquet")}

    assert {
        f"{part}/part.parquet" for part in ("base/kind=touched", "since/kind=gone", "since/kind=untouched")
    } == files


def test_links_outlive_what_they_were_made_from(tmp_path):
    """A file that the memory forgets is still there under the run's name."""
    base = make_layer(tmp_path / "base", "touched")
    linked = Layers(base).linked(tmp_path / "run")
    (base / "kind=touched" / "part.parquet").unlink()

    assert 1 == counted_rows(linked.base)


@pytest.mark.parametrize("missing", ["base", "since"])
def test_a_layer_that_is_missing_stops_the_run(tmp_path, missing):
    """A base without what takes its rows' place is never taken for the whole, nor the other way round."""
    layers = Layers(tmp_path / "base", tmp_path / "since", 1)
    make_layer(tmp_path / ("since" if missing == "base" else "base"), "touched")

    with pytest.raises(MetadataError, match=f"'{missing}' are missing"):
        layers.linked(tmp_path / "run")


@pytest.mark.parametrize("text", [None, "{"])
def test_a_run_that_is_not_whole_says_so(tmp_path, text):
    """Without its list of earlier outcomes a run's decisions are not shown, and the error says what to do."""
    folder = run_folder(tmp_path, 1)
    folder.path.mkdir(parents=True)
    if text is not None:
        folder.buried_file.write_text(text)

    with pytest.raises(MetadataError, match="make a new plan"):
        earlier_outcomes(folder)


def test_earlier_outcomes_are_found_again(tmp_path):
    """The outcomes that a run of an earlier version took for granted are those that it wrote down."""
    folder = run_folder(tmp_path, 2)
    folder.path.mkdir(parents=True)
    outcomes = [run_folder(tmp_path, 1).outcomes(0, 1)]
    names = [str(one.relative_to(folder.path.parent)) for one in outcomes]
    folder.buried_file.write_text(json.dumps(names))

    assert outcomes == earlier_outcomes(folder)
