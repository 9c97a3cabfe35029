"""
Compare a plan of a lake of two objects with a bare PySpark session that counts a range of one.

    python -m bench.start
    python -m bench.start --source ../other-checkout/src

Each round runs these processes one after the other, so only ratios count:

- `bare`: an untuned PySpark session that counts a range of one
- `cold`: `ebb plan` of a lake that was never planned
- `again`: `ebb plan` of the same lake when nothing has changed
- `apply`: `ebb apply` of that plan

Then one process plans, plans again (the warm plan) and applies in one session, and counts jobs. CPU seconds
include the JVM and what it does after the command has ended. `--source` measures another checkout.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ebbtide
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.spark import session
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.context import LakeContext

MOST = 1.25
MOST_WARM = 3.0
POLICY = '{"raw": {"prefix": "raw/", "days": 3}}'
LATER = "2099-01-01T00:00:00Z"
_EBB = "from ebbtide.cli.main import main; main()"
_BARE = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[*]").getOrCreate()
assert session.range(1).count() == 1
session.stop()
"""
_PR_SET_CHILD_SUBREAPER = 36


def build(folder: Path) -> None:
    """Create a lake of two objects, one of which a rule matches."""
    root = folder / ".ebbtide"
    root.mkdir(parents=True)
    (folder / "ebbtide.toml").write_text("")
    catalog = Catalog(f"sqlite:///{root}/catalog.db")
    catalog.create_repository("small", str(folder / "lake"))
    for key in ("raw/a", "keep/b"):
        catalog.upload("small", "main", key, key.encode())
    catalog.commit("small", "main", "two objects")
    catalog.set_policy("small", POLICY, "json")
    catalog.close()


def run(words: list[str], folder: Path, source: Path) -> dict[str, float]:
    """Run a Python process, and return its wall time and the CPU time of all processes that it started."""
    before = _used()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=_variables(source), capture_output=True, check=False
    )
    wall = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stderr.decode())
    # Spark's JVM ends after the command; it is a child of this process by then.
    _wait_for_orphans()
    return {"wall": round(wall, 2), "cpu": round(_used() - before, 2)}


def _variables(source: Path) -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": f"{source}{os.pathsep}{source.parent}"}


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_orphans() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def warm(folder: Path) -> dict[str, Any]:
    """Plan, plan again and apply in one session; return the seconds and the number of jobs of each."""
    from tests.services.runs import apply_lake, plan_lake  # noqa: PLC0415 - only this process needs them

    from ebbtide.engine.apply import ApplyOptions  # noqa: PLC0415

    root = folder / ".ebbtide"
    now = datetime.fromisoformat(LATER).astimezone(UTC)
    ledger = Ledger(f"sqlite:///{root}/ledger.db", clock=lambda: now)
    shop = LakeContext(Catalog(f"sqlite:///{root}/catalog.db", clock=lambda: now), ledger, root, lambda: now)
    known = session.SparkOptions.__dataclass_fields__
    options = session.SparkOptions(**({"is_small": True} if "is_small" in known else {}))
    found: dict[str, Any] = {}
    with session.spark_session(options, cache=root) as spark:
        scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()  # noqa: SLF001 - PySpark has no other way
        for name in ("first", "again", "apply"):
            jobs, began = scheduler.numTotalJobs(), time.monotonic()
            if name == "apply":
                plan = run_folder(root, found["again"]["run"]).read_manifest()
                apply_lake(spark, shop, plan, options=ApplyOptions(override_breaker=True))
            else:
                plan = plan_lake(spark, shop, "small", now=now, options=PlanOptions())
            seconds = round(time.monotonic() - began, 2)
            made = scheduler.numTotalJobs() - jobs
            found[name] = {"seconds": seconds, "jobs": made, "run": plan.run_id}
    return found


def measure(place: Path, rounds: int, source: Path) -> dict[str, Any]:
    """Run all processes in turn, several times, and compare their medians."""
    taken: dict[str, list[dict[str, float]]] = {}
    for number in range(-1, rounds):
        folder = place / str(number)
        build(folder)
        ebb = ["-c", _EBB]
        for name, words in {
            "bare": ["-c", _BARE],
            "cold": [*ebb, "plan", "lake:small", "--now", LATER],
            "again": [*ebb, "plan", "lake:small"],
            "apply": [*ebb, "apply", "latest", "--yes"],
        }.items():
            spent = run(words, folder, source)
            print(json.dumps({"round": number, "what": name, **spent}), file=sys.stderr)
            # The first round fills caches: of the file system, of Python, and Ebbtide's own.
            if number >= 0:
                taken.setdefault(name, []).append(spent)
    folder = place / "warm"
    build(folder)
    told = subprocess.run(
        [sys.executable, __file__, "--warm", str(folder)],
        env=_variables(source),
        capture_output=True,
        check=True,
    )
    return {
        **{name: {kind: _median(all_, kind) for kind in ("wall", "cpu")} for name, all_ in taken.items()},
        "cold_to_bare": _ratio(taken, "cold", "wall"),
        "cold_to_bare_cpu": _ratio(taken, "cold", "cpu"),
        "session": json.loads(told.stdout.splitlines()[-1]),
    }


def _median(spent: list[dict[str, float]], kind: str) -> float:
    return statistics.median(one[kind] for one in spent)


def _ratio(taken: dict[str, list[dict[str, float]]], name: str, kind: str) -> float:
    """Return the median over rounds of a ratio to the bare session of the same round."""
    pairs = zip(taken[name], taken["bare"], strict=True)
    return round(statistics.median(one[kind] / bare[kind] for one, bare in pairs), 2)


def main() -> None:
    """Measure and print; fail if a small plan takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    own = Path(ebbtide.__file__).parents[1]
    parser.add_argument("--source", type=Path, default=own, help="The src folder of another checkout.")
    parser.add_argument("--warm", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm:
        print(json.dumps(warm(options.warm)))
        return
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="ebbtide-start-") as place:
        found = measure(Path(place), options.rounds, options.source.absolute())
    print(json.dumps(found))
    if found["cold_to_bare"] > MOST or found["session"]["again"]["seconds"] > MOST_WARM:
        sys.exit("a small plan takes too long")


if __name__ == "__main__":
    main()
