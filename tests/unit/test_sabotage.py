"""The sabotages fit the code: one that changes nothing would prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sabotage import SABOTAGES

import ebbtide

PACKAGE = Path(ebbtide.__file__).parent


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_what_is_sabotaged_is_there_once(sabotage):
    """The text that a sabotage replaces stands in its module, and in one place only."""
    assert 1 == (PACKAGE / sabotage.module).read_text(encoding="utf-8").count(sabotage.good)
    assert sabotage.good != sabotage.bad
