"""
Key intervals: parts of the key space in which the same rules match by prefix.

A prefix is an interval of keys: from the prefix itself to the next string that does not begin with it. The
ends of the intervals of all rules divide the key space so that no prefix begins or ends inside a part.
Strings are ordered by code point, as Python orders them; Spark orders them by UTF-8 bytes, which is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ebbtide.targets.s3.model import Protected, Versioning
from ebbtide.targets.s3.rules.configuration import Configuration, Rule
from ebbtide.targets.s3.rules.storage_classes import SMALL

_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)
TagSet = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BucketSetting:
    """The rules and the versioning of a bucket, and the time at which they are evaluated."""

    configuration: Configuration
    now: datetime
    versioning: Versioning = Versioning.ENABLED
    protected: tuple[Protected, ...] = ()
    """The prefixes whose keys are all held."""


@dataclass(frozen=True)
class NumberedRule:
    """An enabled rule with its number among the rules of all settings. If two rules tie, the lower wins."""

    number: int
    rule: Rule


@dataclass(frozen=True)
class KeyInterval:
    """An interval of the key space: its first string, its setting, and the rules that match by prefix."""

    begins: str
    world: int
    rules: tuple[NumberedRule, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes from which on other rules match or transitions are allowed."""
        found = set[int]()
        for _, rule in self._unpacked():
            if rule.filter.larger_than is not None:
                found.add(rule.filter.larger_than + 1)
            if rule.filter.smaller_than is not None:
                found.add(rule.filter.smaller_than)
            if (rule.transitions or rule.noncurrent_transitions) and not rule.filter.has_size:
                found.add(SMALL)
        return tuple(sorted(found))

    @property
    def tag_sets(self) -> tuple[TagSet, ...]:
        """The sets of tags that rules require."""
        return tuple(sorted({rule.filter.tags for _, rule in self._unpacked() if rule.filter.tags}))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of newer noncurrent versions from which on more rules match."""
        found = {
            option.newer
            for _, rule in self._unpacked()
            for option in (rule.noncurrent_expiration, *rule.noncurrent_transitions)
            if option is not None and option.newer
        }
        return tuple(sorted(found))

    @property
    def has_transitions(self) -> bool:
        """Return True if the storage class of an object matters in this interval."""
        return any(rule.transitions or rule.noncurrent_transitions for _, rule in self._unpacked())

    def _unpacked(self) -> list[tuple[int, Rule]]:
        return [(numbered.number, numbered.rule) for numbered in self.rules]


def numbered_rules(settings: Sequence[BucketSetting]) -> list[list[NumberedRule]]:
    """Return the enabled rules of each setting, numbered over all settings in their order."""
    found: list[list[NumberedRule]] = []
    number = 0
    for setting in settings:
        rules = [NumberedRule(number + i, rule) for i, rule in enumerate(setting.configuration.enabled)]
        found.append(rules)
        number += len(rules)
    return found


def world_prefix(world: int, worlds: int) -> str:
    """Return the prefix that separates the keys of one setting from those of the others, if there are any."""
    return f"{world:06d}" if worlds > 1 else ""


def key_intervals(settings: Sequence[BucketSetting]) -> list[KeyInterval]:
    """Divide the key space of all settings into intervals, in key order and without gaps."""
    found: list[KeyInterval] = []
    for world, rules in enumerate(numbered_rules(settings)):
        before = world_prefix(world, len(settings))
        starts = {""}
        for numbered in rules:
            prefix = numbered.rule.filter.prefix
            starts.add(prefix)
            if (end := end_of(prefix)) is not None:
                starts.add(end)
        found += [
            KeyInterval(
                before + start,
                world,
                tuple(numbered for numbered in rules if start.startswith(numbered.rule.filter.prefix)),
            )
            for start in sorted(starts)
        ]
    return found


def end_of(prefix: str) -> str | None:
    """Return the first string after all strings that begin with a prefix; None if there is none."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # Surrogates are not characters, so no key contains one.
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
