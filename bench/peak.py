"""How much memory this process and all that it started needed at most, sampled from /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self


class PeakMemory:
    """Samples the resident memory of this process and its descendants."""

    def __init__(self) -> None:
        self.total = self.jvm = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            sizes = dict(_family(os.getpid()))
            self.total = max(self.total, sum(size for _, size in sizes.values()))
            self.jvm = max(self.jvm, *(size for name, size in sizes.values() if name == "java"), 0)


def _family(root: int) -> list[tuple[int, tuple[str, int]]]:
    parents, names, sizes = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(
                line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line
            )
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid], names[pid] = int(status["PPid"]), status["Name"]
        sizes[pid] = int(status.get("VmRSS", "0 kB").split()[0]) * 1024
    family = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return [(pid, (names[pid], sizes[pid])) for pid in family if pid in sizes]
