"""
The memory of a repository: its decoded ranges, and the verdicts of the last run.

It is a cache of pure functions of immutable content, so it may be used whatever happened to the run that made
it, and removed at any time. If it is missing, damaged, or was made by other code, for other rules or for
another namespace, it is not used, and everything is read again.

Verdicts are stored as a `base` and the changes since, so that a run writes only what it computed again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.errors import MetadataError
from ebbtide.engine.build import build_id
from ebbtide.engine.files import remove_unused, write_durably
from ebbtide.engine.run_folder import OnStep
from ebbtide.engine.tables.contracts import RANGES, VERDICTS
from ebbtide.engine.tables.row_counts import check_counts, counted_rows, link_table
from ebbtide.engine.verdicts import TOUCHED, UNTOUCHED, Layers
from ebbtide.targets.repository.increments import UpdatedVerdicts
from ebbtide.targets.repository.policy import LakePolicy
from ebbtide.targets.repository.world import ONLY_WORLD

_MOST_LAID_OVER = 0.25
"""When the changes exceed this fraction of the base, a new base is written."""


@dataclass(frozen=True)
class Remembered:
    """The ranges and verdicts of an earlier run."""

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
        """Return the memory of a repository; other code or another namespace has an empty one."""
        place = hashlib.sha256(namespace.encode()).hexdigest()[:16]
        return cls(root / "memory" / uid / f"{build_id()}-{place}")

    @property
    def references(self) -> Path:
        """The folder of the range cache."""
        return self.folder / "references"

    def begin(self) -> float:
        """Remove the memory of other code, and return the file system's time, to tell later what was used."""
        for other in self.folder.parent.glob("*"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        self.references.mkdir(parents=True, exist_ok=True)
        stamp = self.folder / "begun"
        stamp.touch()
        return stamp.stat().st_mtime

    def recall(self, spark: SparkSession, policy: LakePolicy) -> Remembered | None:
        """Return what the last run stored, if it had the same rules and all of it is there."""
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
        updated: UpdatedVerdicts,
        earlier: Remembered | None,
        begun: float,
        on_step: OnStep,
    ) -> Layers:
        """Store the ranges and verdicts of a run, and remove what was not used since it began."""
        here = f"run-{run_id:06d}"
        shutil.rmtree(self.folder / here, ignore_errors=True)
        known: dict[str, Any] = {"rules": rules_of(policy), "parts": {"ranges": f"{here}/ranges"}}
        link_table(ranges, self.folder / here / "ranges")
        if earlier is None or updated.affected is None:
            self._write_base(updated.rows, known, here)
        elif updated.count:
            self._write_changes(spark, updated, earlier, known, here)
        else:
            known["parts"] = earlier.parts | known["parts"]
            known |= {"base_rows": earlier.base_rows, "since_rows": earlier.layers.since_rows}
        on_step("verdicts written")
        write_durably(self.folder / "current.json", json.dumps(known, sort_keys=True))
        self._forget(known["parts"], begun)
        return self._layers(known)

    def _write_base(self, rows: DataFrame, known: dict[str, Any], here: str) -> None:
        known["parts"]["base"] = f"{here}/base"
        known |= {"base_rows": self._write(rows, f"{here}/base"), "since_rows": 0}

    def _write_changes(
        self,
        spark: SparkSession,
        updated: UpdatedVerdicts,
        earlier: Remembered,
        known: dict[str, Any],
        here: str,
    ) -> None:
        """Merge the new changes into the earlier ones; write a new base if there are many."""
        before = earlier.layers.since
        rows = updated.rows
        if before:
            known_rows = VERDICTS.read(spark, before).withColumn("world", f.lit(ONLY_WORLD))
            rows = updated.laid_over(known_rows)
        known["parts"] |= {"base": earlier.parts["base"], "since": f"{here}/since"}
        known |= {"base_rows": earlier.base_rows, "since_rows": self._write(rows, f"{here}/since")}
        if known["since_rows"] > _MOST_LAID_OVER * earlier.base_rows:
            merged = self._layers(known)
            del known["parts"]["since"]
            self._write_base(merged.read(spark, TOUCHED, UNTOUCHED), known, here)

    def _write(self, rows: DataFrame, part: str) -> int:
        """Write verdicts by kind, and return their number."""
        VERDICTS.write(rows, self.folder / part, partition_by="kind")
        return counted_rows(self.folder / part)

    def _layers(self, known: dict[str, Any]) -> Layers:
        parts = known["parts"]
        since = self.folder / parts["since"] if "since" in parts else None
        return Layers(self.folder / parts["base"], since, known["since_rows"])

    def _forget(self, parts: dict[str, str], begun: float) -> None:
        """Remove what the last run does not need; if this run is killed first, the next run does it."""
        needed = {self.folder / part for part in parts.values()}
        for run in self.folder.glob("run-*"):
            for part in run.iterdir():
                if part not in needed:
                    shutil.rmtree(part)
            if not any(run.iterdir()):
                run.rmdir()
        remove_unused(self.references, begun)


def forget_memory(root: Path, uid: str) -> None:
    """Remove the memory of a repository."""
    shutil.rmtree(root / "memory" / uid, ignore_errors=True)


def rules_of(policy: LakePolicy) -> list[list[str]]:
    """Return what verdicts depend on besides their ranges: the range table has the days of each rule."""
    return [[rule.id, rule.prefix] for rule in policy.enabled]
