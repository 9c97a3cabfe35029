"""Creating, finding and deleting repositories."""

from __future__ import annotations

import uuid
from contextlib import suppress

from sqlalchemy import Connection, delete, insert, select

from ebbtide.core.errors import AlreadyExists, EbbtideError, Refused
from ebbtide.core.instant import to_micros
from ebbtide.storage.address import canonical_namespace
from ebbtide.storage.namespace import overlap, resolved_path
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import gates, history, provenance, refs, retired, schema, staging, tokens
from ebbtide.targets.lake.catalog.model import Commit, Repository, RetiredRepository
from ebbtide.targets.lake.catalog.names import check_ref_name, check_repository_name
from ebbtide.targets.lake.catalog.new_branch import add_branch
from ebbtide.targets.lake.catalog.ownership import Ownership, forget_claim, refusing_foreign
from ebbtide.targets.lake.catalog.ranges import COMMITTED, write_metarange
from ebbtide.targets.lake.catalog.reclaim import Reason

_table = schema.repositories


class Repositories(Ownership):
    """The catalog's repositories; each owns its namespace alone."""

    def create_repository(self, name: str, namespace: str, default_branch: str = "main") -> Repository:
        """Make a repository with one empty commit; no other, also no deleted one, may share its namespace."""
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
        """Claim the namespace and record the repository; who claims holds the lock, so no two do at once."""
        with self._database.writing() as connection:
            if connection.dialect.name == "postgresql":
                # Two new repositories have no common row to wait for, and unequal namespaces can overlap.
                # A delete waits for this lock too, and this for it: a namespace is seen with its owner or
                # among the retired, and never in between as free.
                connection.exec_driver_sql("LOCK TABLE catalog_repositories IN EXCLUSIVE MODE")
            _check_free(connection, repo)
            self._claim_new(connection, store, repo)
            metarange_id = write_metarange(store, COMMITTED, [])
            _insert(connection, repo)
            first = history.identified(Commit("", metarange_id, (), repo.created, "Repository created"))
            history.add(connection, repo, first)
            provenance.mark_separated(connection, repo.uid)
            add_branch(connection, repo, repo.default_branch, first.id)

    def delete_repository(self, name: str) -> RetiredRepository:
        """
        Forget a repository and all its metadata in the database, but for a row that says where it was.

        Its objects stay where they are until a run has collected them; its name is free at once, its
        namespace only then. While a run deletes its objects the repository is not deleted: Busy.
        """
        # While the catalog still knows the commits it can tell whether an unmarked namespace is its own. If
        # it is not, or the store cannot be reached, a run that collects it will find no marker and stop.
        with suppress(EbbtideError):
            self.check_owner(name)
        with self._writing(name) as writing:
            connection, found = writing.connection, writing.repository
            closed = gates.find(connection, found)
            if closed is not None:
                raise gates.busy(name, closed, why="the run could not finish, nor say what it has deleted")
            gone = retired.add(connection, found, self._clock())
            branch_ids = select(schema.branches.c.id).where(schema.branches.c.repo_uid == found.uid)
            for part in (staging, tokens):
                part.queue_branches(writing, Reason.REPOSITORY, branch_ids)
            connection.execute(delete(_table).where(_table.c.uid == found.uid))
        return gone

    def repositories(self) -> list[Repository]:
        """Give all repositories, by name."""
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
    for gone in retired.everyone(connection):
        if overlap(gone.namespace, repo.namespace):
            raise Refused(
                f"the namespace {repo.namespace} overlaps {gone.namespace} of the deleted {gone.name!r}",
                why="its objects are still to be collected, and new ones would go with them",
                fix=f"collect it with {retired.how_to_collect(gone.name)}, or choose another namespace",
            )
