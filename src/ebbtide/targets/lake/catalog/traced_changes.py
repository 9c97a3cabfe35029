"""
Changes that leave a trace in the namespace, so that a catalog restored from an older copy is recognized.

A commit leaves its metarange there. A tag names a commit that is there already: without a trace its loss
would go unnoticed, and what it kept would look like garbage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from ebbtide.core.errors import StoreError
from ebbtide.targets.lake.catalog.lost_history import add_mark
from ebbtide.targets.lake.catalog.ownership import Ownership
from ebbtide.targets.lake.catalog.writing import Writing


class TracedChanges(Ownership):
    """Transactions whose loss is noticed."""

    @contextmanager
    def _traced(self, repo: str, transaction: AbstractContextManager[Writing]) -> Iterator[Writing]:
        """
        Run a transaction that puts a mark into the catalog, then write the mark into the namespace.

        The namespace is read first: if it cannot be reached nothing is changed. One that is not marked as
        this repository's is left alone: every run stops there, or marks it.
        """
        found = self.repository(repo)
        marked = self.marked_owner(found)
        is_own = marked is not None and marked.identity == self.owner(found).identity
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
