"""
Which ranges there are and who reaches each, read on the driver: for questions about a few objects.

This is what :func:`ebbtide.targets.lake.metadata.ranges.range_table` gives a whole run, without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ebbtide.storage.store import open_store
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import read_metarange
from ebbtide.targets.lake.metadata.terms import Term
from ebbtide.targets.lake.metadata.ties import Tie
from ebbtide.targets.lake.metadata.world import Metarange, World, latest_order, metaranges_of
from ebbtide.targets.repository.policy import PolicyClass, Referrer

_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class ReachedRange:
    """A range, with one tie for each policy class that reaches it."""

    folder: str
    info: RangeInfo
    ties: tuple[Tie, ...]
    term: Term | None
    """Until when the last commit or staging keeps it, where retention is asked for."""
    lapses: bool
    """At least one of them will let go of it."""

    def can_contain(self, key: str) -> bool:
        """Tell whether a key lies between the first and the last of this range."""
        return self.info.min_key <= key <= self.info.max_key


@dataclass
class _Reaching:
    """Everyone who reaches a range, as far as metaranges were read."""

    info: RangeInfo
    names: dict[tuple[Referrer, PolicyClass], str] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)
    lapses: bool = False

    def add(self, metarange: Metarange, default_branch: str) -> None:
        for tie in metarange.ties:
            known = self.names.get((tie.referrer, tie.days))
            if known is None or (tie.name != default_branch, tie.name) < (known != default_branch, known):
                self.names[tie.referrer, tie.days] = tie.name
        self.terms += [metarange.term] if metarange.term else []
        self.lapses = self.lapses or metarange.lapses

    @property
    def ties(self) -> tuple[Tie, ...]:
        """One tie a class, in the order in which a run judges them."""
        found = [Tie(referrer, name, days) for (referrer, days), name in self.names.items()]
        return tuple(sorted(found, key=_tie_order))

    @property
    def term(self) -> Term | None:
        return max(self.terms, key=lambda term: (*latest_order(term), term.why), default=None)


def reached_ranges(world: World) -> list[ReachedRange]:
    """List the ranges of all commits and of all staging, each once; what cannot be read raises."""
    found: dict[tuple[str, str], _Reaching] = {}
    for metarange, infos in _listed(world):
        for info in infos:
            reaching = found.setdefault((metarange.folder, info.id), _Reaching(info))
            reaching.add(metarange, world.default_branch)
    return [
        ReachedRange(folder, reaching.info, reaching.ties, reaching.term, reaching.lapses)
        for (folder, _), reaching in found.items()
    ]


def _listed(world: World) -> Iterator[tuple[Metarange, list[RangeInfo]]]:
    """Read what is in each metarange, several at a time."""
    store = open_store(world.store)
    metaranges = metaranges_of(world)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        read = pool.map(lambda one: read_metarange(store, one.folder, one.id), metaranges)
        yield from zip(metaranges, read, strict=True)


def _tie_order(tie: Tie) -> tuple[str, str, tuple[tuple[bool, int], ...]]:
    """Order ties as Spark does: a class that a rule does not cover comes before one that it does."""
    return str(tie.referrer), tie.name, tuple((days is not None, days or 0) for days in tie.days)
