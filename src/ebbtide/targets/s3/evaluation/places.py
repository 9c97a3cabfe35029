"""
Places: intervals of the key space, within which the same rules match by prefix.

A prefix is an interval too: all keys from itself up to the next string that does not begin with it. The ends
of all rules' intervals cut the key space into pieces, and within a piece no rule's prefix begins or ends.
Strings are ordered by their code points, which is how Python orders them and, as UTF-8 keeps that order, how
Spark does.
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
class Setting:
    """A bucket's rules and state, and the moment at which they are looked at."""

    configuration: Configuration
    now: datetime
    versioning: Versioning = Versioning.ENABLED
    protected: tuple[Protected, ...] = ()
    """The prefixes below which everything is held."""


@dataclass(frozen=True)
class NumberedRule:
    """An enabled rule with its number among those of all settings; of two that tie the lower one counts."""

    number: int
    rule: Rule


@dataclass(frozen=True)
class Place:
    """An interval of the key space: where it begins, whose it is, and which rules match by prefix there."""

    begins: str
    world: int
    rules: tuple[NumberedRule, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes at which another set of rules begins to match, or transitions begin."""
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
        """The sets of tags that rules ask for."""
        return tuple(sorted({rule.filter.tags for _, rule in self._unpacked() if rule.filter.tags}))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of newer noncurrent versions at which more rules begin to match."""
        found = {
            option.newer
            for _, rule in self._unpacked()
            for option in (rule.noncurrent_expiration, *rule.noncurrent_transitions)
            if option is not None and option.newer
        }
        return tuple(sorted(found))

    @property
    def has_transitions(self) -> bool:
        """Tell whether the storage class that an object has matters here."""
        return any(rule.transitions or rule.noncurrent_transitions for _, rule in self._unpacked())

    def _unpacked(self) -> list[tuple[int, Rule]]:
        return [(numbered.number, numbered.rule) for numbered in self.rules]


def numbered_rules(settings: Sequence[Setting]) -> list[list[NumberedRule]]:
    """Give numbers to the enabled rules of all settings, in their order."""
    found: list[list[NumberedRule]] = []
    number = 0
    for setting in settings:
        rules = [NumberedRule(number + i, rule) for i, rule in enumerate(setting.configuration.enabled)]
        found.append(rules)
        number += len(rules)
    return found


def world_prefix(world: int, worlds: int) -> str:
    """Give what stands before the keys of a setting, if there are several, in the key space of all."""
    return f"{world:06d}" if worlds > 1 else ""


def places(settings: Sequence[Setting]) -> list[Place]:
    """Cut the key space of all settings into places, in key order; together they leave no gap."""
    found: list[Place] = []
    for world, rules in enumerate(numbered_rules(settings)):
        before = world_prefix(world, len(settings))
        starts = {""}
        for numbered in rules:
            prefix = numbered.rule.filter.prefix
            starts.add(prefix)
            if (end := end_of(prefix)) is not None:
                starts.add(end)
        found += [
            Place(
                before + start,
                world,
                tuple(numbered for numbered in rules if start.startswith(numbered.rule.filter.prefix)),
            )
            for start in sorted(starts)
        ]
    return found


def end_of(prefix: str) -> str | None:
    """Give the first string after all that begin with a prefix; None if there is none."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # Surrogates are no characters: no key can hold one.
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
