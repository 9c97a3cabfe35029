"""The catalog's snapshot as a world document, which the oracle judges; ranges are read without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import entries, read_metarange, read_range
from ebbtide.targets.repository.model import COMMITTED, STAGED, RangeInfo
from ebbtide.targets.repository.policy import LakePolicy, PolicyRun
from ebbtide.targets.repository.world_document import WorldDocument, WrittenCommit, WrittenEntry

Row = tuple[str, WrittenEntry]
Content = Mapping[str, WrittenEntry]


class Documents:
    """Writes one repository down, again and again; what never changes is read once."""

    def __init__(self, catalog: Catalog, repository: str) -> None:
        self._catalog = catalog
        self._repository = repository
        self._store = catalog.store(repository)
        self._ranges: dict[tuple[str, str], list[Row]] = {}
        self._commits: dict[str, Content] = {}
        self._last: tuple[int, WorldDocument] | None = None

    def written(self, policy: LakePolicy, runs: Iterable[PolicyRun]) -> WorldDocument:
        """Write down all commits, dangling ones too, branches, tags and staging."""
        sequence = self._catalog.sequence(self._repository)
        if self._last is None or sequence != self._last[0]:
            self._last = (sequence, self._read())
        return replace(self._last[1], policy=policy, runs=tuple(runs))

    def _read(self) -> WorldDocument:
        snapshot = self._catalog.snapshot(self._repository)
        commits = [
            WrittenCommit(commit.id, commit.parents, commit.created, self._content(commit.metarange_id))
            for commit in snapshot.commits.values()
        ]
        staged = {one.branch: _all_staged(self._rows(STAGED, one.metarange_id)) for one in snapshot.staged}
        branches, tags = snapshot.branches, snapshot.tags
        return WorldDocument(LakePolicy(()), branches, tags, tuple(commits), staged, ())

    def _content(self, metarange_id: str) -> Content:
        if metarange_id not in self._commits:
            self._commits[metarange_id] = dict(self._rows(COMMITTED, metarange_id))
        return self._commits[metarange_id]

    def _rows(self, folder: str, metarange_id: str) -> Iterator[Row]:
        for info in read_metarange(self._store, folder, metarange_id):
            yield from self._range(folder, info)

    def _range(self, folder: str, info: RangeInfo) -> list[Row]:
        if (folder, info.id) not in self._ranges:
            table = read_range(self._store, folder, info)
            self._ranges[folder, info.id] = [
                (entry.key, WrittenEntry(entry.address, entry.created, entry.size))
                for entry in entries(table)
            ]
        return self._ranges[folder, info.id]


def _layers(rows: Iterable[Row]) -> Sequence[dict[str, WrittenEntry]]:
    """Deal rows, of which the newest of a key comes first, into maps that have each key once."""
    layers: list[dict[str, WrittenEntry]] = [{}]
    for key, entry in rows:
        free = next((layer for layer in layers if key not in layer), None)
        if free is None:
            layers.append(free := {})
        free[key] = entry
    return layers


def _all_staged(rows: Iterable[Row]) -> dict[str, WrittenEntry]:
    """
    Give all that is staged on a branch; sealed rows that were overwritten since get keys of their own.

    A document has one entry for a staged key. No rule tells a key from one that is a little longer.
    """
    staged: dict[str, WrittenEntry] = {}
    for number, layer in enumerate(_layers(rows)):
        staged |= {key + " sealed" * number: entry for key, entry in layer.items()}
    return staged
