"""Commits as a graph: their ids, their order, and where two of them last agreed."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import to_micros
from ebbtide.targets.lake.catalog import refs, schema
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.repository.model import Commit

_commits = schema.commits


def identified(commit: Commit) -> Commit:
    """Return a commit with its id, a hash of all its values: equal commits have equal ids."""
    said = [
        list(commit.parents),
        commit.metarange_id,
        to_micros(commit.created),
        commit.message,
        commit.committer,
        sorted(commit.metadata.items()),
    ]
    text = json.dumps(said, ensure_ascii=True, separators=(",", ":"))
    return replace(commit, id=hashlib.sha256(text.encode()).hexdigest())


def check_words(message: str, committer: str, metadata: Mapping[str, str] | None) -> None:
    """Refuse text that a database or JSON would not keep unchanged."""
    given = dict(metadata or {})
    for word in (message, committer, *given.keys(), *given.values()):
        if not isinstance(word, str) or "\0" in word or not _encodable(word):
            raise BadInput(
                f"{word!r} cannot be part of a commit",
                why="message, committer and metadata are text without NUL",
                fix="turn it into plain text",
            )


def _encodable(word: str) -> bool:
    """Return True if text can be encoded in UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def add(connection: Connection, repo: Repository, commit: Commit) -> None:
    """Record a commit, unless it is recorded already."""
    parents = (_commits.c.repo_uid == repo.uid, _commits.c.id.in_(commit.parents))
    generations = connection.execute(select(_commits.c.generation).where(*parents)).scalars()
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(
        dialect.insert(_commits)
        .values(
            {
                "repo_uid": repo.uid,
                "id": commit.id,
                "metarange_id": commit.metarange_id,
                "parents": json.dumps(commit.parents),
                "created": to_micros(commit.created),
                "generation": max(generations, default=0) + 1,
                "message": commit.message,
                "committer": commit.committer,
                "metadata": json.dumps(dict(commit.metadata)),
            }
        )
        .on_conflict_do_nothing()
    )


def all_commits(connection: Connection, repo: Repository) -> dict[str, Commit]:
    """Return all commits of the repository, including those that no branch or tag reaches."""
    statement = select(_commits).where(_commits.c.repo_uid == repo.uid)
    rows = connection.execute(statement.order_by(_commits.c.generation, _commits.c.id))
    return {row.id: refs.to_commit(row) for row in rows}


def metarange_ids(connection: Connection, repo: Repository, most: int) -> list[str]:
    """Return the distinct metaranges of commits, up to a number of them."""
    distinct = select(_commits.c.metarange_id).where(_commits.c.repo_uid == repo.uid).distinct()
    return list(connection.execute(distinct.limit(most)).scalars())


def walk(connection: Connection, repo: Repository, start: str) -> Iterator[Commit]:
    """Yield a commit and all its ancestors, newest first, each before its parents."""
    known = all_commits(connection, repo)
    order = {commit_id: place for place, commit_id in enumerate(known)}
    # all_commits is sorted by generation, and a parent's generation is smaller than its child's.
    waiting = [-order[start]]
    ids = list(known)
    seen = {start}
    while waiting:
        commit = known[ids[-heapq.heappop(waiting)]]
        yield commit
        for parent in commit.parents:
            if parent not in seen:
                seen.add(parent)
                heapq.heappush(waiting, -order[parent])


def merge_base(connection: Connection, repo: Repository, left: str, right: str) -> str | None:
    """Return the youngest common ancestor of two commits; no other common ancestor descends from it."""
    columns = (_commits.c.id, _commits.c.parents, _commits.c.generation)
    rows = connection.execute(select(*columns).where(_commits.c.repo_uid == repo.uid)).all()
    parents = {row.id: json.loads(row.parents) for row in rows}
    generation = {row.id: row.generation for row in rows}
    common = _ancestors(parents, left) & _ancestors(parents, right)
    return max(common, key=lambda found: (generation[found], found), default=None)


def _ancestors(parents: Mapping[str, list[str]], start: str) -> set[str]:
    """Return a commit and all its ancestors."""
    seen, waiting = {start}, [start]
    while waiting:
        for parent in parents[waiting.pop()]:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen
