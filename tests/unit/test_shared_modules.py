"""What tests may not replace: functions of modules that threads of Spark and of servers use meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SHARED = {"os", "time", "threading", "socket", "select", "selectors", "subprocess", "queue", "random", "ssl"}
BY_PATH = {"os.link", "os.unlink", "os.rename", "os.replace", "os.scandir", "os.fsync"}
"""These are about a file, so that a stand-in can leave the files of others to the real one."""


def replaced(source: str) -> Iterator[str]:
    """Name what a module's calls of setattr replace in shared modules."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "setattr" or not node.args:
            continue
        whole = ".".join(ast.unparse(one).strip("'\"") for one in node.args[:-1])
        if whole.partition(".")[0] in SHARED:
            yield whole


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('monkeypatch.setattr(time, "sleep", rests.append)', ["time.sleep"]),
        ('monkeypatch.setattr("os.getpid", lambda: -1)', ["os.getpid"]),
        ('monkeypatch.setattr(lake_reap, "sleep", rest)', []),
    ],
)
def test_a_replacement_is_recognised(line, expected):
    """However the shared module is named; a name that the module under test imported is its own."""
    assert expected == list(replaced(line))


def test_no_test_replaces_what_others_use():
    """Who wants another sleep or process number replaces the name in the module under test."""
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in replaced(path.read_text(encoding="utf-8"))
        if name not in BY_PATH
    }

    assert set() == found
