"""
The typed rules of an S3 lifecycle configuration, and which part of a bucket they can match. Pure.

A configuration is valid: `document` refuses every other with S3's own error codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MINIMUM_SIZE = "TransitionDefaultMinimumObjectSize"
"""What S3 calls the minimum size: a header of its PUT, and a field beside the rules in boto3."""


class MinimumSize(StrEnum):
    """Which objects are too small for a transition, if the rule has no size filter."""

    ALL_128K = "all_storage_classes_128K"
    VARIES = "varies_by_storage_class"


@dataclass(frozen=True)
class Filter:
    """The objects that a rule applies to: those that meet every condition. An empty filter matches all."""

    prefix: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    """Key and value of each tag that the object must have, sorted by key."""
    larger_than: int | None = None
    smaller_than: int | None = None

    @property
    def has_size(self) -> bool:
        """Return True if the filter has a size, which replaces the default minimum size of transitions."""
        return self.larger_than is not None or self.smaller_than is not None


@dataclass(frozen=True)
class Expiration:
    """When current versions expire: after days, at a date, or when only a delete marker is left."""

    days: int | None = None
    date: datetime | None = None
    expired_marker: bool = False

    @property
    def only_marker(self) -> bool:
        """Return True if the action is ExpiredObjectDeleteMarker, true or false, and has no time."""
        return self.days is None and self.date is None


@dataclass(frozen=True)
class NoncurrentExpiration:
    """When noncurrent versions expire: `days` after they were replaced, and behind `newer` newer ones."""

    days: int
    newer: int = 0


@dataclass(frozen=True)
class Transition:
    """When current versions move to another storage class or location: after days, or at a date."""

    storage_class: str
    days: int | None = None
    date: datetime | None = None


@dataclass(frozen=True)
class NoncurrentTransition:
    """When noncurrent versions move to another storage class: both conditions must be met."""

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
    """Days after its initiation at which an incomplete multipart upload is aborted."""
    legacy_prefix: bool = False
    """The rule has a Prefix instead of a Filter, as in S3's first API. It is written back that way."""


@dataclass(frozen=True)
class Configuration:
    """The rules of one bucket in their order. If two rules decide the same, the first is named."""

    rules: tuple[Rule, ...]
    minimum_size: MinimumSize = MinimumSize.ALL_128K

    @property
    def enabled(self) -> tuple[Rule, ...]:
        """The rules that apply; disabled rules are ignored."""
        return tuple(rule for rule in self.rules if rule.enabled)


def covering_prefixes(configuration: Configuration) -> tuple[str, ...]:
    """Return the fewest prefixes that cover all versions that an enabled rule can match."""
    return _fewest(rule.filter.prefix for rule in configuration.enabled if _is_about_versions(rule))


def upload_prefixes(configuration: Configuration) -> tuple[str, ...]:
    """Return the fewest prefixes that cover all uploads that an enabled rule can abort."""
    return _fewest(rule.filter.prefix for rule in configuration.enabled if rule.abort_days is not None)


def needs_tags(configuration: Configuration) -> bool:
    """Return True if an enabled rule has tags, which a listing does not contain."""
    return any(rule.filter.tags for rule in configuration.enabled if _is_about_versions(rule))


@dataclass(frozen=True)
class Match:
    """The keys and sizes that a rule can match; both limits are exclusive."""

    prefix: str
    larger_than: int | None = None
    smaller_than: int | None = None


def matches(configuration: Configuration) -> tuple[Match, ...]:
    """Return which versions an enabled rule can match, by key and size."""
    return _matches(rule.filter for rule in configuration.enabled if _is_about_versions(rule))


def tag_matches(configuration: Configuration) -> tuple[Match, ...]:
    """Return which versions a rule with tags can match, by key and size; only their tags are read."""
    rules = (rule for rule in configuration.enabled if _is_about_versions(rule) and rule.filter.tags)
    return _matches(rule.filter for rule in rules)


def _matches(filters: Iterable[Filter]) -> tuple[Match, ...]:
    found = (Match(one.prefix, one.larger_than, one.smaller_than) for one in filters)
    return tuple(dict.fromkeys(found))


def _is_about_versions(rule: Rule) -> bool:
    """Return True if a rule does anything but abort uploads."""
    return bool(
        rule.expiration or rule.noncurrent_expiration or rule.transitions or rule.noncurrent_transitions
    )


def _fewest(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Drop each prefix that begins with another; in sorted order the other comes first."""
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)
