"""Closing and opening the gate of a repository, for whoever deletes its objects."""

from __future__ import annotations

from ebbtide.targets.lake.catalog import gates, refs
from ebbtide.targets.lake.catalog.part import CatalogPart


class Gating(CatalogPart):
    """
    What a run needs to delete safely.

    While the gate is closed nobody can make a new reference to an object that is there already: `copy` and
    `move` on a branch, `link_physical_address`, `create_branch`, `create_tag`, `merge`, `revert`, `reset` to
    a ref and `import_entries` wait for it. Uploads, commits and deletes do not; the repository itself is not
    deleted.
    """

    def close_gate(self, repo: str, holder: str) -> int:
        """
        Close the gate and give the change counter of that moment, which closing does not raise.

        When this returns, all references that were made before are visible, and no other can be made until
        the gate is opened. For the holder that has it closed already this is no change; for another, Busy.
        """
        with self._database.writing() as connection:
            found, sequence = refs.hold_repository(connection, repo)
            gates.close(connection, found, holder, self._clock())
        return sequence

    def open_gate(self, repo: str, holder: str) -> None:
        """Open the gate if this holder closed it; another's stays as it is."""
        with self._database.writing() as connection:
            found, _ = refs.hold_repository(connection, repo)
            gates.reopen(connection, found, holder)

    def gate(self, repo: str) -> str | None:
        """Say who keeps the gate closed; None if it is open."""
        with self._reading(repo) as (connection, found):
            closed = gates.find(connection, found)
        return None if closed is None else closed.holder
