"""Making a branch, in the caller's transaction."""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, insert, select

from ebbtide.core.errors import AlreadyExists
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.names import path_safe
from ebbtide.targets.lake.catalog.writing import Writing


def add_branch(connection: Connection, repo: Repository, name: str, head: str) -> None:
    """Insert a branch under a new id, so that it shares nothing with an earlier one of its name."""
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


def check_free(writing: Writing, name: str) -> None:
    """Keep branches and tags apart: a ref must mean one thing."""
    uid = writing.repository.uid
    for kind, table in (("branch", schema.branches), ("tag", schema.tags)):
        taken = select(table.c.name).where(table.c.repo_uid == uid, table.c.name == name)
        if writing.connection.execute(taken).first() is not None:
            raise AlreadyExists(
                f"repository {writing.repository.name!r} has a {kind} {name!r} already",
                fix="choose another name, or delete that one first",
            )
