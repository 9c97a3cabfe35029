"""
Plan the purge of a large registry, and compare some of its repositories with the oracle.

    python -m bench.registry --manifests 1000000

The tables of a scan are written before the clock starts; the time runs from the first read to the recorded
plan, through the planner that `ebb plan` uses. Of the repositories every fortieth is judged by the oracle
too, row by row, and DuckDB adds up what all manifests and distinct blobs weigh. The oracle's time for a row
is what Spark's time until the verdicts is compared with: both run in one go, so a busy machine slows both.
The peak is that of the whole process tree, sampled from /proc.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from bench.peak import PeakMemory
from bench.registry_tables import NOW, REPOSITORIES, policies, running, write_registry
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.plan import PlanOptions, plan
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.state.runs import Ledger
from ebbtide.targets.oci.client.registry import Ability, Capabilities
from ebbtide.targets.oci.inventory.scan import CompletedScan
from ebbtide.targets.oci.inventory.snapshots import TAGS_FOLDER, Snapshot
from ebbtide.targets.oci.model import Image, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.purge.collector import PURGE
from ebbtide.targets.oci.purge.marks import renewed_marks
from ebbtide.targets.oci.purge.plan import RegistryPlanner
from ebbtide.targets.oci.purge.policy import PurgePolicy

MOST_OF_THE_ORACLE = 1.0
"""How long Spark on two cores may judge a row, in terms of what the plain oracle takes for one."""
URL = "oci://bench.example"
SAMPLED = [f"team{number}/app" for number in range(20, REPOSITORIES, 40)]
_VALUES = ("policy", "expires_at", "can_delete_prior", "recycle")


class _Scanned(Collector):
    """The purge of a registry that was scanned before: judging is measured, not the network."""

    name, in_order = PURGE, True
    identity = Identity(URL, URL, URL)

    def __init__(self, order: PurgePolicy, planner: RegistryPlanner) -> None:
        self._order, self._planner = order, planner

    def policy(self) -> Policy:
        """Return the order."""
        return Policy(self._order.to_json(), self._order.hash)

    def reach(self) -> Reach:
        """Reach nothing."""
        return lambda: None

    def collect(self, run: Run) -> Collected:
        """Judge what was scanned."""
        return self._planner.collect(run.folder)

    def check_unchanged(self, plan: Manifest) -> None:
        """Refuse: it is only planned."""
        raise NotImplementedError

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Refuse: it is only planned."""
        raise NotImplementedError


def plan_all(spark: SparkSession, root: Path, manifests: int) -> tuple[Manifest, dict[str, float]]:
    """Plan the purge as if the registry had just been scanned, and say after how long each step was done."""
    began, steps = time.monotonic(), {}
    state = root / "state"
    order = PurgePolicy(policies(), running(manifests)).dated(NOW)
    tags = ds.dataset(root / TAGS_FOLDER, format="parquet").count_rows()
    scanned = dict.fromkeys((f"team{number}/app" for number in range(REPOSITORIES)), NOW)
    snapshot = Snapshot(spark, root, scanned, manifests, tags)
    look = CompletedScan(snapshot, root, NOW, REPOSITORIES, tags, manifests, read=0, gone=0)

    def noted(step: str) -> None:
        steps[step] = round(time.monotonic() - began, 1)
        if step == "verdicts written":
            shutil.copytree(run_folder(state, 1).scratch / "verdicts", root / "verdicts")

    planner = RegistryPlanner(
        spark,
        order,
        NOW,
        look=lambda _: look,
        marks=lambda _: None,
        dates=lambda _: None,
        learn_dates=lambda *_: (),
        renew=lambda found: sum(1 for _ in renewed_marks(found, order.policies, NOW)),
        probe=lambda names: dict.fromkeys(names, Capabilities(*[Ability.YES] * 4)),
        on_step=noted,
    )
    ledger = Ledger(f"sqlite:///{root}/ledger.db")
    context, collector = Context(state, ledger, lambda: NOW), _Scanned(order, planner)
    manifest = plan(spark, context, collector, now=NOW, options=PlanOptions(), on_step=noted)
    ledger.close()
    return manifest, steps


def rows(folder: Path) -> list[dict[str, Any]]:
    """Read what a table says of the repositories that are compared."""
    found = ds.dataset(folder, format="parquet")
    return list(found.to_table(filter=pc.field("repository").isin(SAMPLED)).to_pylist())


def sampled(root: Path) -> Iterator[Image]:
    """Read the images that are compared."""
    tags: dict[tuple[str, str], list[Tag]] = {}
    for row in rows(root / "tags"):
        values = Assigned(*(row[name] for name in _VALUES))
        asked = bool(row["delete_requested"])
        tag = Tag(row["tag"], row["moved_at"], values, asked, row["seen_at"], copied=True)
        tags.setdefault((row["repository"], row["digest"]), []).append(tag)
    for row in rows(root / "images"):
        state = row["quarantine"] and Quarantine(QuarantineState(row["quarantine"]), row["quarantine_since"])
        yield Image(
            row["repository"],
            row["digest"],
            tuple(tags.get((row["repository"], row["digest"]), ())),
            tuple(row["children"]),
            row["subject"],
            row["pushed_at"],
            row["untagged_since"],
            state,
            Assigned(*(row[name] for name in _VALUES)),
            bool(row["delete_requested"]),
            seen_at=row["seen_at"],
        )


def judge_sample(root: Path, manifests: int) -> tuple[set[tuple[object, ...]], float]:
    """Judge the sample by the oracle, and say how long it took for a row."""
    images = list(sampled(root))
    began = time.monotonic()
    judged = judge(policies(), images, NOW, running(manifests))
    seconds = time.monotonic() - began
    return {
        (one.repository, one.digest, one.tag or "", str(one.decision), one.policy, one.deadline, one.held_by)
        for one in judged
    }, seconds / len(judged)


def compare(root: Path, expected: set[tuple[object, ...]]) -> dict[str, Any]:
    """Compare the sample's verdicts with the oracle's, and all that is stored with what they add up to."""
    names = ("repository", "digest", "tag", "decision", "policy", "deadline")
    actual = {(*(row[name] for name in names), tuple(row["held_by"])) for row in rows(root / "verdicts")}
    with duckdb.connect(config={"threads": 2}) as database:
        images, verdicts = (f"read_parquet('{root}/{name}/*.parquet')" for name in ("images", "verdicts"))
        blobs = f"select distinct unnest(blobs, recursive := true) from {images}"  # noqa: S608 (our own path)
        of_blobs, own = f"select sum(size) from ({blobs})", f"select sum(size) from {images}"  # noqa: S608
        stored = sum(int(database.sql(query).fetchall()[0][0]) for query in (of_blobs, own))
        grouped = f"select decision, count(*), sum(size) from {verdicts} group by all order by 1"  # noqa: S608
        decisions = {name: [count, int(size)] for name, count, size in database.sql(grouped).fetchall()}
    counted = sum(size for _, size in decisions.values())
    alike = bool(expected) and expected == actual and stored == counted
    return {"decisions": decisions, "compared": len(expected), "stored": stored, "alike": alike}


def main() -> None:
    """Make, plan, compare, print; fail if it is slow or differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifests", type=int, default=1_000_000)
    parser.add_argument("--driver-memory", default="2g")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-registry-") as place:
        root = Path(place)
        spark_options = SparkOptions(master="local[2]", driver_memory=options.driver_memory)
        with spark_session(spark_options, cache=root) as spark:
            write_registry(spark, root, options.manifests)
            with PeakMemory() as peak:
                plan, steps = plan_all(spark, root, options.manifests)
        expected, oracle = judge_sample(root, options.manifests)
        found = compare(root, expected)
    seconds, planned = steps["plan recorded"], plan.summary.due.objects
    going = sum(found["decisions"][name][0] for name in ("delete", "recycle"))
    ratio = steps["verdicts written"] / sum(count for count, _ in found["decisions"].values()) / oracle
    sizes = {"peak_total_mib": peak.total >> 20, "peak_jvm_mib": peak.jvm >> 20}
    times = {"seconds": seconds, "steps": steps, "of_the_oracle": round(ratio, 2)}
    print(json.dumps({"manifests": options.manifests, "planned": planned, **times, **found, **sizes}))
    if not found["alike"] or planned != going or ratio > MOST_OF_THE_ORACLE:
        sys.exit("the planning of registries is not what it must be")


if __name__ == "__main__":
    main()
