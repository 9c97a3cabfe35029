"""The world document: the public JSON form of a small repository, checked before anything runs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebbtide.errors import BadInput, WorldError
from ebbtide.lake.lifecycle.policies import PolicyRun
from ebbtide.rules.documents import nearest
from ebbtide.rules.instant import parse_instant
from ebbtide.rules.lake_policy import LakePolicy
from ebbtide.rules.lake_policy_parser import lake_policy
from ebbtide.store.address import canonical

FIELDS = ("policy", "branches", "tags", "commits", "staged", "runs")


@dataclass(frozen=True)
class WrittenEntry:
    """A key's content in a written world."""

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
class WorldDocument:
    """A whole written world."""

    policy: LakePolicy
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    commits: tuple[WrittenCommit, ...]
    staged: Mapping[str, Mapping[str, WrittenEntry]]
    runs: tuple[PolicyRun, ...]


def world_document(data: Any) -> WorldDocument:
    """Check plain data, as JSON gives it, and make a world of it."""
    world = _table("the world", data)
    for name in world:
        if name not in FIELDS:
            raise WorldError(f"the world has an unknown field {name!r}", fix=nearest(name, FIELDS))
    if "policy" not in world:
        raise WorldError("the world has no policy", fix='add "policy": {"rule1": {...}}')
    commits = tuple(_commit(i, row) for i, row in enumerate(_list("commits", world.get("commits", []))))
    known = {commit.id for commit in commits}
    if len(known) != len(commits):
        raise WorldError("two commits have the same id", fix="give every commit an id of its own")
    for commit in commits:
        for parent in commit.parents:
            if parent not in known:
                raise WorldError(f"commit {commit.id!r} has an unknown parent {parent!r}")
    branches = _refs("branches", world.get("branches", {}), known)
    return WorldDocument(
        policy=lake_policy(world["policy"]),
        branches=branches,
        tags=_refs("tags", world.get("tags", {}), known),
        commits=commits,
        staged=_staged(world.get("staged", {}), branches),
        runs=tuple(_run(i, row) for i, row in enumerate(_list("runs", world.get("runs", [])))),
    )


def _refs(what: str, data: Any, known: set[str]) -> dict[str, str]:
    refs = _table(what, data)
    for name, commit in refs.items():
        if commit not in known:
            raise WorldError(
                f"{what}: {name!r} points at {commit!r}, which is no commit of this world",
                fix="correct the name, or add the commit",
            )
    return {str(name): str(commit) for name, commit in refs.items()}


def _commit(index: int, data: Any) -> WrittenCommit:
    where = f"commits[{index}]"
    row = _table(where, data)
    for name in row:
        if name not in ("id", "parents", "created", "entries"):
            raise WorldError(
                f"{where}: unknown field {name!r}", fix=nearest(name, ("id", "parents", "created", "entries"))
            )
    commit_id = row.get("id")
    if not isinstance(commit_id, str) or not commit_id:
        raise WorldError(f"{where} has no id", fix='add "id": "c1"')
    parents = _list(f"{where}.parents", row.get("parents", []))
    return WrittenCommit(
        commit_id,
        tuple(str(parent) for parent in parents),
        _time(f"{where}.created", row.get("created")),
        _entries(f"{where}.entries", row.get("entries", {})),
    )


def _staged(data: Any, branches: Mapping[str, str]) -> dict[str, Mapping[str, WrittenEntry]]:
    staged = _table("staged", data)
    for branch in staged:
        if branch not in branches:
            raise WorldError(f"staged: there is no branch {branch!r}", fix=nearest(branch, branches))
    return {branch: _entries(f"staged[{branch!r}]", entries) for branch, entries in staged.items()}


def _entries(where: str, data: Any) -> dict[str, WrittenEntry]:
    return {key: _entry(f"{where}[{key!r}]", row) for key, row in _table(where, data).items()}


def _entry(where: str, data: Any) -> WrittenEntry:
    row = _table(where, data)
    for name in row:
        if name not in ("address", "created", "size"):
            raise WorldError(
                f"{where}: unknown field {name!r}", fix=nearest(name, ("address", "created", "size"))
            )
    address = row.get("address")
    if not isinstance(address, str):
        raise WorldError(f"{where} has no address", fix='add "address": "1"')
    size = row.get("size", 0)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise WorldError(f"{where}: size is {size!r}", fix="write a whole number of bytes")
    canonical(address, None)
    return WrittenEntry(address, _time(f"{where}.created", row.get("created")), size)


def _run(index: int, data: Any) -> PolicyRun:
    where = f"runs[{index}]"
    row = _table(where, data)
    run_id = row.get("run_id")
    if isinstance(run_id, bool) or not isinstance(run_id, int):
        raise WorldError(f"{where}: run_id is {run_id!r}", fix="write a whole number")
    succeeded = row.get("succeeded")
    if not isinstance(succeeded, bool):
        raise WorldError(f"{where}: succeeded is {succeeded!r}", fix="write true or false")
    policy = lake_policy(row.get("policy"))
    return PolicyRun(run_id, _time(f"{where}.now", row.get("now")), policy, succeeded)


def _time(where: str, value: Any) -> datetime:
    if not isinstance(value, str):
        raise WorldError(f"{where} is {value!r}", fix="write a time such as 1998-01-20T00:00:00Z")
    try:
        return parse_instant(value)
    except BadInput as wrong:
        raise WorldError(f"{where}: {wrong.what}", fix=wrong.fix) from None


def _table(where: str, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not a table", fix="write {...}")
    return data


def _list(where: str, data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise WorldError(f"{where} is not a list", fix="write [...]")
    return data
