"""
Locations that lie in the bucket itself: what was moved there is not the business of rules about the rest.

A rule about the whole bucket would expire or move the copies as it did the originals, by an age that begins
anew with the move. So such a rule ends where the location begins. Whoever wants a rule for what lies there
says so in its prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ebbtide.storage.address import locate
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.rules.configuration import Configuration, Rule


@dataclass(frozen=True)
class Enclosed:
    """A location below a prefix of the bucket that is looked at."""

    name: str
    prefix: str

    @property
    def label(self) -> str:
        """Its name and its prefix, for people."""
        return f"{self.prefix} (location {self.name})"

    def is_meant_by(self, rule: Rule) -> bool:
        """Tell whether a rule is about this location and nothing besides it."""
        return rule.filter.prefix.startswith(self.prefix)

    def rules_of(self, configuration: Configuration) -> Configuration:
        """Give the rules that count for what lies here."""
        return replace(
            configuration, rules=tuple(rule for rule in configuration.rules if self.is_meant_by(rule))
        )


def enclosed_locations(spec: StoreSpec, locations: Mapping[str, StoreSpec]) -> tuple[Enclosed, ...]:
    """
    Find the locations inside a bucket, the deepest first.

    One that is the whole bucket encloses nothing: every rule of the bucket is about it.
    """
    bucket = locate(spec.url).host
    found = []
    for name, location in locations.items():
        place = locate(location.url)
        here = place.scheme == "s3" and place.host == bucket and _server(location) == _server(spec)
        if here and place.parts:
            found.append(Enclosed(name, f"{place.path}/"))
    return tuple(sorted(found, key=lambda one: (-len(one.prefix), one.prefix, one.name)))


def enclosing(enclosed: Iterable[Enclosed], key: str) -> Enclosed | None:
    """Give the location in which a key lies; of several the deepest, which comes first."""
    return next((one for one in enclosed if key.startswith(one.prefix)), None)


def left_out(enclosed: Sequence[Enclosed], configuration: Configuration) -> tuple[Enclosed, ...]:
    """Give the locations that no enabled rule is about, so that nobody has to look at what lies there."""
    return tuple(one for one in enclosed if not one.rules_of(configuration).enabled)


def _server(spec: StoreSpec) -> str:
    return spec.options.get("endpoint", "").rstrip("/")
