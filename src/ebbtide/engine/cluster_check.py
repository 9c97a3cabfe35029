"""
The check of a cluster: before a run, each executor proves that it can take part.

1. The driver writes a nonce into a new folder below the state root.
2. Every executor reads the nonce and writes a hash of it into the same folder. It also reports its Python and
   its build of Ebbtide. Tasks are sent until all executors that Spark knows have answered.
3. The driver reads the hashes and compares.
4. Every executor opens the target with its own credentials (`check_reach`).

Executors that join later are not asked. Their Python looks for the nonce of the session when it starts, and
opens no store and no registry if that fails (`storage.executor_proof`). Row counts of tables reveal anything
else that they fail to write. A local master has no other executors, so it is not checked.
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
"""Seconds without a new executor after which all are known; executors start one after another."""
_MOST_NAMED = 5

Reach = Callable[[], None]
"""Opens a target on an executor, and raises if that is not possible there."""


@dataclass(frozen=True)
class StoreReach:
    """Reaches an object store: opens it and lists a page."""

    store: StoreSpec

    def __call__(self) -> None:
        """Open it."""
        next(iter(open_store(self.store).children("")), None)


@contextmanager
def session_proof(root: Path, master: str) -> Iterator[Mapping[str, str]]:
    """Yield the settings with which executors that join later check the state root and the build."""
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
    Stop unless every executor of a cluster can take part in a run and reach the target.

    `reach` is called only for a cluster, so that a local run does not open the target for it.
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
    """Stop unless every executor can open the target; the caller has called `check_executors`."""
    driver = spark.conf.get("spark.driver.host") or ""
    tasks = 2 * spark.sparkContext.defaultParallelism
    frame = spark.range(0, tasks, 1, tasks).mapInArrow(_Reacher(reach, driver), "host string, lack string")
    with _clear_failures():
        found = frame.toArrow().to_pylist()
    lacks = {row["host"]: row["lack"] for row in found if row["lack"]}
    if lacks:
        raise _unfit(lacks)


def _ask(spark: SparkSession, folder: Path) -> list[dict[str, str]]:
    """Ask until all executors that Spark knows have answered; return one answer of each."""
    # By value, because an executor with another build does not have this code.
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
    """Return the ids of the executors that Spark knows, without the driver."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no other way to them
    found = str(context.getExecutorIds().mkString(","))
    return found.split(",") if found else []


def _lack(answer: Mapping[str, str], folder: Path, nonce: str) -> str:
    """Return why an executor cannot take part; empty if it can."""
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
    """Turn a failed check into an error that stops the run."""
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
        why="it would read or write other data than the driver expects",
        fix="mount the same 'root' (and a local lake's folder) at the same path on every host, install the"
        " same Ebbtide there and give it the store's credentials, or use a local master",
        details=[f"{name}: {text}" for name, text in sorted(lacks.items())[:_MOST_NAMED]] if others else [],
    )


def _silent(known: list[str], answered: int) -> ExecutorUnfit:
    return ExecutorUnfit(
        f"{answered} of {len(known)} executors ({', '.join(sorted(known))}) answered in {_SECONDS} seconds",
        why="it is unknown whether the others share the state root",
        fix="see the executors' own logs; a host whose Python or Ebbtide does not start does not answer",
    )


@dataclass(frozen=True)
class _Reacher:
    """Opens the target on an executor and reports what went wrong."""

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
        except Exception as broken:  # noqa: BLE001 - the driver reports any error
            lack = f"no way to the target: {type(broken).__name__}: {broken}"
        row = {"host": [host_name(self.driver)], "lack": [lack[:500]]}
        yield pa.RecordBatch.from_pydict({name: pa.array(value, pa.string()) for name, value in row.items()})
