"""
The world document: the public JSON form of a small repository.

Every field is checked before anything runs, and an error names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from ebbtide.core.decision import CollectorName
from ebbtide.core.documents import check_fields, nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.storage.address import canonical, canonical_namespace, is_full
from ebbtide.targets.repository.policy import LakePolicy, PolicyRun, lake_policy
from ebbtide.targets.repository.retention_rules import RetentionRules, retention_rules

FIELDS = (
    "policy",
    "branches",
    "tags",
    "commits",
    "staged",
    "runs",
    "retention",
    "objects",
    "grace_hours",
    "collect",
    "namespace",
    "restored",
)
NAMESPACE = "s3://simulated-namespace"
"""The namespace of a world that does not give one: addresses with another URL are outside of it."""
_GRACE_HOURS = 24


@dataclass(frozen=True)
class WrittenEntry:
    """The entry of a key in a written world."""

    address: str
    created: datetime
    size: int


@dataclass(frozen=True)
class WrittenCommit:
    """A commit in a written world; its entries are its whole content."""

    id: str
    parents: tuple[str, ...]
    created: datetime
    entries: Mapping[str, WrittenEntry]


@dataclass(frozen=True)
class WrittenObject:
    """What the store lists of an object, whether anything refers to it or not."""

    last_modified: datetime
    size: int


@dataclass(frozen=True)
class WorldDocument:
    """A whole written world."""

    policy: LakePolicy
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    commits: tuple[WrittenCommit, ...]
    staged: Mapping[str, Mapping[str, WrittenEntry]]
    runs: tuple[PolicyRun, ...]
    retention: RetentionRules | None = None
    objects: Mapping[str, WrittenObject] = field(default_factory=lambda: MappingProxyType({}))
    """What the store lists, by address."""
    grace: timedelta = timedelta(hours=_GRACE_HOURS)
    """For how long an object without references may still belong to an upload under way."""
    collect: tuple[CollectorName, ...] = (CollectorName.LIFECYCLE,)
    """The collectors, in their order."""
    namespace: str = NAMESPACE
    """Objects outside of it are never deleted, as in a real repository."""
    restored: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    """Restored addresses, and until when each is held."""


def world_document(data: Any) -> WorldDocument:
    """Return the world that plain data, as JSON gives it, describes; WorldError if it is invalid."""
    world = expect_table("the world", data)
    for name in world:
        if name not in FIELDS:
            raise WorldError(f"the world has an unknown field {name!r}", fix=nearest(name, FIELDS))
    collect = expect_collectors("collect", world.get("collect", [CollectorName.LIFECYCLE]))
    commits = _commits(world.get("commits", []))
    known = {commit.id for commit in commits}
    branches = _refs("branches", world.get("branches", {}), known)
    namespace = _namespace(world.get("namespace", NAMESPACE))
    return WorldDocument(
        policy=_policy(world, collect),
        branches=branches,
        tags=_refs("tags", world.get("tags", {}), known),
        commits=commits,
        staged=_staged(world.get("staged", {}), branches),
        runs=tuple(_run(i, row) for i, row in enumerate(expect_rows("runs", world.get("runs", [])))),
        retention=_retention(world, collect),
        objects=_objects(world.get("objects", {})),
        grace=expect_hours("grace_hours", world.get("grace_hours", _GRACE_HOURS)),
        collect=collect,
        namespace=namespace,
        restored=_restored(world.get("restored", {})),
    )


def _namespace(data: Any) -> str:
    if not isinstance(data, str) or not is_full(data):
        raise WorldError(f"the namespace is {data!r}", fix='write a URL, as in "s3://bucket/prefix"')
    return canonical_namespace(data)


def _policy(world: Mapping[str, Any], collect: tuple[CollectorName, ...]) -> LakePolicy:
    if "policy" in world:
        return lake_policy(world["policy"])
    if CollectorName.LIFECYCLE in collect:
        raise WorldError("the world has no policy", fix='add "policy": {"rule1": {...}}')
    return LakePolicy(())


def _retention(world: Mapping[str, Any], collect: tuple[CollectorName, ...]) -> RetentionRules | None:
    if "retention" in world:
        return retention_rules(world["retention"])
    if CollectorName.RETENTION in collect:
        raise WorldError("the world has no retention", fix='add "retention": {"default_days": 5}')
    return None


def _commits(data: Any) -> tuple[WrittenCommit, ...]:
    commits = tuple(_commit(i, row) for i, row in enumerate(expect_rows("commits", data)))
    known = {commit.id for commit in commits}
    if len(known) != len(commits):
        raise WorldError("two commits have the same id", fix="give every commit an id of its own")
    for commit in commits:
        for parent in commit.parents:
            if parent not in known:
                raise WorldError(f"commit {commit.id!r} has an unknown parent {parent!r}")
    return commits


def _refs(what: str, data: Any, known: set[str]) -> dict[str, str]:
    refs = expect_table(what, data)
    for name, commit in refs.items():
        if commit not in known:
            raise WorldError(
                f"{what}: {name!r} points at {commit!r}, which is not a commit of this world",
                fix="correct the name, or add the commit",
            )
    return {str(name): str(commit) for name, commit in refs.items()}


def _commit(index: int, data: Any) -> WrittenCommit:
    where = f"commits[{index}]"
    row = expect_row(where, data, ("id", "parents", "created", "entries"))
    commit_id = row.get("id")
    if not isinstance(commit_id, str) or not commit_id:
        raise WorldError(f"{where} has no id", fix='add "id": "c1"')
    parents = expect_rows(f"{where}.parents", row.get("parents", []))
    return WrittenCommit(
        commit_id,
        tuple(str(parent) for parent in parents),
        expect_moment(f"{where}.created", row.get("created")),
        _entries(f"{where}.entries", row.get("entries", {})),
    )


def _staged(data: Any, branches: Mapping[str, str]) -> dict[str, Mapping[str, WrittenEntry]]:
    staged = expect_table("staged", data)
    for branch in staged:
        if branch not in branches:
            raise WorldError(f"staged: there is no branch {branch!r}", fix=nearest(branch, branches))
    return {branch: _entries(f"staged[{branch!r}]", entries) for branch, entries in staged.items()}


def _entries(where: str, data: Any) -> dict[str, WrittenEntry]:
    return {key: _entry(f"{where}[{key!r}]", row) for key, row in expect_table(where, data).items()}


def _entry(where: str, data: Any) -> WrittenEntry:
    row = expect_row(where, data, ("address", "created", "size"))
    address = row.get("address")
    if not isinstance(address, str):
        raise WorldError(f"{where} has no address", fix='add "address": "1"')
    size = expect_size(where, row.get("size", 0))
    canonical(address, None)
    return WrittenEntry(address, expect_moment(f"{where}.created", row.get("created")), size)


def _objects(data: Any) -> dict[str, WrittenObject]:
    found = {}
    for address, plain in expect_table("objects", data).items():
        where = f"objects[{address!r}]"
        row = expect_row(where, plain, ("last_modified", "size"))
        canonical(address, None)
        last_modified = expect_moment(f"{where}.last_modified", row.get("last_modified"))
        found[address] = WrittenObject(last_modified, expect_size(where, row.get("size", 0)))
    return found


def _restored(data: Any) -> dict[str, datetime]:
    found = {}
    for address, until in expect_table("restored", data).items():
        canonical(address, None)
        found[address] = expect_moment(f"restored[{address!r}]", until)
    return found


def _run(index: int, data: Any) -> PolicyRun:
    where = f"runs[{index}]"
    row = expect_table(where, data)
    run_id = row.get("run_id")
    if isinstance(run_id, bool) or not isinstance(run_id, int):
        raise WorldError(f"{where}: run_id is {run_id!r}", fix="write a whole number")
    succeeded = row.get("succeeded")
    if not isinstance(succeeded, bool):
        raise WorldError(f"{where}: succeeded is {succeeded!r}", fix="write true or false")
    policy = lake_policy(row.get("policy"))
    return PolicyRun(run_id, expect_moment(f"{where}.now", row.get("now")), policy, succeeded)


def expect_table(where: str, data: Any) -> dict[str, Any]:
    """Return a table; WorldError if it is something else."""
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not a table", fix="write {...}")
    return data


def expect_row(where: str, data: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    """Return a table without other fields than these."""
    found = expect_table(where, data)
    check_fields(where, found, fields)
    return found


def expect_rows(where: str, data: Any) -> list[Any]:
    """Return a list."""
    if not isinstance(data, list):
        raise WorldError(f"{where} is not a list", fix="write [...]")
    return data


def expect_moment(where: str, value: Any) -> datetime:
    """Return a time."""
    if not isinstance(value, str):
        raise WorldError(f"{where} is {value!r}", fix="write a time such as 1998-01-20T00:00:00Z")
    try:
        return parse_instant(value)
    except BadInput as wrong:
        raise WorldError(f"{where}: {wrong.what}", fix=wrong.fix) from None


def expect_size(where: str, value: Any) -> int:
    """Return a number of bytes."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WorldError(f"{where}: size is {value!r}", fix="write a whole number of bytes")
    return value


def expect_hours(where: str, value: Any) -> timedelta:
    """Return a number of hours, which may be a fraction."""
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and value >= 0:
            return timedelta(hours=value)
    except OverflowError:
        pass
    raise WorldError(f"{where} is {value!r}", fix="write a number of hours, 0 or more")


def expect_collectors(where: str, data: Any) -> tuple[CollectorName, ...]:
    """Return collectors, each named once, in their order."""
    names = [str(collector) for collector in CollectorName]
    found = expect_rows(where, data)
    for name in found:
        if name not in names:
            raise WorldError(f"{where}: there is no collector {name!r}", fix=nearest(str(name), names))
    if not found:
        raise WorldError(f"{where} names no collector", fix=f"name some of: {', '.join(names)}")
    if len(set(found)) != len(found):
        raise WorldError(f"{where} names a collector twice", fix="name each once")
    return tuple(collector for collector in CollectorName if collector in found)
