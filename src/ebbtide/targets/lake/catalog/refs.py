"""
Rows of repositories, branches, tags and commits: what a name means, inside a transaction.

A deleted repository leaves a row behind until its namespace is collected.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from ebbtide.core.errors import AlreadyExists, BadInput, NotFound
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.names import path_safe
from ebbtide.targets.repository.model import Commit, DeletedRepository

_deleted = schema.retired

_ANCESTOR = re.compile(r"(.+)~(\d{0,9})", re.ASCII | re.DOTALL)
_COMMIT_PREFIX = re.compile(r"[0-9a-f]{4,64}", re.ASCII)


@dataclass(frozen=True)
class WriteTransaction:
    """A write transaction on one repository, whose row it holds locked."""

    connection: Connection
    repository: Repository
    sequence: int
    """The number of this change; rows that it stages carry it."""
    at: datetime
    """When it began; dropped addresses wait in the reclaim queue from then on."""


@dataclass(frozen=True)
class Branch:
    """A branch's row. Staged rows of layers below `layer` are sealed: a commit may be reading them."""

    id: str
    name: str
    head: str
    layer: int
    epoch: int
    """Grows when staged rows are dropped by a reset, so that a commit under way notices."""


@dataclass(frozen=True)
class Resolved:
    """What a ref means: a commit, and the branch if it names one itself (then staging counts too)."""

    commit: Commit
    branch: Branch | None


def repository(connection: Connection, name: str) -> Repository:
    """Find a repository by name."""
    table = schema.repositories
    row = connection.execute(select(table).where(table.c.name == name)).first()
    if row is None:
        raise _no_repository(connection, name)
    return to_repository(row)


def _no_repository(connection: Connection, name: str) -> NotFound:
    """Return the error for a repository that does not exist, or was deleted."""
    what = f"there is no repository {name!r}"
    gone = last_deleted(connection, name)
    if gone is None:
        return NotFound(what, fix="create it, or list those that there are")
    when = format_second(gone.deleted)
    how = how_to_collect(name)
    return NotFound(what, fix=f"it was deleted at {when}: collect its objects with {how}, or create it anew")


def find_by_uid(connection: Connection, uid: str) -> Repository | None:
    """Return a repository by its uid, if it exists."""
    row = connection.execute(select(schema.repositories).where(schema.repositories.c.uid == uid)).first()
    return None if row is None else to_repository(row)


def lock_repository(connection: Connection, name: str) -> tuple[Repository, int]:
    """
    Begin a change: increase the repository's sequence and return it.

    The row stays locked until the transaction ends, so two writers of one repository never overlap, and
    sequences become visible in order: a reader that sees sequence S sees every change up to S.
    """
    table = schema.repositories
    connection.execute(update(table).where(table.c.name == name).values(sequence=table.c.sequence + 1))
    found = repository(connection, name)
    return found, sequence(connection, found)


def hold_repository(connection: Connection, name: str) -> tuple[Repository, int]:
    """
    Lock a repository's row without changing it, and return its sequence.

    On SQLite the write transaction alone keeps all other writers out.
    """
    table = schema.repositories
    connection.execute(select(table.c.uid).where(table.c.name == name).with_for_update())
    found = repository(connection, name)
    return found, sequence(connection, found)


def neighbours(connection: Connection, repo: Repository) -> list[Repository | DeletedRepository]:
    """
    Return the catalog's other repositories, whose runs delete what is in their namespaces.

    Deleted repositories are included: all their objects are about to be collected.
    """
    rows = connection.execute(select(schema.repositories).where(schema.repositories.c.uid != repo.uid))
    return [*(to_repository(row) for row in rows), *deleted_repositories(connection)]


def sequence(connection: Connection, repo: Repository) -> int:
    """Read a repository's change counter."""
    table = schema.repositories
    statement = select(table.c.sequence).where(table.c.uid == repo.uid)
    return int(connection.execute(statement).scalar_one())


def to_repository(row: Row[Any]) -> Repository:
    """Turn a row into a Repository."""
    return Repository(
        name=row.name,
        uid=row.uid,
        namespace=row.namespace,
        default_branch=row.default_branch,
        created=from_micros(row.created),
        range_keys=row.range_keys,
    )


def find_branch(connection: Connection, repo: Repository, name: str) -> Branch | None:
    """Find a branch by name, if there is one."""
    table = schema.branches
    statement = select(table).where(table.c.repo_uid == repo.uid, table.c.name == name)
    row = connection.execute(statement).first()
    return None if row is None else Branch(row.id, row.name, row.head, row.layer, row.epoch)


def branch(connection: Connection, repo: Repository, name: str) -> Branch:
    """Find a branch by name."""
    found = find_branch(connection, repo, name)
    if found is None:
        raise NotFound(
            f"repository {repo.name!r} has no branch {name!r}",
            fix="create it, or list the branches that there are",
        )
    return found


def same_branch(connection: Connection, repo: Repository, before: Branch) -> Branch:
    """Find a branch again under the lock; refuse one that was deleted and created again."""
    found = branch(connection, repo, before.name)
    if found.id != before.id:
        raise NotFound(
            f"branch {before.name!r} was deleted while this was under way",
            why="the branch that now has this name is another one",
            fix="try again",
        )
    return found


def commit(connection: Connection, repo: Repository, commit_id: str) -> Commit:
    """Find a commit by its whole id."""
    table = schema.commits
    statement = select(table).where(table.c.repo_uid == repo.uid, table.c.id == commit_id)
    row = connection.execute(statement).first()
    if row is None:
        raise NotFound(f"repository {repo.name!r} has no commit {commit_id!r}")
    return to_commit(row)


def to_commit(row: Row[Any]) -> Commit:
    """Turn a row into a Commit."""
    return Commit(
        id=row.id,
        metarange_id=row.metarange_id,
        parents=tuple(json.loads(row.parents)),
        created=from_micros(row.created),
        message=row.message,
        committer=row.committer,
        metadata=json.loads(row._mapping["metadata"]),  # noqa: SLF001 (its public name for mappings)
    )


def resolve(connection: Connection, repo: Repository, ref: str) -> Resolved:
    """
    Resolve a ref: a branch, a tag, a commit id or a unique prefix of it, or any of them with ``~N``.

    Only the name of a branch includes staged entries; ``main~0`` is the head commit of main.
    """
    found = find_branch(connection, repo, ref)
    if found is not None:
        return Resolved(commit(connection, repo, found.head), found)
    ancestor = _ANCESTOR.fullmatch(ref)
    if ancestor:
        start = resolve(connection, repo, ancestor[1]).commit
        return Resolved(_ancestor(connection, repo, start, int(ancestor[2] or 1)), None)
    table = schema.tags
    tagged = select(table.c.commit_id).where(table.c.repo_uid == repo.uid, table.c.name == ref)
    commit_id = connection.execute(tagged).scalar() or _by_prefix(connection, repo, ref)
    return Resolved(commit(connection, repo, commit_id), None)


def _ancestor(connection: Connection, repo: Repository, start: Commit, steps: int) -> Commit:
    """Return the ancestor that is some first parents back."""
    found = start
    for step in range(steps):
        if not found.parents:
            raise NotFound(
                f"{start.id[:12]}~{steps} is before the first commit",
                why=f"its history has {step} first parents",
                fix="use a smaller number",
            )
        found = commit(connection, repo, found.parents[0])
    return found


def _by_prefix(connection: Connection, repo: Repository, ref: str) -> str:
    """Return the id of the only commit with this prefix."""
    table = schema.commits
    found: list[str] = []
    if _COMMIT_PREFIX.fullmatch(ref):
        statement = select(table.c.id).where(
            table.c.repo_uid == repo.uid, table.c.id >= ref, table.c.id < ref + "g"
        )
        found = list(connection.execute(statement.limit(2)).scalars())
    if not found:
        raise NotFound(
            f"repository {repo.name!r} has no branch, tag or commit {ref!r}",
            fix="list its branches and tags, or give at least 4 characters of a commit id",
        )
    if len(found) > 1:
        raise BadInput(f"{ref!r} begins more than one commit id", fix="give more characters")
    return found[0]


def heads(connection: Connection, repo: Repository) -> dict[str, str]:
    """Return the head commit of every branch, by name."""
    table = schema.branches
    statement = select(table.c.name, table.c.head).where(table.c.repo_uid == repo.uid)
    return {row.name: row.head for row in connection.execute(statement.order_by(table.c.name))}


def branch_ids(connection: Connection, repo: Repository) -> dict[str, str]:
    """Return the id of every branch, by name."""
    table = schema.branches
    statement = select(table.c.name, table.c.id).where(table.c.repo_uid == repo.uid)
    return {row.name: row.id for row in connection.execute(statement.order_by(table.c.name))}


def tags(connection: Connection, repo: Repository) -> dict[str, str]:
    """Return the commit of every tag, by name."""
    table = schema.tags
    statement = select(table.c.name, table.c.commit_id).where(table.c.repo_uid == repo.uid)
    return {row.name: row.commit_id for row in connection.execute(statement.order_by(table.c.name))}


def add_branch(connection: Connection, repo: Repository, name: str, head: str) -> None:
    """Insert a branch with a new id, which an earlier branch of this name did not have."""
    connection.execute(
        insert(schema.branches).values(
            id=path_safe(name, uuid.uuid4().hex[:12]),
            repo_uid=repo.uid,
            name=name,
            head=head,
            layer=1,
            epoch=0,
        )
    )


def check_name_free(writing: WriteTransaction, name: str) -> None:
    """Refuse a name that a branch or tag has: a ref must be unambiguous."""
    uid = writing.repository.uid
    for kind, table in (("branch", schema.branches), ("tag", schema.tags)):
        taken = select(table.c.name).where(table.c.repo_uid == uid, table.c.name == name)
        if writing.connection.execute(taken).first() is not None:
            raise AlreadyExists(
                f"repository {writing.repository.name!r} has a {kind} {name!r} already",
                fix="choose another name, or delete that one first",
            )


def add_deleted(connection: Connection, repo: Repository, now: datetime) -> DeletedRepository:
    """Record a deleted repository, in the transaction that deletes it."""
    gone = DeletedRepository(repo.name, repo.uid, repo.namespace, now)
    row = {"uid": gone.uid, "name": gone.name, "namespace": gone.namespace, "deleted": to_micros(now)}
    connection.execute(insert(_deleted).values(row))
    return gone


def deleted_repositories(connection: Connection) -> list[DeletedRepository]:
    """Return all deleted repositories, by the time of their deletion."""
    rows = connection.execute(select(_deleted).order_by(_deleted.c.deleted, _deleted.c.uid))
    return [_to_deleted(row) for row in rows]


def last_deleted(connection: Connection, name: str) -> DeletedRepository | None:
    """Return the last deleted repository of this name, if there is one."""
    named = select(_deleted).where(_deleted.c.name == name)
    row = connection.execute(
        named.order_by(_deleted.c.deleted.desc(), _deleted.c.uid.desc()).limit(1)
    ).first()
    return None if row is None else _to_deleted(row)


def find_deleted(connection: Connection, uid: str) -> DeletedRepository:
    """Return a deleted repository by its uid."""
    row = connection.execute(select(_deleted).where(_deleted.c.uid == uid)).first()
    if row is None:
        raise no_deleted_repository(uid)
    return _to_deleted(row)


def forget_deleted(connection: Connection, uid: str) -> None:
    """Remove the row of a deleted repository."""
    if connection.execute(delete(_deleted).where(_deleted.c.uid == uid)).rowcount == 0:
        raise no_deleted_repository(uid)


def no_deleted_repository(name_or_uid: str) -> NotFound:
    """Return the error for an unknown deleted repository."""
    return NotFound(
        f"there is no deleted repository {name_or_uid!r}",
        why="it was never deleted, or its objects are collected already",
        fix="see 'ebb lake list --deleted'",
    )


def how_to_collect(name: str) -> str:
    """Return the commands that collect a deleted repository."""
    return f"'ebb plan lake:{name} --deleted' and 'ebb apply'"


def _to_deleted(row: Row[Any]) -> DeletedRepository:
    """Turn a row into a DeletedRepository."""
    return DeletedRepository(row.name, row.uid, row.namespace, from_micros(row.deleted))
