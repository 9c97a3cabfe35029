"""
The command blocks of a page of documentation, run in order in one folder as a reader would paste them.

A fenced block of language ``sh`` is pasted into bash. It must end with exit code 0, or with N if the language
is followed by ``exit=N``. A block of language ``text`` after it shows lines of what it prints (on either
stream), in their order; ``...`` stands for anything. A comment ``<!-- not run: REASON -->`` above a
block exempts it. All other blocks are for reading only.

The blocks of a page share the working folder and the exported variables, as in one terminal. ``ebb`` runs in
this process, on the tests' Spark; everything else runs in a real bash.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ebbtide.cli.main import run

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_INDENTED = re.compile(r"(?:^|\n)\n((?: {4}|\t)\S[^\n]*)")
_LANGUAGES = {"sh", "text", "json", "python", "toml", "yaml"}
_EXIT = re.compile(r"exit=([0-9]+)")
_SHIM = """\
#!{python}
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.environ["EBB_SOCKET"])
    kinds = ("EBBTIDE_", "AWS_", "PG")
    own = {{name: value for name, value in os.environ.items() if name.startswith(kinds)}}
    asked = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": own}}
    server.sendall(json.dumps(asked).encode() + b"\\n")
    answer = json.loads(server.makefile().read())
sys.stdout.write(answer["out"])
sys.stdout.flush()
sys.stderr.write(answer["error"])
sys.exit(answer["code"])
"""
_SECONDS = 600


@dataclass(frozen=True)
class CommandBlock:
    """A block to paste, what it should end with, and the lines that the page shows of its output."""

    line: int
    text: str
    exit_code: int = 0
    shown: tuple[str, ...] = ()
    not_run: str | None = None
    """Why it cannot run in a test; None if it does."""


def command_blocks(page: str) -> list[CommandBlock]:
    """Find the command blocks of a page."""
    found: list[CommandBlock] = []
    for block in _FENCE.finditer(page):
        language, _, rest = block["info"].strip().partition(" ")
        line = page.count("\n", 0, block.start()) + 1
        if language == "sh":
            code = _EXIT.search(rest)
            exit_code = int(code[1]) if code else 0
            found.append(CommandBlock(line, block["text"], exit_code, not_run=block["reason"]))
        elif language == "text" and found:
            last = found.pop()
            lines = tuple(one for one in block["text"].splitlines() if one.strip())
            found.append(replace(last, shown=(*last.shown, *lines)))
    return found


def unlabelled_blocks(page: str) -> list[str]:
    """Find blocks that nobody can tell from commands: indented ones, and fenced ones of no known language."""
    fenced = [block["info"] for block in _FENCE.finditer(page)]
    unknown = [info for info in fenced if info.partition(" ")[0] not in _LANGUAGES]
    return unknown + _INDENTED.findall(_FENCE.sub("", page))


class DocShell:
    """Pastes command blocks into a shell that begins in one folder."""

    def __init__(
        self, folder: Path, socket_path: Path, commands: Path, listener: socket.socket, hosts: dict[str, str]
    ) -> None:
        self.folder, self._listener, self._hosts = folder, listener, hosts
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        self._printed, self._terminal = commands / "printed", commands / "terminal"
        self._environment = os.environ | {"PATH": path, "EBB_SOCKET": str(socket_path)}

    def paste(self, block: CommandBlock) -> str:
        """Run a block; check its exit code and the lines that the page shows, and give what it printed."""
        text = self._located(block.text)
        with self._printed.open("w+") as printed:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", f"{self._resumed()}\n{text}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            while process.poll() is None:
                self._answer_one()
        said = self._printed.read_text(encoding="utf-8")
        where = f"line {block.line}:\n{text}printed:\n{said}"
        assert block.exit_code == process.returncode, where
        check_shown(tuple(map(self._located, block.shown)), said, where)
        return said

    def _located(self, text: str) -> str:
        """Put the servers of the tests in the place of those that the page names."""
        for written, real in self._hosts.items():
            text = text.replace(written, real)
        return text

    def _resumed(self) -> str:
        """Go on where the last block ended: in its folder, with its variables."""
        file = shlex.quote(str(self._terminal))
        leave = f'trap \'{{ export -p; echo cd "$(printf %q "$PWD")"; }} > {file}\' EXIT'
        return f"test ! -e {file} || source {file}\n{leave}"

    def _answer_one(self) -> None:
        """Run one `ebb` that the shell asks for, if it asks within a moment."""
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            return
        with connection:
            asked = json.loads(connection.makefile().readline())
            connection.sendall(json.dumps(_run(asked)).encode())


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    # Over bytes, as real streams are: an object is written as what it is.
    kept = [io.BytesIO(), io.BytesIO()]
    out, error = (io.TextIOWrapper(one, encoding="utf-8", write_through=True) for one in kept)
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(error):
        patched.chdir(asked["folder"])
        for name, value in asked["environment"].items():
            patched.setenv(name, value)
        code = run(asked["arguments"])
    printed, complained = (one.getvalue().decode() for one in kept)
    return {"code": code, "out": printed, "error": complained}


def check_shown(shown: tuple[str, ...], printed: str, where: str) -> None:
    """Check that the shown lines are among the printed ones, in their order."""
    lines: Iterator[str] = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown:
        parts = [re.escape(part) for part in " ".join(line.split()).split("...")]
        wanted = re.compile(".*".join(parts))
        assert any(wanted.fullmatch(found) for found in lines), f"{line!r} is not shown by {where}"


@contextmanager
def doc_shell(folder: Path, hosts: dict[str, str] | None = None) -> Iterator[DocShell]:
    """Give a shell whose `ebb` runs in this process; `hosts` has the real HOST:PORT of those in the pages."""
    with TemporaryDirectory(prefix="ebb-") as place, socket.socket(socket.AF_UNIX) as listener:
        commands = Path(place)
        shim = commands / "ebb"
        shim.write_text(_SHIM.format(python=sys.executable))
        shim.chmod(0o755)
        path = commands / "socket"
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.05)
        yield DocShell(folder, path, commands, listener, hosts or {})
