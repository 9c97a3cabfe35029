"""
Classes: the terms of every combination that rules can tell apart, numbered so that arithmetic finds them.

Within a place an item's class is given by its kind and, as far as they matter there, its size, the tag sets
it has, its storage class, and how many newer noncurrent versions its key has. All combinations of a place
lie in one row of numbers; each number names the terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from ebbtide.targets.s3.evaluation.places import Place, Setting, TagSet
from ebbtide.targets.s3.evaluation.terms import (
    Terms,
    current_terms,
    matching,
    noncurrent_marker_terms,
    noncurrent_terms,
    sole_marker_terms,
    upload_terms,
)
from ebbtide.targets.s3.rules.configuration import MinimumSize
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST, STANDARD

SOURCES = (STANDARD, *CHEAPEST_FIRST)
"""The storage classes from which the ways differ; any other is like the first."""

FEW_TAG_SETS = 6
"""Up to so many tag sets of a place all their combinations are listed; of more only those that occur."""

Signature = tuple[int, ...]
"""Which of a place's tag sets an item has."""


@dataclass(frozen=True)
class Dimensions:
    """What matters in a place, and so how its row of numbers is laid out."""

    sizes: tuple[int, ...]
    signatures: tuple[Signature, ...]
    sources: tuple[str, ...]
    ranks: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """How many sizes (the first is the unknown one), signatures, sources and ranks there are."""
        return len(self.sizes) + 2, len(self.signatures), len(self.sources), len(self.ranks) + 1

    @property
    def starts(self) -> tuple[int, int, int, int, int]:
        """Where current and noncurrent versions, sole and noncurrent markers and uploads begin in the row."""
        sizes, signatures, sources, ranks = self.widths
        noncurrent = sizes * signatures * sources
        sole = noncurrent + noncurrent * ranks
        return 0, noncurrent, sole, sole + 1, sole + 1 + ranks


@dataclass
class Classes:
    """All places with their dimensions, and the terms of all their classes."""

    places: list[Place]
    dimensions: list[Dimensions]
    rows: list[list[int]] = field(default_factory=list)
    """For each place, the numbers of the terms of its classes."""
    terms: list[Terms] = field(default_factory=lambda: [Terms()])
    """The terms by their numbers; the first says nothing."""


def has_many_tag_sets(place: Place) -> bool:
    """Tell whether the combinations of tag sets of a place are too many to be listed."""
    return len(place.tag_sets) > FEW_TAG_SETS


def classes(
    settings: Sequence[Setting], places: list[Place], seen: Mapping[int, Sequence[Signature]]
) -> Classes:
    """Add up the terms of all classes; `seen` has the signatures that occur in places with many tag sets."""
    found = Classes(places, _laid_out(places, seen))
    numbers: dict[Terms, int] = {Terms(): 0}
    for place, dimensions in zip(found.places, found.dimensions, strict=True):
        minimum = settings[place.world].configuration.minimum_size
        row = []
        for terms in _terms_of(place, dimensions, minimum):
            if terms not in numbers:
                numbers[terms] = len(found.terms)
                found.terms.append(terms)
            row.append(numbers[terms])
        found.rows.append(row)
    return found


def _laid_out(places: Sequence[Place], seen: Mapping[int, Sequence[Signature]]) -> list[Dimensions]:
    return [
        Dimensions(
            place.sizes,
            tuple(seen.get(number, [()])) if has_many_tag_sets(place) else signatures(place),
            SOURCES if place.has_transitions else SOURCES[:1],
            place.ranks,
        )
        for number, place in enumerate(places)
    ]


def signatures(place: Place) -> tuple[Signature, ...]:
    """List all combinations of a place's tag sets, each where its bits, read as a number, say."""
    count = len(place.tag_sets)
    return tuple(tuple(i for i in range(count) if bits >> i & 1) for bits in range(2**count))


def _terms_of(place: Place, dimensions: Dimensions, minimum: MinimumSize) -> Iterator[Terms]:
    """Give the terms of a place's classes in the order of its row."""
    sizes: list[int | None] = [None, 0, *dimensions.sizes]
    ranks = [0, *dimensions.ranks]
    versions = [
        (matching(place, size, _tag_sets(place, signature)), size, source)
        for size, signature, source in product(sizes, dimensions.signatures, dimensions.sources)
    ]
    for rules, size, source in versions:
        yield current_terms(rules, size, source, minimum)
    for rules, size, source in versions:
        for rank in ranks:
            yield noncurrent_terms(rules, size, source, minimum, rank)
    yield sole_marker_terms(place)
    for rank in ranks:
        yield noncurrent_marker_terms(place, rank)
    yield upload_terms(place)


def _tag_sets(place: Place, signature: Signature) -> list[TagSet]:
    return [place.tag_sets[i] for i in signature]
