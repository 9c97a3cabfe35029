"""What is printed: for people it fits the terminal, for programs it is whole."""

import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.format import count, human_bytes, numbers, plural
from ebbtide.core.instant import NEVER, format_second
from ebbtide.engine.run_tables import in_order
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.kind import shared_catalog

LONG = "lake:" + "a-repository-whose-name-is-" * 4 + "long"


@pytest.fixture
def big_run(here):
    """Record a plan with many objects for a target with a long name."""
    ledger = Ledger(f"sqlite:///{here}/.ebbtide/ledger.db")
    run_id = ledger.begin(LONG, LONG, "lifecycle", "{}", datetime(2026, 11, 17, tzinfo=UTC))
    ledger.planned(run_id, "hash", 1_234_567, 98_765_432_101)


def on_terminal(*words: str, columns: int = 80) -> str:
    """Run a command on a terminal of this width, and give what it prints."""
    ours, theirs = pty.openpty()
    code = "import sys; from ebbtide.cli.main import main; main()"
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code, *words], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        said += part
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).replace("\r\n", "\n")


def test_a_table_fits_the_terminal(big_run):
    """On a terminal names are cut in their middle, and numbers are for people."""
    said = on_terminal("runs")

    assert max(map(len, said.splitlines())) <= 80
    assert re.search(r"lake:\S*…\S*long", said)
    assert re.search(r" 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", said)
    assert "1\u202f234\u202f567  92.0 GiB" in said


def test_nothing_is_cut_off_a_terminal(big_run, capsys):
    """Piped, every name is whole, and numbers are digits that a program can read."""
    run(["runs"])
    said = capsys.readouterr().out.splitlines()
    fields = said[2].split()

    assert LONG in fields
    assert ["1234567", "98765432101"] == fields[5:7]
    assert ["objects", "bytes", "note"] == said[1].split()[-3:]


def test_times_are_shown_to_the_second(lake, capsys):
    """Commands print times to the second, in the form that --now takes; JSON has them whole."""
    shared_catalog(State()).create_tag("sales", "v1", "main")
    capsys.readouterr()
    for words in (["lake", "log", "sales"], ["lake", "ls", "sales"], ["lake", "list"]):
        run(words)
        times = re.findall(r"\d{4}-\d\d-\d\dT\S+", capsys.readouterr().out)

        assert times
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one) for one in times)


def test_a_time_to_the_second():
    """What never comes stays never, and a fraction is left out."""
    moment = datetime(2026, 11, 17, 4, 13, 9, 999_999, tzinfo=UTC)

    assert ("2026-11-17T04:13:09Z", "never") == (format_second(moment), format_second(NEVER))


def test_numbers_for_programs_are_digits():
    """In a block for programs nothing stands between digits, and sizes are in bytes."""
    with numbers(plain=True):
        plain = (count(1_234_567), human_bytes(1_536), plural(1_000, "object"))

    assert ("1234567", "1536 B", "1000 objects") == plain
    assert ("1\u202f234\u202f567", "1.5 KiB") == (count(1_234_567), human_bytes(1_536))


@pytest.mark.parametrize("most", [1, 3, 4, 10, 100])
def test_rows_are_put_in_order_whatever_fits_in_memory(most):
    """The order is the same whether all rows fit in memory or few do."""
    rows = [{"path": f"{number * 7 % 10}"} for number in range(10)]

    assert [str(number) for number in range(10)] == [
        row["path"] for row in in_order(rows, lambda row: row["path"], most)
    ]
