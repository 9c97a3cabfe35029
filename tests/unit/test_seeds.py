"""What a seed draws depends on nothing else."""

from __future__ import annotations

import importlib
import sys

from tests.property.test_bucket_equals_oracle import drawn

COUNT = 60


def test_a_module_that_is_loaded_in_between_changes_nothing(tmp_path, monkeypatch):
    """The same seed draws the same before and after a module with many numbers in its source is loaded."""
    before = drawn(COUNT)
    (tmp_path / "loaded_in_between.py").write_text(f"NUMBERS = {list(range(100, 1_000))}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("loaded_in_between")
    after = drawn(COUNT)
    del sys.modules["loaded_in_between"]

    assert before == after
