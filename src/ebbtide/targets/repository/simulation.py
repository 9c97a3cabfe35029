"""
Simulated worlds: a small repository written by hand, evaluated by the same Spark pipeline as a real one.

The commits and staged entries of the world are written as ranges into a scratch folder, so that a policy test
proves what a plan does. Hundreds of worlds share one job.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName, Decision
from ebbtide.core.instant import format_instant, to_micros
from ebbtide.engine.removed_items import held_by_restore, hold_back
from ebbtide.engine.tables.contracts import UPLOADS
from ebbtide.engine.tables.digest import address_hash, without
from ebbtide.engine.verdicts import TOUCHED, decisions_at
from ebbtide.storage.address import canonical, is_inside
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.repository.address_verdicts import reference_verdicts
from ebbtide.targets.repository.increments import compare_ranges, updated_verdicts
from ebbtide.targets.repository.lifecycle import (
    CurrentRule,
    PolicyRow,
    PotentialCommit,
    current_rules,
    policy_table,
    potential_commits,
    references,
)
from ebbtide.targets.repository.live_objects import Scope, referenced
from ebbtide.targets.repository.memory import rules_of
from ebbtide.targets.repository.model import METADATA, Commit, RangeInfo, StagedRange
from ebbtide.targets.repository.planner import combined_verdicts
from ebbtide.targets.repository.policy import LakePolicy, PolicyRun
from ebbtide.targets.repository.ranges import range_table
from ebbtide.targets.repository.retention import every_reference
from ebbtide.targets.repository.uncommitted import garbage_verdicts
from ebbtide.targets.repository.world import WORLD_VERDICTS, World
from ebbtide.targets.repository.world_document import WorldDocument, WrittenEntry, WrittenObject

Case = tuple[WorldDocument, datetime]
"""A world, and the time at which it is evaluated."""

_KEYS_A_RANGE = 3
_ENTRIES = pa.schema(
    [
        ("key", pa.string()),
        ("address", pa.string()),
        ("created", pa.timestamp("us", tz="UTC")),
        ("size", pa.int64()),
    ]
)
_RANGES = pa.schema(
    [("range_id", pa.string()), ("min_key", pa.string()), ("max_key", pa.string()), ("count", pa.int64())]
)
_LISTED = "world int, address string, size long, last_modified timestamp, grace long"
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class _Before:
    """What a step of many histories leaves to the next step."""

    worlds: Mapping[int, World]
    ranges: DataFrame
    verdicts: DataFrame


@dataclass(frozen=True)
class Simulated:
    """The result of the pipeline for one simulated world."""

    policy_table: list[PolicyRow]
    current_rules: list[CurrentRule]
    potential_commits: list[PotentialCommit]
    decisions: list[dict[str, Any]]
    missing: list[str] | None = None
    """Referenced addresses that are not listed: a real run would stop; None if nothing was listed."""

    def to_plain(self) -> dict[str, Any]:
        """Return the public JSON form, sorted."""
        plain = {
            "policy_table": [_plain_row(row) for row in self.policy_table],
            "current_rules": [_plain_row(rule) for rule in self.current_rules],
            "potential_commits": [
                {"commit_id": c.commit_id, "branches": list(c.branches)} for c in self.potential_commits
            ],
            "due": [
                {
                    "address": row["address"],
                    "paths": row["names"],
                    "matched_rules": row["rules"],
                    "collector": row["collector"],
                    "deadline": format_instant(row["deadline"]),
                }
                for row in self._with(Decision.DUE)
            ],
            "held": [
                {
                    "address": row["address"],
                    "paths": row["names"],
                    "reason": row["hold"],
                    "by": row["holder"],
                    "deadline": format_instant(row["deadline"]),
                }
                for row in self._with(Decision.HELD)
            ],
        }
        return plain if self.missing is None else plain | {"missing": self.missing}

    def addresses(self, decision: Decision) -> list[str]:
        """Return the addresses with this decision, sorted."""
        return [row["address"] for row in self._with(decision)]

    def _with(self, decision: Decision) -> list[dict[str, Any]]:
        chosen = [row for row in self.decisions if row["decision"] == decision]
        return sorted(chosen, key=lambda row: str(row["address"]))


def simulate(spark: SparkSession, cases: Sequence[Case]) -> list[Simulated]:
    """Evaluate many worlds, each at its own time, in one Spark job."""
    if not cases:
        return []
    with tempfile.TemporaryDirectory(prefix="ebbtide-worlds-") as scratch:
        worlds = _worlds(Path(scratch), dict(enumerate(cases)), None)
        ranges = range_table(spark, worlds).localCheckpoint()
        judged = reference_verdicts(references(ranges, worlds))
        found = _simulated(dict(enumerate(cases)), worlds, ranges, judged)
    return [found[number] for number in range(len(cases))]


def simulate_histories(spark: SparkSession, histories: Sequence[Sequence[Case]]) -> list[list[Simulated]]:
    """
    Evaluate many repositories over time, as incremental runs do: each case after the one before it.

    The n-th cases of all histories are evaluated in one Spark job, with the memory of the cases before.
    """
    found: list[list[Simulated]] = [[] for _ in histories]
    with tempfile.TemporaryDirectory(prefix="ebbtide-histories-") as scratch:
        before: _Before | None = None
        for step in range(max(map(len, histories), default=0)):
            cases = {n: history[step] for n, history in enumerate(histories) if step < len(history)}
            worlds = _worlds(Path(scratch), cases, Path(scratch) / "references")
            before = _advanced(spark, worlds, before, Path(scratch) / f"step-{step}")
            judged = _simulated(cases, worlds, before.ranges, before.verdicts)
            for number, simulated in judged.items():
                found[number].append(simulated)
    return found


def _advanced(
    spark: SparkSession, worlds: Mapping[int, World], before: _Before | None, scratch: Path
) -> _Before:
    """Bring ranges and verdicts from one step to the next; a world whose rules changed starts again."""
    ranges = range_table(spark, worlds).localCheckpoint()
    if before is None:
        again = updated_verdicts(ranges, worlds, compare_ranges(ranges, None, worlds, scratch))
        return _Before(worlds, ranges, again.rows.localCheckpoint())
    same = [n for n, world in worlds.items() if rules_of(before.worlds[n].policy) == rules_of(world.policy)]
    known = before.ranges.where(f.col("world").isin(same))
    again = updated_verdicts(
        ranges, worlds, compare_ranges(ranges, known, worlds, scratch, most_changed=math.inf)
    )
    kept = before.verdicts.where(f.col("world").isin(same))
    return _Before(worlds, ranges, again.laid_over(kept).localCheckpoint())


def _simulated(
    cases: Mapping[int, Case],
    worlds: Mapping[int, World],
    ranges: DataFrame,
    judged: DataFrame,
) -> dict[int, Simulated]:
    """Add the verdicts of the other collectors, decide, and return the results of all steps by world."""
    found: dict[int, list[dict[str, Any]]] = {number: [] for number in cases}
    documents = {number: document for number, (document, _) in cases.items()}
    parts = [judged]
    if any(world.retention for world in worlds.values()):
        parts.append(reference_verdicts(every_reference(ranges, worlds), collector=CollectorName.RETENTION))
    if any(CollectorName.UNCOMMITTED in document.collect for document in documents.values()):
        parts.append(_garbage(documents, worlds, ranges))
    touched = combined_verdicts([part.where(f.col("kind") == TOUCHED) for part in parts], WORLD_VERDICTS)
    touched = _with_restored(touched, documents)
    for row in _decisions(touched, worlds).toArrow().to_pylist():
        found[row["world"]].append(row)
    return {n: _outcome(document, worlds[n], found[n]) for n, (document, _) in cases.items()}


def _with_restored(touched: DataFrame, documents: Mapping[int, WorldDocument]) -> DataFrame:
    """Hold restored addresses, as a plan does by the table of removed items."""
    rows = [
        (number, canonical(address, document.namespace), until)
        for number, document in documents.items()
        for address, until in document.restored.items()
    ]
    if not rows:
        return touched
    found = touched.sparkSession.createDataFrame(rows, "world int, restored string, until timestamp")
    holds = found.select("world", address_hash("restored").alias("hash"), "until")
    joined = touched.join(f.broadcast(holds), ["world", "hash"], "left")
    return hold_back(joined, f.col("until"), f.lit(held_by_restore(0))).drop("until")


def _decisions(judged: DataFrame, worlds: Mapping[int, World]) -> DataFrame:
    """Decide on every address that a rule matches, each world at its own time."""
    times = [(number, to_micros(world.now)) for number, world in worlds.items()]
    clocks = judged.sparkSession.createDataFrame(times, "world int, now long")
    return decisions_at(judged.join(f.broadcast(clocks), "world"), f.col("now"))


def _garbage(
    documents: Mapping[int, WorldDocument], worlds: Mapping[int, World], ranges: DataFrame
) -> DataFrame:
    """Subtract what is referenced from what each world lists; here every object is a data object."""
    rows = [
        (number, address, found.size, found.last_modified, document.grace // _MICROSECOND)
        for number, document in documents.items()
        if CollectorName.UNCOMMITTED in document.collect
        for address, found in _listed(document)
    ]
    listed = ranges.sparkSession.createDataFrame(rows, _LISTED).withColumn("hash", address_hash("address"))
    objects = listed.where(~f.col("address").startswith(METADATA)).dropDuplicates(["world", "hash"])
    garbage = without(objects, referenced(ranges, worlds, Scope()), on=("world", "hash"))
    uploads = ranges.sparkSession.createDataFrame([], UPLOADS.schema)
    branch = f.lit(None).cast("string")
    return garbage_verdicts(garbage, uploads, f.col("grace"), branch, f.col("world"))


def _listed(document: WorldDocument) -> Iterator[tuple[str, WrittenObject]]:
    """Return what a listing of the namespace has; objects outside are in no listing."""
    for written, found in document.objects.items():
        address = canonical(written, document.namespace)
        if is_inside(address):
            yield address, found


def _missing(document: WorldDocument) -> list[str] | None:
    """Return referenced addresses that are not listed."""
    if CollectorName.UNCOMMITTED not in document.collect:
        return None
    held = [*(commit.entries for commit in document.commits), *document.staged.values()]
    named = {canonical(entry.address, document.namespace) for entries in held for entry in entries.values()}
    listed = {address for address, _ in _listed(document)}
    return sorted(address for address in named - listed if is_inside(address))


def _outcome(document: WorldDocument, world: World, decisions: list[dict[str, Any]]) -> Simulated:
    run_id = max((run.run_id for run in document.runs), default=0) + 1
    runs = [*document.runs, PolicyRun(run_id, world.now, world.policy, succeeded=False)]
    table = policy_table(runs)
    rules = current_rules(table, run_id, [run.run_id for run in runs if run.succeeded])
    potential = potential_commits(world.commits, world.branches, rules)
    return Simulated(table, rules, potential, decisions, _missing(document))


def _worlds(folder: Path, cases: Mapping[int, Case], references: Path | None) -> dict[int, World]:
    written = WrittenRanges(folder / "ranges")
    written.folder.mkdir(exist_ok=True)
    worlds = {n: _world(written, document, now) for n, (document, now) in cases.items()}
    return {n: replace(world, reference_folder=references) for n, world in worlds.items()}


def _world(ranges: WrittenRanges, document: WorldDocument, now: datetime) -> World:
    commits = {
        written.id: Commit(
            id=written.id,
            metarange_id=ranges.write(written.entries),
            parents=written.parents,
            created=written.created,
        )
        for written in document.commits
    }
    staged = tuple(
        StagedRange(branch, ranges.write(entries), len(entries))
        for branch, entries in document.staged.items()
    )
    return World(
        store=StoreSpec(ranges.folder.as_uri()),
        decoder=ranges,
        namespace=document.namespace,
        policy=document.policy if CollectorName.LIFECYCLE in document.collect else LakePolicy(()),
        now=now,
        commits=commits,
        branches=document.branches,
        tags=document.tags,
        staged=staged,
        retention=document.retention if CollectorName.RETENTION in document.collect else None,
    )


@dataclass(frozen=True)
class WrittenRanges:
    """The ranges of simulated worlds: Arrow files in a scratch folder, named by the hash of their bytes."""

    folder: Path

    def ranges(self, source: str, metarange_id: str) -> Any:  # noqa: ARG002 (the hash is the name)
        """Return the ranges of a metarange."""
        return self._read(metarange_id)

    def entries(self, source: str, info: RangeInfo) -> Any:  # noqa: ARG002 (the hash is the name)
        """Return the entries of a range."""
        return self._read(info.id)

    def write(self, entries: Mapping[str, WrittenEntry]) -> str:
        """Write entries as ranges that end at the same keys whatever the others are, so they are shared."""
        parts: list[list[dict[str, Any]]] = [[]]
        for key, e in sorted(entries.items()):
            parts[-1].append({"key": key, "address": e.address, "created": e.created, "size": e.size})
            if zlib.crc32(key.encode()) % _KEYS_A_RANGE == 0:
                parts.append([])
        ranges = [
            {
                "range_id": self._write(pa.Table.from_pylist(part, _ENTRIES)),
                "min_key": part[0]["key"],
                "max_key": part[-1]["key"],
                "count": len(part),
            }
            for part in parts
            if part
        ]
        return self._write(pa.Table.from_pylist(ranges, _RANGES))

    def _write(self, table: Any) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        name = hashlib.sha256(data).hexdigest()
        (self.folder / name).write_bytes(data)
        return name

    def _read(self, name: str) -> Any:
        return pa.ipc.open_file((self.folder / name).read_bytes()).read_all()


def _plain_row(row: PolicyRow | CurrentRule) -> dict[str, Any]:
    days = ("date_to_be_deleted", "last_deleted")
    return {
        name: value.isoformat() if name in days and value is not None else value
        for name, value in vars(row).items()
    }
