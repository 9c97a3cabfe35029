"""
Asking a registry on executors: rows come, each is asked about, several at a time, and rows go.

A question that cannot be answered raises and ends the scan: what was not read is never what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from ebbtide.errors import NotFound
from ebbtide.registry.base import Registry, RegistrySpec
from ebbtide.registry.client.opening import open_registry
from ebbtide.registry.inventory.columns import LISTED_ARROW, WANTED_ARROW

Row = Mapping[str, Any]
Question = Callable[[Registry, Row], Iterable[Row]]
"""Asks about one row, and gives the rows that are the answer; none if it is not there."""

_ROWS_AT_A_TIME = 256
_NAMES_AT_A_TIME = 10_000


@dataclass(frozen=True)
class Asker:
    """Asks one question about each row of a partition."""

    spec: RegistrySpec
    question: Question
    answers: Any
    """The Arrow schema of the rows that it gives."""
    threads: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Ask, and give the answers in batches."""
        rows = (row for batch in batches for row in batch.to_pylist())
        some = list(islice(rows, _ROWS_AT_A_TIME))
        if not some:
            return
        with closing(open_registry(self.spec)) as registry, _threads(self.threads) as threads:
            while some:
                found = threads.map(lambda row: list(self.question(registry, row)), some)
                answers = [answer for one in found for answer in one]
                yield pa.RecordBatch.from_pylist(answers, schema=self.answers)
                some = list(islice(rows, _ROWS_AT_A_TIME))


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Run threads that ask nothing more once a question has failed: a registry that hangs is slow to ask."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class TagLister:
    """Lists the tags of each repository that comes, without holding a long list."""

    spec: RegistrySpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """List, and give the names in batches."""
        for batch in batches:
            with closing(open_registry(self.spec)) as registry:
                for repository in batch.column("repository").to_pylist():
                    yield from _batches(repository, _tags(registry, repository), LISTED_ARROW)


def _tags(registry: Registry, repository: str) -> Iterator[str | None]:
    """List tags; registries answer that a repository is not there if it only has manifests without tags."""
    listed = False
    try:
        for tag in registry.tags(repository):
            listed = True
            yield tag
    except NotFound:
        if listed:
            raise  # the list has come to an end too early
        yield None


@dataclass(frozen=True)
class UntaggedLister:
    """Lists the manifests without a tag, where a registry can."""

    spec: RegistrySpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """List, and give the names in batches."""
        for batch in batches:
            with closing(open_registry(self.spec)) as registry:
                for repository in batch.column("repository").to_pylist():
                    yield from _batches(repository, _untagged(registry, repository), WANTED_ARROW)


def _untagged(registry: Registry, repository: str) -> Iterator[str]:
    try:
        yield from registry.untagged(repository)
    except NotFound:
        return  # known from an earlier scan, and gone


def _batches(repository: str, names: Iterator[str | None], schema: Any) -> Iterator[Any]:
    """Put names beside their repository."""
    while some := list(islice(names, _NAMES_AT_A_TIME)):
        rows = pa.array([repository] * len(some), pa.string())
        yield pa.record_batch([rows, pa.array(some, pa.string())], schema=schema)
