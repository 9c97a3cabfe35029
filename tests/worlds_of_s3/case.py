"""One case of S3 semantics: a bucket, its rules, a moment, and the verdicts that are right then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ebbtide.core.instant import parse_instant
from ebbtide.targets.s3.model import Action, Hold, Protected, Upload, Verdict, Version, Versioning
from ebbtide.targets.s3.rules.configuration import Configuration, MinimumSize, Rule

Item = Version | Upload
Evaluate = Callable[[Configuration, Sequence[Item], datetime, Versioning, Sequence[Protected]], list[Verdict]]

MEBIBYTE = 1024 * 1024
TICK = timedelta(microseconds=1)
KEPT = Verdict()
"""No rule has anything to say of it, now or at any time that is known."""


@dataclass(frozen=True)
class Case:
    """A scenario of one row of the field notes, to be run through any evaluation."""

    row: str
    name: str
    configuration: Configuration
    items: tuple[Item, ...]
    now: datetime
    expected: tuple[Verdict, ...]
    versioning: Versioning = Versioning.ENABLED
    protected: tuple[Protected, ...] = ()

    def verdicts(self, evaluate: Evaluate) -> tuple[Verdict, ...]:
        """Run it through an evaluation."""
        return tuple(evaluate(self.configuration, self.items, self.now, self.versioning, self.protected))


def case(
    row: str,
    name: str,
    rules: Rule | Sequence[Rule],
    items: Item | Sequence[Item],
    now: str,
    expected: Verdict | Sequence[Verdict],
    *,
    versioning: Versioning = Versioning.ENABLED,
    minimum: MinimumSize = MinimumSize.ALL_128K,
) -> Case:
    """Make a case; one rule, item or verdict may stand for itself."""
    rules = (rules,) if isinstance(rules, Rule) else tuple(rules)
    items = (items,) if isinstance(items, Version | Upload) else tuple(items)
    expected = (expected,) if isinstance(expected, Verdict) else tuple(expected)
    return Case(row, name, Configuration(rules, minimum), items, parse_instant(now), expected, versioning)


def edges(at_last: Case) -> Iterator[Case]:
    """Give a case, made for the moment at which something falls due, also a microsecond before and after."""
    waiting = tuple(
        Verdict(rule_id=verdict.rule_id, due=verdict.due) if verdict.due == at_last.now else verdict
        for verdict in at_last.expected
    )
    before = replace(at_last, name=f"{at_last.name}, a microsecond before", expected=waiting)
    yield replace(before, now=at_last.now - TICK)
    yield at_last
    yield replace(at_last, name=f"{at_last.name}, a microsecond after", now=at_last.now + TICK)


def rule(name: str = "r", **parts: object) -> Rule:
    """Make an enabled rule about every object, unless told otherwise."""
    return Rule(**{"id": name, "enabled": True, **parts})


def version(written: str | None, key: str = "a", **parts: object) -> Version:
    """Make a version of a mebibyte, written at a time."""
    moment = None if written is None else parse_instant(written)
    return Version(**{"key": key, "size": MEBIBYTE, "last_modified": moment, **parts})


def marker(written: str | None, key: str = "a", **parts: object) -> Version:
    """Make a delete marker, written at a time."""
    return version(written, key, **{"size": None, "is_delete_marker": True, **parts})


def history(*written: str, **parts: object) -> list[Version]:
    """List the versions of one key, newest first; a time that ends in ``!`` is that of a delete marker."""
    return [
        (marker if moment.endswith("!") else version)(moment.rstrip("!"), version_id=f"v{number}", **parts)
        for number, moment in enumerate(written)
    ]


def upload(initiated: str | None, key: str = "a") -> Upload:
    """Make an upload that was begun at a time."""
    return Upload(key, "u", None if initiated is None else parse_instant(initiated))


def done(action: Action, due: str, by: str = "r", to: str | None = None) -> Verdict:
    """Expect an action that is due since a time."""
    return Verdict(action, to, by, parse_instant(due))


def moved(to: str, due: str, by: str = "r") -> Verdict:
    """Expect a transition."""
    return done(Action.TRANSITION, due, by, to)


def coming(due: str, by: str = "r") -> Verdict:
    """Expect nothing yet, and when the next action comes."""
    return Verdict(rule_id=by, due=parse_instant(due))


def held(hold: Hold, due: str | None = None, by: str = "r") -> Verdict:
    """Expect a hold: of an action that is due, or, without a time, out of doubt."""
    if due is None:
        return Verdict(held_by=hold)
    return replace(coming(due, by), held_by=hold)
