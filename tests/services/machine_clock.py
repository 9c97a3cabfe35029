"""The machine's clock for tests that run commands in this process."""

from __future__ import annotations

from datetime import datetime

import pytest

from ebbtide.cli import state
from ebbtide.core.instant import parse_instant


def set_machine_clock(monkeypatch: pytest.MonkeyPatch, moment: str | datetime) -> None:
    """Let every command that follows find this time on the machine's clock."""
    fixed = parse_instant(moment) if isinstance(moment, str) else moment
    monkeypatch.setattr(state, "system_clock", lambda: fixed)
