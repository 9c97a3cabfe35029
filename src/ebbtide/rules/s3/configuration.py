"""
What an S3 lifecycle configuration says, in frozen data classes that every reader and evaluator shares.

A configuration here is valid: :mod:`ebbtide.rules.s3.reading` refuses any other with S3's own error codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class MinimumSize(StrEnum):
    """TransitionDefaultMinimumObjectSize: how small an object may be and still change its class."""

    ALL_128K = "all_storage_classes_128K"
    VARIES = "varies_by_storage_class"


@dataclass(frozen=True)
class Filter:
    """Which objects a rule is about: those that meet all of it. An empty one is about every object."""

    prefix: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    """Key and value of each tag that the object must have; sorted by key."""
    larger_than: int | None = None
    smaller_than: int | None = None

    @property
    def has_size(self) -> bool:
        """Tell whether it asks for a size, which takes the place of the default minimum for transitions."""
        return self.larger_than is not None or self.smaller_than is not None


@dataclass(frozen=True)
class Expiration:
    """When current versions end: after days, at a date, or as soon as only a delete marker is left."""

    days: int | None = None
    date: datetime | None = None
    expired_marker: bool = False


@dataclass(frozen=True)
class NoncurrentExpiration:
    """When noncurrent versions end: so many days after being replaced, and behind so many newer ones."""

    days: int
    newer: int = 0


@dataclass(frozen=True)
class Transition:
    """When current versions change to another storage class or location: after days, or at a date."""

    storage_class: str
    days: int | None = None
    date: datetime | None = None


@dataclass(frozen=True)
class NoncurrentTransition:
    """When noncurrent versions change their class: as with expiration, both conditions count."""

    storage_class: str
    days: int
    newer: int = 0


@dataclass(frozen=True)
class Rule:
    """One rule of a configuration."""

    id: str
    enabled: bool
    filter: Filter = Filter()
    expiration: Expiration | None = None
    noncurrent_expiration: NoncurrentExpiration | None = None
    transitions: tuple[Transition, ...] = ()
    noncurrent_transitions: tuple[NoncurrentTransition, ...] = ()
    abort_days: int | None = None
    """Days after its initiation at which an upload that was not completed is aborted."""
    legacy_prefix: bool = False
    """The prefix was given at the rule itself, the way that S3 still takes; it is written back that way."""


@dataclass(frozen=True)
class Configuration:
    """The rules of one bucket, in their order: of two that say the same the first is named."""

    rules: tuple[Rule, ...]
    minimum_size: MinimumSize = MinimumSize.ALL_128K

    @property
    def enabled(self) -> tuple[Rule, ...]:
        """The rules that count; a disabled one is as good as none."""
        return tuple(rule for rule in self.rules if rule.enabled)
