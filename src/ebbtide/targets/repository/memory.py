"""What runs remember of a repository: its decoded ranges, and the standings of the last run.

All of it is a cache of pure functions of immutable things, so it may be used whatever became of the run that
made it, and thrown away at any time. What is missing, damaged, or was made by other code, for other rules or
for another place, is not used: then everything is read again.

Standings are a `base` and what has changed since, so that a run writes no more than it added up again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import MetadataError
from ebbtide.engine.build import build_id
from ebbtide.engine.durability import write_durably
from ebbtide.engine.layers import TOUCHED, UNTOUCHED, Layers
from ebbtide.engine.layout import OnStep
from ebbtide.engine.sealed import remove_unused
from ebbtide.engine.tables.contracts import RANGES, STANDINGS
from ebbtide.engine.tables.row_counts import check_counts, counted_rows, link_table
from ebbtide.targets.repository.increments import Refreshed
from ebbtide.targets.repository.policy import LakePolicy

_MOST_LAID_OVER = 0.25
"""When more than this share of the base was added up again, the next run begins with a new base."""


@dataclass(frozen=True)
class Remembered:
    """An earlier run's ranges and standings."""

    ranges: DataFrame
    layers: Layers
    base_rows: int
    parts: dict[str, str]


@dataclass(frozen=True)
class Memory:
    """The memory of one repository in one namespace, under a state root."""

    folder: Path

    @classmethod
    def of(cls, root: Path, uid: str, namespace: str) -> Memory:
        """Find a repository's memory; code or a namespace that changed begins with an empty one."""
        place = hashlib.sha256(namespace.encode()).hexdigest()[:16]
        return cls(root / "memory" / uid / f"{build_id()}-{place}")

    @property
    def references(self) -> Path:
        """Where decoded ranges are kept."""
        return self.folder / "references"

    def begin(self) -> float:
        """Clear away what other code left, and give the file system's time, to tell later what was of use."""
        for other in self.folder.parent.glob("*"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        self.references.mkdir(parents=True, exist_ok=True)
        stamp = self.folder / "begun"
        stamp.touch()
        return stamp.stat().st_mtime

    def recall(self, spark: SparkSession, policy: LakePolicy) -> Remembered | None:
        """Give what the last run added up, if it did so by the same rules and all of it is there."""
        try:
            known = json.loads((self.folder / "current.json").read_text(encoding="utf-8"))
            if known["rules"] != rules_of(policy):
                return None
            for part in known["parts"].values():
                check_counts(self.folder / part)
            ranges = RANGES.read(spark, self.folder / known["parts"]["ranges"])
            return Remembered(ranges, self._layers(known), known["base_rows"], known["parts"])
        except (OSError, ValueError, KeyError, TypeError, MetadataError):
            return None

    def keep(
        self,
        spark: SparkSession,
        policy: LakePolicy,
        run_id: int,
        ranges: Path,
        refreshed: Refreshed,
        earlier: Remembered | None,
        begun: float,
        on_step: OnStep,
    ) -> Layers:
        """Remember a run's ranges and standings from now on, and forget what nobody used since it began."""
        here = f"run-{run_id:06d}"
        shutil.rmtree(self.folder / here, ignore_errors=True)
        known: dict[str, Any] = {"rules": rules_of(policy), "parts": {"ranges": f"{here}/ranges"}}
        link_table(ranges, self.folder / here / "ranges")
        if earlier is None or refreshed.affected is None:
            self._write_base(refreshed.rows, known, here)
        elif refreshed.count:
            self._write_changes(spark, refreshed, earlier, known, here)
        else:
            known["parts"] = earlier.parts | known["parts"]
            known |= {"base_rows": earlier.base_rows, "since_rows": earlier.layers.since_rows}
        on_step("standings written")
        write_durably(self.folder / "current.json", json.dumps(known, sort_keys=True))
        self._forget(known["parts"], begun)
        return self._layers(known)

    def _write_base(self, rows: DataFrame, known: dict[str, Any], here: str) -> None:
        known["parts"]["base"] = f"{here}/base"
        known |= {"base_rows": self._write(rows, f"{here}/base"), "since_rows": 0}

    def _write_changes(
        self, spark: SparkSession, refreshed: Refreshed, earlier: Remembered, known: dict[str, Any], here: str
    ) -> None:
        """Lay the new changes over the earlier ones, and make a new base if they have become many."""
        before = earlier.layers.since
        rows = refreshed.laid_over(STANDINGS.read(spark, before)) if before else refreshed.rows
        known["parts"] |= {"base": earlier.parts["base"], "since": f"{here}/since"}
        known |= {"base_rows": earlier.base_rows, "since_rows": self._write(rows, f"{here}/since")}
        if known["since_rows"] > _MOST_LAID_OVER * earlier.base_rows:
            together = self._layers(known)
            del known["parts"]["since"]
            self._write_base(together.read(spark, TOUCHED, UNTOUCHED), known, here)

    def _write(self, rows: DataFrame, part: str) -> int:
        """Write standings by their kind, and give their number."""
        STANDINGS.write(rows, self.folder / part, partition_by="kind")
        return counted_rows(self.folder / part)

    def _layers(self, known: dict[str, Any]) -> Layers:
        parts = known["parts"]
        since = self.folder / parts["since"] if "since" in parts else None
        return Layers(self.folder / parts["base"], since, known["since_rows"])

    def _forget(self, parts: dict[str, str], begun: float) -> None:
        """Remove what no part and no range of the last run needs; killed before this, the next run does."""
        needed = {self.folder / part for part in parts.values()}
        for run in self.folder.glob("run-*"):
            for part in run.iterdir():
                if part not in needed:
                    shutil.rmtree(part)
            if not any(run.iterdir()):
                run.rmdir()
        remove_unused(self.references, begun)


def forget_memory(root: Path, uid: str) -> None:
    """Remove all that is remembered of a repository."""
    shutil.rmtree(root / "memory" / uid, ignore_errors=True)


def rules_of(policy: LakePolicy) -> list[list[str]]:
    """Say what of a policy standings depend on beyond their ranges, whose rows carry the days."""
    return [[rule.id, rule.prefix] for rule in policy.enabled]
