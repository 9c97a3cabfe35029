"""
Who owns a namespace: the marker in it must name this repository of this catalog before anything is deleted.

A lake that an earlier Ebbtide made has no marker. Its repository takes the namespace when it is first used,
if nothing in there speaks against it. A deleted repository never does so by itself: the catalog has forgotten
its commits and cannot tell its metadata from another's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property

from sqlalchemy import Connection, select

from ebbtide.core.errors import EbbtideError, ForeignNamespace, MetadataError, NotFound, Refused, StoreError
from ebbtide.storage.namespace import (
    Owner,
    claim,
    enclosing_owner,
    nested_owner,
    read_owner,
    remove_owner,
    replace_owner,
)
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import lost_history, refs, schema
from ebbtide.targets.lake.catalog.lost_history import LostHistory, add_mark, forget_record
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.partitions import repository_path
from ebbtide.targets.lake.catalog.ranges import METARANGES, read_metarange
from ebbtide.targets.lake.catalog.refs import WriteTransaction
from ebbtide.targets.repository.model import COMMITTED, METADATA, DeletedRepository

REPOSITORIES = "repos/"


class Ownership(LostHistory):
    """The markers of the catalog's namespaces."""

    @cached_property
    def uid(self) -> str:
        """The uid of the catalog, kept in its database."""
        with self._database.reading() as connection:
            return str(connection.execute(select(schema.identity.c.uid)).scalar_one())

    def owner(self, repository: Repository | DeletedRepository) -> Owner:
        """Return the owner that the marker in a repository's namespace must name."""
        return Owner(repository.name, repository.uid, self.uid, self._clock(), self.rehearsal)

    def check_identity(self, repo: str) -> None:
        """Stop unless this repository owns the namespace and the catalog knows all its commits."""
        self.check_owner(repo)
        self.check_history(repo)

    def check_owner(self, repo: str) -> None:
        """Stop unless the marker names this repository; write a missing one if nothing speaks against it."""
        found = self.repository(repo)
        store = self._content(found.namespace).store
        if self.check_marker(repo) is None:
            self._check_unmarked(found, store)
            self._refuse_other(found, claim(store, self.owner(found)))

    def check_marker(self, repo: str) -> Owner | None:
        """Stop if the marker names another owner; return the owner, or None if there is no marker."""
        found = self.repository(repo)
        marked = read_owner(self._content(found.namespace).store)
        if marked is not None:
            self._refuse_other(found, marked)
        return marked

    def check_deleted_owner(self, uid: str) -> None:
        """Stop unless the marker names this deleted repository, or nothing is left of it."""
        with self._database.reading() as connection:
            gone = refs.find_deleted(connection, uid)
        store = self._store_at(gone.namespace)
        marked = read_owner(store)
        if marked is not None:
            self._refuse_other(gone, marked)
            return
        if any(store.children(METADATA)) or any(store.children(repository_path(uid))):
            raise ForeignNamespace(
                f"{gone.namespace} of the deleted repository {gone.name!r} has no owner marker",
                why="an earlier Ebbtide deleted the repository, and it is unknown whether another catalog"
                " uses the namespace",
                fix="make sure that no other catalog does, then run"
                f" 'ebb lake adopt {gone.name} --deleted' and plan again",
            )

    def adopt(self, repo: str) -> None:
        """Make this repository the owner of its namespace, whatever the marker says now."""
        found = self.repository(repo)
        store = self._content(found.namespace).store
        replace_owner(store, self.owner(found))
        forget_record(store)

    def adopt_deleted(self, name: str) -> None:
        """Make a deleted repository the owner of its namespace, so that it can be collected."""
        with self._database.reading() as connection:
            gone = refs.last_deleted(connection, name)
        if gone is None:
            raise refs.no_deleted_repository(name)
        replace_owner(self._store_at(gone.namespace), self.owner(gone))

    def marked_owner(self, repository: Repository | DeletedRepository) -> Owner | None:
        """Read the marker of a namespace; None if there is none, or it cannot be read."""
        with suppress(ForeignNamespace):
            return read_owner(self._store_at(repository.namespace))
        return None

    def release(self, uid: str) -> None:
        """Remove the marker of a deleted repository that is collected; its namespace is free then."""
        with self._database.reading() as connection:
            gone = refs.find_deleted(connection, uid)
        remove_owner(self._store_at(gone.namespace), self.owner(gone).identity)

    def _claim_new(self, connection: Connection, store: Store, repository: Repository) -> None:
        """Claim a namespace for a new repository, in the transaction that records it."""
        owner = self.owner(repository)
        found = claim(store, owner)
        if found.identity == owner.identity:
            return
        if not self._is_leftover(connection, found) or not _is_unused(store):
            raise _taken(repository.namespace, found)
        # The marker is from an interrupted creation by this catalog, which has written nothing else.
        replace_owner(store, owner)

    def _check_new(self, connection: Connection, store: Store, namespace: str) -> None:
        """Refuse a namespace of another lake, inside one, or around one."""
        found = read_owner(store)
        if found is not None and not self._is_leftover(connection, found):
            raise _taken(namespace, found)
        if not _is_unused(store):
            raise Refused(
                f"the namespace {namespace} holds a lake already",
                why="its metadata is there, and the catalog does not know it",
                fix="choose another namespace, or restore the catalog that it belongs to",
            )
        around = enclosing_owner(store.spec)
        if around is not None:
            raise _taken(namespace, around[1], f"lies in {around[0]}, which is the namespace of")
        inside = nested_owner(store)
        if inside is not None:
            raise _taken(namespace, inside[1], f"holds {inside[0]}, which is the namespace of")

    def _is_leftover(self, connection: Connection, owner: Owner) -> bool:
        """Return True if a marker is from an interrupted creation by this catalog."""
        gone = {one.uid for one in refs.deleted_repositories(connection)}
        known = refs.find_by_uid(connection, owner.repository_uid) or owner.repository_uid in gone
        return owner.catalog_uid == self.uid and not known

    def _check_unmarked(self, repository: Repository, store: Store) -> None:
        """Stop if a namespace without a marker shows traces of another repository, or none of this one."""
        own = repository_path(repository.uid).removeprefix(REPOSITORIES)
        others = [name for name in store.children(REPOSITORIES) if name.endswith("/") and name != own]
        if others:
            raise ForeignNamespace(
                f"{repository.namespace} has no owner marker and holds objects of other repositories, as in"
                f" {REPOSITORIES}{others[0]}",
                why="another catalog may use the namespace",
                fix=f"make sure that no other catalog does, then run 'ebb lake adopt {repository.name}'",
            )
        self.check_history(repository.name)
        with self._database.reading() as connection:
            known = lost_history.known_metaranges(connection, repository.uid, self._clock())
        folders = (METARANGES, COMMITTED)
        names = (name for folder in folders for name in store.children(f"{folder}/"))
        if not any(name.removesuffix(".parquet") in known for name in names):
            raise MetadataError(
                f"{repository.namespace} holds no metadata of repository {repository.name!r}",
                why="a folder that is not mounted, or a wrong endpoint, looks like an empty namespace",
                fix="check the store; if it was replaced on purpose, restore the namespace from a backup",
            )

    def _refuse_other(self, repository: Repository | DeletedRepository, marked: Owner) -> None:
        """Stop if a marker names another owner."""
        if marked.identity == self.owner(repository).identity:
            return
        option = " --deleted" if isinstance(repository, DeletedRepository) else ""
        raise ForeignNamespace(
            f"{repository.namespace} belongs to {marked.label}, not to repository {repository.name!r}"
            f" ({repository.uid[:12]}, catalog {self.uid[:12]})",
            why="each would take the other's objects for garbage",
            fix="use the catalog that owns it; if that catalog is gone for good, or this is a copy of its"
            f" namespace, run 'ebb lake adopt {repository.name}{option}'",
        )


class TracedChanges(Ownership):
    """Transactions that leave a trace in the namespace, so that their loss is noticed."""

    def _owns_namespace(self, found: Repository) -> bool:
        """Return True if the namespace is marked as this repository's."""
        marked = self.marked_owner(found)
        return marked is not None and marked.identity == self.owner(found).identity

    @contextmanager
    def _traced(
        self, repo: str, transaction: AbstractContextManager[WriteTransaction]
    ) -> Iterator[WriteTransaction]:
        """
        Run a transaction that puts a mark into the catalog, then write the mark into the namespace.

        The namespace is read first: if it cannot be reached nothing is changed. One that is not marked as
        this repository's is left alone: every run stops there, or marks it.
        """
        is_own = self._owns_namespace(self.repository(repo))
        with transaction as writing:
            yield writing
            if is_own:
                add_mark(writing.connection, writing.repository, self._clock())
        if not is_own:
            return
        try:
            self._publish(writing.repository)
        except StoreError as failed:
            raise failed.with_reason(
                f"{repo!r} was changed all the same; only the trace is missing that would show a loss of the"
                " change in a restored catalog, until the next plan"
            ) from failed


@contextmanager
def refusing_foreign() -> Iterator[None]:
    """Refuse a new namespace if its marker, or one above or below it, cannot be read."""
    try:
        yield
    except ForeignNamespace as doubtful:
        raise Refused(doubtful.what, why=doubtful.why, fix="choose another namespace") from None


def forget_claim(store: Store, owner: Owner) -> None:
    """Remove the marker of a failed creation, if the store allows it."""
    with suppress(EbbtideError):
        remove_owner(store, owner.identity)


def _is_unused(store: Store) -> bool:
    """Return True if a namespace has no lake: no objects, and no more than a creation writes."""
    try:
        if any(batch.num_rows for batch in store.list(REPOSITORIES)):
            return False
        found = {name for folder in (METARANGES, COMMITTED) for name in store.children(f"{folder}/")}
    except NotFound:
        return True
    if len(found) > 1:
        return False
    # A creation writes the empty metarange of the first commit, and nothing else.
    with suppress(MetadataError):
        return not any(read_metarange(store, COMMITTED, name.removesuffix(".parquet")) for name in found)
    return False


def _taken(namespace: str, owner: Owner, how: str = "is the namespace of") -> Refused:
    return Refused(
        f"{namespace} {how} {owner.label}",
        why="each would take the other's objects for garbage",
        fix="use a folder or prefix that is not, does not hold and does not lie in another lake's",
    )
