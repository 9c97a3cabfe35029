"""Tests of a folder's policy, without a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.instant import days_after, parse_instant
from ebbtide.targets.target import CaseResult, PolicySuite
from ebbtide_files.target import Rule


class FilesSuite(PolicySuite):
    """A case has days, the times at which files were written, now, and the files that are due."""

    def case(self, data: dict[str, Any], where: str) -> CaseResult:
        """Evaluate one case: it takes no time, so `run` has nothing left to do."""
        try:
            days, now = Rule(days=data["days"]).days, parse_instant(data["now"])
            deadlines = {name: days_after(parse_instant(at), days) for name, at in data["files"].items()}
            name, expected = str(data["name"]), sorted(data["expect"]["due"])
        except (KeyError, TypeError, ValueError, AttributeError, BadInput) as wrong:
            raise WorldError(f"{where}: {wrong}", fix="write name, days, files, now and expect") from None
        due = sorted(name for name, deadline in deadlines.items() if deadline <= now)
        return CaseResult(name, expected == due, expected, due, [f"expected {expected}, actual {due}"])

    def run(self, spark: object, cases: Sequence[CaseResult]) -> Sequence[CaseResult]:
        """Return the results."""
        return cases
