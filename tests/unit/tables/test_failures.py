"""Root causes: of what Spark says, the one line that matters, the host, and what can be done."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from ebbtide.engine.spark import failures
from ebbtide.engine.spark.failures import FailureLog, root_cause, translated, without_secrets

TASK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times,"
    " most recent failure: Lost task 0.3 in stage 1.0 (TID 5) (10.0.0.7 executor 1): "
)
PYTHON = f"""An error occurred while calling o186.parquet.
: {TASK}org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/worker.py", line 1, in main
    process()
  File "/opt/ours.py", line 2, in job
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:5)
Caused by: java.io.IOException: something behind
"""
NO_MODULE = f"""An error occurred while calling o186.parquet.
: {TASK}org.apache.spark.SparkException:
Error from python worker:
  /usr/bin/python3: Error while finding module specification for 'ebbtide.worker_daemon' \
(ModuleNotFoundError: No module named 'ebbtide')
PYTHONPATH was:
  /opt/spark/python
org.apache.spark.SparkException: EOFException occurred while reading the port number.
"""
NO_DAEMON = f"""An error occurred while calling o186.parquet.
: {TASK}org.apache.spark.SparkException:
Error from python worker:
  /opt/venv/bin/python: No module named ebbtide.worker_daemon
PYTHONPATH was:
  /opt/spark/python
org.apache.spark.SparkException: EOFException occurred while reading the port number.
"""
NO_MODULE_LATER = PYTHON.replace(
    "ZeroDivisionError: division by zero", "ModuleNotFoundError: No module named 'x'"
)
GONE = f"""An error occurred while calling o99.count.
: {TASK}org.apache.spark.SparkFileNotFoundException: [FAILED_READ_FILE.FILE_NOT_EXIST]
\tat org.apache.spark.Anything(Any.scala:1)
Caused by: java.io.FileNotFoundException: File file:/srv/state/runs/000001/plan/p.parquet does not exist
"""
EXECUTOR = f"""An error occurred while calling o1.count.
: {TASK}ExecutorLostFailure (executor 1 exited) Reason: killed
"""
CACHE = GONE.replace("runs/000001/plan/p", "memory/uid/build/run-000001/base/kind=touched/p")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTHON, "ZeroDivisionError: division by zero"),
        (NO_MODULE, "ModuleNotFoundError: No module named 'ebbtide'"),
        (NO_DAEMON, "No module named ebbtide.worker_daemon"),
        (NO_MODULE_LATER, "ModuleNotFoundError: No module named 'x'"),
        (
            GONE,
            "java.io.FileNotFoundException: File file:/srv/state/runs/000001/plan/p.parquet does not exist",
        ),
        (EXECUTOR, "ExecutorLostFailure (executor 1 exited) Reason: killed"),
        ("\n\nJVM gone\n", "JVM gone"),
        ("", "Spark said nothing"),
    ],
)
def test_the_root_cause_is_one_line(text, line):
    """The cause is the end of a traceback, or the innermost exception, never the call that met it."""
    assert line == root_cause(text).line


def test_the_host_is_named():
    """Where Spark says on which host a task failed, so does the error; the driver is no host."""
    assert "ZeroDivisionError: division by zero (on host 10.0.0.7)" == root_cause(PYTHON).sentence
    assert "" == root_cause(PYTHON.replace("10.0.0.7 executor 1", "localhost executor driver")).host


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (NO_MODULE, "install the same Ebbtide and Python on every host"),
        (NO_DAEMON, "install the same Ebbtide and Python on every host"),
        (EXECUTOR, "give it more memory"),
        (GONE, "let nothing else change the state root"),
        (CACHE, "plan again with --full"),
        (PYTHON, "run again"),
    ],
)
def test_the_advice_fits(text, advice):
    """--full is advised where a cache is what cannot be read, and nowhere else."""
    fix = translated(PySparkException(text)).fix

    assert advice in fix
    assert (text is CACHE) == ("--full" in fix)


def test_the_whole_text_is_in_the_log(tmp_path, monkeypatch):
    """The error is one line and names a file, which has all that Spark said."""
    monkeypatch.setattr(FailureLog, "file", tmp_path / "spark.log")
    error = translated(PySparkException(PYTHON))

    assert f"the whole text is in {tmp_path / 'spark.log'}" in error.fix
    assert 1 == len(str(error).splitlines())
    assert "BasePythonRunner.handle" in (tmp_path / "spark.log").read_text()


def test_no_secret_gets_into_error_or_log(tmp_path, monkeypatch):
    """Values of secret variables, passwords in URLs and what is named like a secret are blanked out."""
    monkeypatch.setattr(FailureLog, "file", tmp_path / "spark.log")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7")
    said = "StoreError: postgresql://ebb:hunter22@db/x Authorization: Bearer abcdef key wJalrXUtnFEMI/K7"
    said += " token=t0p"
    error = translated(PySparkException(PYTHON.replace("ZeroDivisionError: division by zero", said)))
    log = (tmp_path / "spark.log").read_text()

    for secret in ("wJalrXUtnFEMI/K7", "hunter22", "abcdef", "t0p"):
        assert secret not in str(error)
        assert secret not in log
    assert "postgresql://ebb:***@db/x" in log


def test_plain_words_stay():
    """What is no secret is not touched, not even a short value of a secret variable."""
    text = "the token of an upload; secretary: nobody"

    assert "the token of an upload" in without_secrets(text)
    assert failures._MOST == len(root_cause("x" * 1000).line)
