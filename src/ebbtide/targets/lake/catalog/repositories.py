"""Repositories: creating, listing and deleting them, their policies, and what deleted ones leave."""

from __future__ import annotations

import uuid
from contextlib import suppress

from sqlalchemy import Connection, Table, delete, func, insert, select

from ebbtide.core.errors import AlreadyExists, BadInput, EbbtideError, Refused
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.storage.address import canonical_namespace
from ebbtide.storage.namespace import overlap, resolved_path
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import (
    fence,
    history,
    lost_history,
    reclaim_queue,
    refs,
    schema,
    staging,
    uploads,
)
from ebbtide.targets.lake.catalog.base import CatalogBase
from ebbtide.targets.lake.catalog.model import PolicyVersion, Repository
from ebbtide.targets.lake.catalog.names import check_ref_name, check_repository_name
from ebbtide.targets.lake.catalog.ownership import Ownership, forget_claim, refusing_foreign
from ebbtide.targets.lake.catalog.ranges import write_metarange
from ebbtide.targets.lake.catalog.reclaim_queue import DropReason
from ebbtide.targets.lake.catalog.refs import add_branch
from ebbtide.targets.repository.model import COMMITTED, Commit, DeletedRepository

_table = schema.repositories


class Repositories(Ownership):
    """The catalog's repositories; each owns its namespace alone."""

    def create_repository(self, name: str, namespace: str, default_branch: str = "main") -> Repository:
        """Create a repository with an empty commit, in a namespace that no other one has or had."""
        repo = Repository(
            name=check_repository_name(name),
            uid=uuid.uuid4().hex,
            namespace=canonical_namespace(resolved_path(namespace)),
            default_branch=check_ref_name(default_branch, "branch"),
            created=self._clock(),
            range_keys=self._range_keys,
        )
        store = self._store_at(repo.namespace)
        with refusing_foreign():
            with self._database.reading() as connection:
                _check_free(connection, repo)
                self._check_new(connection, store, repo.namespace)
            try:
                self._record_new(repo, store)
            except BaseException:
                forget_claim(store, self.owner(repo))
                raise
        return repo

    def _record_new(self, repo: Repository, store: Store) -> None:
        """Claim the namespace and record the repository, under a lock, so that no two do so at once."""
        with self._database.writing() as connection:
            if connection.dialect.name == "postgresql":
                # Two new repositories have no common row to wait for, and unequal namespaces can overlap.
                # A delete waits for this lock too, and this for it: a namespace is seen with its owner or
                # among the deleted ones, and never in between as free.
                connection.exec_driver_sql("LOCK TABLE catalog_repositories IN EXCLUSIVE MODE")
            _check_free(connection, repo)
            self._claim_new(connection, store, repo)
            metarange_id = write_metarange(store, COMMITTED, [])
            _insert(connection, repo)
            first = history.identified(Commit("", metarange_id, (), repo.created, "Repository created"))
            history.add(connection, repo, first)
            lost_history.mark_separated(connection, repo.uid)
            add_branch(connection, repo, repo.default_branch, first.id)

    def delete_repository(self, name: str) -> DeletedRepository:
        """
        Delete a repository and its rows, except one that says where it was.

        Its objects stay until a run has collected them; its name is free at once, its
        namespace only then. While a run deletes its objects, this raises Busy.
        """
        # While the catalog still knows the commits it can tell whether an unmarked namespace is its own. If
        # it is not, or the store cannot be reached, a run that collects it will find no marker and stop.
        with suppress(EbbtideError):
            self.check_owner(name)
        with self._writing(name) as writing:
            connection, found = writing.connection, writing.repository
            closed = fence.find_fence(connection, found)
            if closed is not None:
                raise fence.busy(name, closed, why="the run could not finish, nor say what it has deleted")
            gone = refs.add_deleted(connection, found, self._clock())
            branch_ids = select(schema.branches.c.id).where(schema.branches.c.repo_uid == found.uid)
            staging.queue_branches(writing, DropReason.REPOSITORY, branch_ids)
            uploads.queue_branch_tokens(writing, DropReason.REPOSITORY, branch_ids)
            connection.execute(delete(_table).where(_table.c.uid == found.uid))
        return gone

    def repositories(self) -> list[Repository]:
        """Return all repositories, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(_table).order_by(_table.c.name))
            return [refs.to_repository(row) for row in rows]

    def store(self, repo: str) -> Store:
        """Open the object store that is rooted at the repository's namespace."""
        return self._content(self.repository(repo).namespace).store

    def sequence(self, repo: str) -> int:
        """Read the change counter; it grows with every operation that can make or drop a reference."""
        with self._reading(repo) as (connection, found):
            return refs.sequence(connection, found)


def _insert(connection: Connection, repo: Repository) -> None:
    """Insert the row of a new repository."""
    connection.execute(
        insert(_table).values(
            uid=repo.uid,
            name=repo.name,
            namespace=repo.namespace,
            default_branch=repo.default_branch,
            created=to_micros(repo.created),
            range_keys=repo.range_keys,
            sequence=1,
        )
    )


def _check_free(connection: Connection, repo: Repository) -> None:
    """Refuse a name that is taken and a namespace that overlaps."""
    for row in connection.execute(select(_table.c.name, _table.c.namespace)):
        if row.name == repo.name:
            raise AlreadyExists(f"there is a repository {repo.name!r} already", fix="choose another name")
        if overlap(row.namespace, repo.namespace):
            raise Refused(
                f"the namespace {repo.namespace} overlaps {row.namespace} of repository {row.name!r}",
                why="each would take the other's objects for garbage",
                fix="use a folder or prefix that is not, does not hold and does not lie in another's",
            )
    for gone in refs.deleted_repositories(connection):
        if overlap(gone.namespace, repo.namespace):
            raise Refused(
                f"the namespace {repo.namespace} overlaps {gone.namespace} of the deleted {gone.name!r}",
                why="its objects are still to be collected, and new ones would go with them",
                fix=f"collect it with {refs.how_to_collect(gone.name)}, or choose another namespace",
            )


class DeletedRepositories(CatalogBase):
    """
    Deleted repositories, each known until its namespace is collected.

    A name may be used again at once and so occur several times here; a namespace may not.
    """

    def deleted_repositories(self) -> list[DeletedRepository]:
        """Return all deleted repositories whose objects are still to be collected, by time of deletion."""
        with self._database.reading() as connection:
            return refs.deleted_repositories(connection)

    def deleted_repository(self, name: str) -> DeletedRepository:
        """Find the deleted repository that had this name last."""
        with self._database.reading() as connection:
            found = refs.last_deleted(connection, name)
        if found is None:
            raise refs.no_deleted_repository(name)
        return found

    def deleted_store(self, uid: str) -> Store:
        """Open the object store that is rooted at a deleted repository's namespace."""
        with self._database.reading() as connection:
            return self._store_at(refs.find_deleted(connection, uid).namespace)

    def forget_deleted(self, uid: str) -> None:
        """Forget a deleted repository whose namespace is empty; the namespace is free from then on."""
        with self._database.writing() as connection:
            refs.forget_deleted(connection, uid)
            reclaim_queue.forget_repository(connection, uid)


class Policies(CatalogBase):
    """Texts of policies and retention rules, stored unread: the caller has checked them."""

    def set_policy(self, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Set the repository's policy and return its version; earlier versions are kept."""
        return self._set_text(schema.policies, repo, text, format)

    def policy(self, repo: str) -> tuple[str, str] | None:
        """Return text and format of the current policy; None if none was ever set."""
        return self._text(schema.policies, repo)

    def policy_history(self, repo: str) -> tuple[PolicyVersion, ...]:
        """Return all policies that the repository had, the oldest first."""
        with self._reading(repo) as (connection, found):
            return _versions(connection, schema.policies, found)

    def set_retention(self, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Set the repository's retention rules and return their version; earlier versions are kept."""
        return self._set_text(schema.retentions, repo, text, format)

    def retention(self, repo: str) -> tuple[str, str] | None:
        """Return text and format of the current retention rules; None if none were ever set."""
        return self._text(schema.retentions, repo)

    def _set_text(self, table: Table, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Add the next version of a text."""
        if not isinstance(text, str) or "\0" in text + format:
            raise BadInput(
                "this is not a text, or it has a NUL character",
                fix="give the text of a JSON, TOML or YAML file",
            )
        with self._writing(repo) as writing:
            uid = writing.repository.uid
            latest = select(func.max(table.c.version)).where(table.c.repo_uid == uid)
            version = (writing.connection.execute(latest).scalar() or 0) + 1
            row = {"repo_uid": uid, "version": version, "text": text, "format": format}
            now = to_micros(self._clock())
            writing.connection.execute(insert(table).values(row | {"created": now}))
        return int(version)

    def _text(self, table: Table, repo: str) -> tuple[str, str] | None:
        """Return the last version of a text, and its format."""
        with self._reading(repo) as (connection, found):
            mine = select(table.c.text, table.c.format).where(table.c.repo_uid == found.uid)
            row = connection.execute(mine.order_by(table.c.version.desc()).limit(1)).first()
        return None if row is None else (row.text, row.format)


def _versions(connection: Connection, table: Table, repo: Repository) -> tuple[PolicyVersion, ...]:
    """Return all versions of a text, the oldest first."""
    mine = select(table).where(table.c.repo_uid == repo.uid)
    rows = connection.execute(mine.order_by(table.c.version))
    return tuple(PolicyVersion(r.version, r.text, r.format, from_micros(r.created)) for r in rows)
