"""The command line for tests: in a folder of its own, on the tests' Spark."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.services.machine_clock import set_machine_clock

from ebbtide.cli.main import run
from ebbtide.cli.state import State


class Ebb:
    """Runs commands and gives what they print; none of them may end in a traceback or tell a secret."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.secrets: list[str] = []

    def __call__(self, *words: str, code: int = 0, now: str = "") -> tuple[str, str]:
        """Run a command that must end with this code, at this time of the machine, and give both streams."""
        with pytest.MonkeyPatch.context() as patched:
            if now:
                set_machine_clock(patched, now)
            found = run(list(words))
        said = self._capsys.readouterr()

        assert code == found, said.out + said.err
        for word in ("Traceback", "unexpected", *self.secrets):
            assert word not in said.out + said.err
        return said.out, said.err

    def json(self, *words: str, code: int = 0, now: str = "") -> Any:
        """Run a command, and read what it prints."""
        return json.loads(self(*words, "--json", code=code, now=now)[0])

    def lines(self, *words: str) -> list[Any]:
        """Run a command that prints a row a line, and read them."""
        return [json.loads(line) for line in self(*words, "--json")[0].splitlines()]


@pytest.fixture
def ebb(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ebb:
    """Run commands in a folder of this test."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(State, "spark", lambda *_: nullcontext(spark))
    return Ebb(folder, capsys)
