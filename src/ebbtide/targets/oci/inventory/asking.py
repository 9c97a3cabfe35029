"""
Asking a registry: rows come, each is asked about, several at a time, and rows go.

A question that cannot be answered raises and ends the scan: what was not read is never what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from ebbtide.targets.oci.base import Registry, RegistrySpec
from ebbtide.targets.oci.client.opening import open_registry

Row = Mapping[str, Any]
Question = Callable[[Registry, Row], Iterable[Row]]
"""Asks about one row, and gives the rows that are the answer; none if it is not there."""

_ROWS_AT_A_TIME = 256
_NAMES_AT_A_TIME = 10_000


def answers(registry: Registry, question: Question, rows: Iterable[Row], threads: int) -> Iterator[list[Row]]:
    """Ask one question about each row, and give the answers in the order of the rows, some at a time."""
    remaining = iter(rows)
    with _threads(threads) as asking:
        while some := list(islice(remaining, _ROWS_AT_A_TIME)):
            found = asking.map(lambda row: list(question(registry, row)), some)
            yield [answer for one in found for answer in one]


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Run threads that ask nothing more once a question has failed: a registry that hangs is slow to ask."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Asker:
    """Asks one question about each row of a partition, on an executor."""

    spec: RegistrySpec
    question: Question
    answers: Any
    """The Arrow schema of the rows that it gives."""
    threads: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Ask, and give the answers in batches."""
        rows = (row for batch in batches for row in batch.to_pylist())
        first = list(islice(rows, 1))
        if not first:
            return
        with closing(open_registry(self.spec)) as registry:
            for some in answers(registry, self.question, chain(first, rows), self.threads):
                yield pa.RecordBatch.from_pylist(some, schema=self.answers)


@dataclass(frozen=True)
class Lister:
    """Asks each repository that comes for a list of names, without holding a long one, on an executor."""

    spec: RegistrySpec
    question: Question
    answers: Any
    """The Arrow schema of the rows that it gives."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """List, and give the names in batches."""
        for batch in batches:
            with closing(open_registry(self.spec)) as registry:
                for repository in batch.to_pylist():
                    names = iter(self.question(registry, repository))
                    while some := list(islice(names, _NAMES_AT_A_TIME)):
                        yield pa.RecordBatch.from_pylist(some, schema=self.answers)
