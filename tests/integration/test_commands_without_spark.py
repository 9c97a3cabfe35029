"""Commands that process no rows answer without Spark."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.services.ebb import Ebb, ebb

from ebbtide.cli.state import State

__all__ = ["ebb"]

COMMANDS = [
    "explain lake:sales raw/a",
    "explain lake:sales keep/b --json",
    "plan show 1",
    "plan show 1 --all",
    "plan show latest --json",
    "runs",
    "report 1",
    "recycle ls lake:sales",
    "recycle ls lake:sales --items",
    "lake list",
    "lake ls sales",
    "lake log sales",
    "lake branch sales",
    "lake policy get sales",
    "lake queue sales",
    "policy check policy.json",
    "bucket rules check rules.json",
    "bucket rules list",
    "restore --help",
    "apply --help",
]
RULES = {"Rules": [{"ID": "a", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}]}


@pytest.fixture
def sales(ebb: Ebb, monkeypatch: pytest.MonkeyPatch) -> Ebb:
    """Return a lake with a plan; from here on Spark must not start."""
    (ebb.folder / "a").write_text("a")
    (ebb.folder / "policy.json").write_text(json.dumps({"raw": {"prefix": "raw/", "days": 1}}))
    (ebb.folder / "rules.json").write_text(json.dumps(RULES))
    ebb("lake", "create", "sales", "lake")
    for key in ("raw/a", "keep/b"):
        ebb("lake", "upload", "sales", "a", key)
    ebb("lake", "commit", "sales", "-m", "two")
    ebb("lake", "policy", "set", "sales", "policy.json")
    ebb("plan", "lake:sales")

    def no_spark(*_: object) -> None:
        raise AssertionError("this command must not start Spark")

    monkeypatch.setattr(State, "spark", no_spark)
    return ebb


def test_commands_that_process_no_rows_do_not_start_spark(sales):
    """What is known from metadata, the ledger and stored plans is shown at once."""
    answered = [command for command in COMMANDS if sales(*command.split())]

    assert COMMANDS == answered


@pytest.mark.parametrize("command", ["runs", "lake list --help"])
def test_commands_that_read_no_table_do_not_import_spark(tmp_path, command):
    """To list runs and to print help, not even the library of Spark is loaded."""
    words = command.split()
    program = (
        f"import sys; from ebbtide.cli.main import run; code = run({words!r}); "
        "print(code, sorted({'pyspark', 'pandas', 'boto3'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )

    assert "0 []" == done.stdout.splitlines()[-1]
