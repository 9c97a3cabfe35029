"""What of a bucket its rules can match, so that nothing else is listed or asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ebbtide.targets.s3.rules.configuration import Configuration, Filter, Rule


def covering_prefixes(configuration: Configuration) -> tuple[str, ...]:
    """Give the fewest prefixes below which lies every version that an enabled rule can match."""
    return _fewest(rule.filter.prefix for rule in configuration.enabled if _is_about_versions(rule))


def upload_prefixes(configuration: Configuration) -> tuple[str, ...]:
    """Give the fewest prefixes below which lies every upload that an enabled rule can abort."""
    return _fewest(rule.filter.prefix for rule in configuration.enabled if rule.abort_days is not None)


def needs_tags(configuration: Configuration) -> bool:
    """Tell whether an enabled rule asks for tags, which no listing has."""
    return any(rule.filter.tags for rule in configuration.enabled if _is_about_versions(rule))


@dataclass(frozen=True)
class Match:
    """Keys and sizes that a rule can match; both limits are exclusive."""

    prefix: str
    larger_than: int | None = None
    smaller_than: int | None = None


def matches(configuration: Configuration) -> tuple[Match, ...]:
    """Say which versions an enabled rule can match by key and size."""
    return _matches(rule.filter for rule in configuration.enabled if _is_about_versions(rule))


def tag_matches(configuration: Configuration) -> tuple[Match, ...]:
    """Say which versions a rule that asks for tags can match by key and size; only these are asked."""
    rules = (rule for rule in configuration.enabled if _is_about_versions(rule) and rule.filter.tags)
    return _matches(rule.filter for rule in rules)


def _matches(filters: Iterable[Filter]) -> tuple[Match, ...]:
    found = (Match(one.prefix, one.larger_than, one.smaller_than) for one in filters)
    return tuple(dict.fromkeys(found))


def _is_about_versions(rule: Rule) -> bool:
    """Tell whether a rule does anything but abort uploads."""
    return bool(
        rule.expiration or rule.noncurrent_expiration or rule.transitions or rule.noncurrent_transitions
    )


def _fewest(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Leave out each prefix that begins with another one; in order, that one stands before it."""
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)
