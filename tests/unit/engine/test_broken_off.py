"""What an error says that ends a run after it has deleted something."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ebbtide.core.errors import EbbtideError, MetadataError, PartlyApplied, StalePlan, StoreError
from ebbtide.core.manifest import Tally
from ebbtide.engine.apply import _check_nothing_deleted
from ebbtide.targets.oci.bin.entry import damaged
from ebbtide.targets.oci.client.names import wrong_bytes

PLAN = SimpleNamespace(run_id=7, summary=SimpleNamespace(due=SimpleNamespace(objects=5)), recycling=None)
DELETED = {name: Tally(name, 3, 30) for name in ("deleted", "changed")}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (MetadataError("a list is cut short", why="it is", fix="see"), MetadataError, 3),
        (StalePlan("the policies were changed", fix="plan again"), StalePlan, 3),
        (wrong_bytes("team/app v1", "sha256:1", "sha256:2"), MetadataError, 3),
        (damaged("the entry e-1", "it is empty"), MetadataError, 3),
        (StoreError("no answer", why="the line is cut", fix="wait"), PartlyApplied, 4),
    ],
)
def test_an_error_after_deletes_counts_them(error, kind, code):
    """It keeps its kind and its advice, says how much went before, and never that nothing did."""
    with pytest.raises(EbbtideError, match="3 of 5 items were deleted before") as told:
        _check_nothing_deleted(error, PLAN, DELETED)

    assert (kind, code) == (type(told.value), told.value.exit_code)
    assert error.fix in told.value.fix
    assert "nothing was deleted" not in str(told.value)


def test_an_error_before_any_delete_is_left_as_it_is():
    """Where nothing went there is nothing to add."""
    _check_nothing_deleted(MetadataError("x"), PLAN, {"changed": Tally("changed", 3, 30)})
