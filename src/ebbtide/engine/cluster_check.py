"""
The check of executors: before a run on a cluster, each of them proves that it may take part.

1. The driver writes a nonce into a fresh folder below the state root.
2. Every executor reads it, and writes back what only a reader of the nonce can know, into the same folder.
   It also says which Python and which build of Ebbtide it runs. Tasks go out until all executors that Spark
   knows of have answered.
3. The driver reads what they wrote, and compares.
4. Every executor opens the target with its own credentials (`check_reach`).

Executors that join later are not asked. Python on them looks for the nonce of the session when it starts, and
stores and registries are not opened where that fails (`store.fitness`); whatever else they write or leave out
is found by the row counts of tables. A local master has no executors but the driver itself, and is not asked.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import ebbtide
from ebbtide.core.errors import EbbtideError, ExecutorUnfit
from ebbtide.engine import build, executor_probe
from ebbtide.engine.executor_probe import ANSWER, Probe, host_name, proof_of
from ebbtide.engine.spark.failures import translated
from ebbtide.engine.spark.session import is_local
from ebbtide.storage.executor_proof import PROOF, ExecutorProof
from ebbtide.storage.store import StoreSpec, open_store

_FOLDER = "executors"
_SECONDS = 90
_SETTLED = 1.0
"""So many seconds nobody new must have turned up; executors of one application start one after another."""
_MOST_NAMED = 5

Reach = Callable[[], None]
"""Opens a target on an executor; what it raises says why that cannot be done there."""


@dataclass(frozen=True)
class StoreReach:
    """Reaches an object store: opens it, and lists a page."""

    store: StoreSpec

    def __call__(self) -> None:
        """Open it."""
        next(iter(open_store(self.store).children("")), None)


@contextmanager
def session_proof(root: Path, master: str) -> Iterator[Mapping[str, str]]:
    """Give the settings by which executors that join a session later know its state root and its build."""
    if is_local(master):
        yield {}
        return
    folder = root / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"session-{secrets.token_hex(8)}"
    proof = ExecutorProof(str(file.absolute()), secrets.token_hex(16), build.build_id())
    file.write_text(proof.nonce, encoding="utf-8")
    try:
        yield {f"spark.executorEnv.{PROOF}": proof.to_text()}
    finally:
        file.unlink(missing_ok=True)


def check_cluster(spark: SparkSession, root: Path, reach: Callable[[], Reach] | None = None) -> None:
    """
    Stop unless every executor of a cluster may take part in a run, and reaches the target.

    How to reach it is asked for only then: a run on this machine need not open it for that.
    """
    if is_local(str(spark.sparkContext.master)):
        return
    check_executors(spark, root)
    if reach is not None:
        check_reach(spark, reach())


def check_executors(spark: SparkSession, root: Path) -> None:
    """Stop unless every executor shares the state root and runs the driver's Python and Ebbtide."""
    folder = root.absolute() / _FOLDER / f"check-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    try:
        nonce = secrets.token_hex(16)
        (folder / "nonce").write_text(nonce, encoding="utf-8")
        answers = _ask(spark, folder)
        lacks = {answer["host"]: lack for answer in answers if (lack := _lack(answer, folder, nonce))}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if lacks:
        raise _unfit(lacks)


def check_reach(spark: SparkSession, reach: Reach) -> None:
    """Stop unless every executor can open the target; the caller has checked the executors before."""
    driver = spark.conf.get("spark.driver.host") or ""
    tasks = 2 * spark.sparkContext.defaultParallelism
    frame = spark.range(0, tasks, 1, tasks).mapInArrow(_Reacher(reach, driver), "host string, lack string")
    with _clear_failures():
        found = frame.toArrow().to_pylist()
    lacks = {row["host"]: row["lack"] for row in found if row["lack"]}
    if lacks:
        raise _unfit(lacks)


def _ask(spark: SparkSession, folder: Path) -> list[dict[str, str]]:
    """Ask until all executors that Spark knows of have answered; give one answer of each."""
    # By value: an executor with another build does not have this code.
    for module in (build, executor_probe):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        probe = Probe(str(folder), spark.conf.get("spark.driver.host") or "", build.digest_of)
        answers: dict[str, dict[str, str]] = {}
        deadline, settled = time.monotonic() + _SECONDS, None
        while settled is None or time.monotonic() < settled:
            tasks = 2 * spark.sparkContext.defaultParallelism
            with _clear_failures():
                found = spark.range(0, tasks, 1, tasks).mapInArrow(probe, ANSWER).toArrow().to_pylist()
            new = {row["executor"]: row for row in found if row["executor"] not in answers}
            answers |= new
            known = _executors(spark)
            if new or len(answers) < len(known):
                settled = None
            elif settled is None:
                settled = time.monotonic() + _SETTLED
            if settled is None and time.monotonic() > deadline:
                raise _silent(known, len(answers))
    finally:
        for module in (build, executor_probe):
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return list(answers.values())


def _executors(spark: SparkSession) -> list[str]:
    """Give the numbers of the executors that Spark knows of; the driver itself is none."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no other way to them
    found = str(context.getExecutorIds().mkString(","))
    return found.split(",") if found else []


def _lack(answer: Mapping[str, str], folder: Path, nonce: str) -> str:
    """Say what an executor lacks, or nothing."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = f"{ebbtide.__version__} ({build.build_id()})"
    lacks = []
    if answer["seen"] != nonce or not _has_proof(answer, folder, nonce):
        lacks.append(f"another disk than the driver's under {folder.parent.parent}")
    if answer["build"] != own:
        lacks.append(f"Ebbtide {answer['build']}, where the driver has {own}")
    if answer["python"] != python:
        lacks.append(f"Python {answer['python']}, where the driver has {python}")
    return "; ".join(lacks)


def _has_proof(answer: Mapping[str, str], folder: Path, nonce: str) -> bool:
    try:
        text = (folder / answer["written"]).read_text(encoding="utf-8")
    except OSError:
        return False
    return text == proof_of(nonce, answer["executor"])


@contextmanager
def _clear_failures() -> Iterator[None]:
    """Turn the failure of a check into an error that stops the run: such executors cannot take part."""
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        found = translated(failure)
        if found.exit_code == ExecutorUnfit.exit_code:
            raise found from failure
        raise ExecutorUnfit(
            f"the executors could not be checked: {found.what}",
            why="a run must not begin on executors that may not share its state or its code",
            fix="install the same Ebbtide and Python on every host (PYSPARK_PYTHON names the Python), or use"
            " a local master",
        ) from failure


def _unfit(lacks: Mapping[str, str]) -> ExecutorUnfit:
    host, lack = next(iter(sorted(lacks.items())))
    others = f", and {len(lacks) - 1} more hosts" if len(lacks) > 1 else ""
    return ExecutorUnfit(
        f"the executor on {host} cannot take part: it has {lack}{others}",
        why="what it reads and writes would not be what the driver takes it for",
        fix="mount the same 'root' (and a local lake's folder) at the same path on every host, install the"
        " same Ebbtide there and give it the store's credentials, or use a local master",
        details=[f"{name}: {text}" for name, text in sorted(lacks.items())[:_MOST_NAMED]] if others else [],
    )


def _silent(known: list[str], answered: int) -> ExecutorUnfit:
    return ExecutorUnfit(
        f"{answered} of {len(known)} executors ({', '.join(sorted(known))}) answered in {_SECONDS} seconds",
        why="whether the others share the state root is not known",
        fix="see the executors' own logs; a host whose Python or Ebbtide does not start answers nothing",
    )


@dataclass(frozen=True)
class _Reacher:
    """Opens the target on an executor and says what went wrong."""

    reach: Reach
    driver: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        lack = ""
        try:
            self.reach()
        except EbbtideError as broken:
            lack = f"no way to the target: {broken.what}"
        except Exception as broken:  # noqa: BLE001 - whatever it is, the driver says it
            lack = f"no way to the target: {type(broken).__name__}: {broken}"
        row = {"host": [host_name(self.driver)], "lack": [lack[:500]]}
        yield pa.RecordBatch.from_pydict({name: pa.array(value, pa.string()) for name, value in row.items()})
