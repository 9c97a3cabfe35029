"""The kinds of targets that are installed, found by the scheme of a URL through Python entry points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from ebbtide.core.display import OBJECTS, OBJECTS_WITH_BIN, Words
from ebbtide.core.errors import BadInput, EnvironmentProblem
from ebbtide.core.manifest import Manifest
from ebbtide.targets.target import Option, Options, TargetKind, Workspace

GROUP = "ebbtide.targets"


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    """Return the entry points by scheme; two packages that claim one scheme are refused."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        known = found.setdefault(point.name, point)
        if known.value != point.value:
            raise EnvironmentProblem(
                f"two packages claim targets of the scheme {point.name!r}: {known.value} and {point.value}",
                why="a plan must not depend on which of them is found first",
                fix="uninstall one of them",
            )
    return found


@cache
def kind_of_scheme(scheme: str) -> TargetKind | None:
    """Return the kind of targets with a scheme; None if no installed package has one."""
    point = _entry_points().get(scheme)
    return None if point is None else cast("TargetKind", point.load())


def kind_of(url: str) -> TargetKind:
    """Return the kind of target that a URL names."""
    scheme, colon, _ = url.partition(":")
    kind = kind_of_scheme(scheme) if colon else None
    if kind is None:
        expected = [kind.usage for kind in all_kinds()]
        raise BadInput(
            f"unknown target {url!r}",
            fix=f"write {', '.join(expected[:-1])} or {expected[-1]}" if expected else "install a target",
        )
    return kind


@cache
def all_kinds() -> tuple[TargetKind, ...]:
    """Return every kind once, in the order of the schemes' names."""
    found = (kind_of_scheme(scheme) for scheme in sorted(_entry_points()))
    return tuple(dict.fromkeys(kind for kind in found if kind is not None))


DEFAULT_WORLD = "lake"
"""The kind of a case of a policy suite that names none."""


def simulated_kinds() -> dict[str, TargetKind]:
    """Return the kinds that have a simulation, by the name of their worlds."""
    return {one.world: one for one in all_kinds() if type(one).simulation is not TargetKind.simulation}


def tested_kinds() -> dict[str, TargetKind]:
    """Return the kinds whose policies can be tested, by the name of their worlds."""
    return {one.world: one for one in all_kinds() if type(one).policy_suite is not TargetKind.policy_suite}


def owned_namespaces(workspace: Workspace) -> dict[str, str]:
    """Return all storage that some target owns, by name."""
    return {name: url for kind in all_kinds() for name, url in kind.namespaces(workspace).items()}


def words_of(plan: Manifest) -> Words:
    """Return the words for a plan; the default ones if its kind is no longer installed."""
    kind = kind_of_scheme(plan.target.partition(":")[0])
    if kind is None:
        return OBJECTS_WITH_BIN if plan.recycling else OBJECTS
    return kind.words(plan)


def all_options(*, explains: bool = False) -> list[Option]:
    """Return the options of all kinds, or those that explain too; one of several kinds is there once."""
    by_name: dict[str, Option] = {}
    for kind in all_kinds():
        for option in kind.options:
            if option.explains or not explains:
                by_name.setdefault(option.name, option)
    return list(by_name.values())


def check_options(kind: TargetKind, url: str, given: Options) -> None:
    """Refuse options that a kind of target does not understand, and say which kinds do."""
    understood = {option.name for option in kind.options}
    wrong = [option for option in all_options() if option.name in given and option.name not in understood]
    if not wrong:
        return
    others = [one.plural for one in all_kinds() if _understands(one, (option.name for option in wrong))]
    flags = " and ".join(option.flags[0] for option in wrong)
    applies = "apply" if len(wrong) > 1 else "applies"
    raise BadInput(
        f"{flags} {applies} to {' and '.join(others) or 'other targets'} only",
        why=f"{url} is planned by {kind.planned_by}",
        fix=f"leave out {flags}",
    )


def _understands(kind: TargetKind, names: Iterable[str]) -> bool:
    understood = {option.name for option in kind.options}
    return all(name in understood for name in names)
