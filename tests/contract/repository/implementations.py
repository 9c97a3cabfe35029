"""
The implementations of the repository protocol, each with what a test needs to change it.

A new implementation adds a subclass of `Implementation` here, and passes the suite.
"""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

from tests.services.lake import SettableClock

from ebbtide.core.errors import Busy
from ebbtide.storage.namespace import MARKER
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import metadata_key
from ebbtide.targets.lake.reaper import Reaper, ReapOptions
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.protocol import VersionedRepository

NAME = "lake"


class Implementation(ABC):
    """A repository with a branch `main`, and the changes that users and accidents make to it."""

    clock: SettableClock

    @property
    @abstractmethod
    def repository(self) -> VersionedRepository:
        """The repository as collectors see it."""

    @property
    @abstractmethod
    def missing(self) -> VersionedRepository:
        """A repository that does not exist."""

    @abstractmethod
    def upload(self, *keys: str, branch: str = "main") -> None:
        """Stage an object for each key."""

    @abstractmethod
    def commit(self, branch: str = "main") -> str:
        """Commit what is staged, and return the id of the commit."""

    @abstractmethod
    def branch(self, name: str, source: str = "main") -> None:
        """Create a branch."""

    @abstractmethod
    def delete_branch(self, name: str) -> None:
        """Delete a branch."""

    @abstractmethod
    def tag(self, name: str) -> None:
        """Tag the head of main."""

    @abstractmethod
    def reset(self) -> None:
        """Drop what is staged on main."""

    @abstractmethod
    def begin_upload(self, key: str) -> str | None:
        """Ask for an address to upload to, and return it; None if open uploads are not known."""

    @abstractmethod
    def is_kept_out(self) -> bool:
        """Return True if a new branch on main is refused."""

    @abstractmethod
    def set_rules(self, policy: str, retention: str) -> None:
        """Store rules, as JSON."""

    @abstractmethod
    def damage(self, range_id: str) -> None:
        """Alter a byte of the file of a committed range."""

    @abstractmethod
    def lose(self, range_id: str) -> None:
        """Remove the file of a committed range."""

    @abstractmethod
    def steal_namespace(self) -> None:
        """Let the namespace belong to another repository."""

    @abstractmethod
    def lose_last_commit(self) -> None:
        """Remove the last commit on main from what the repository knows, as an old backup does."""

    @abstractmethod
    def reap(self) -> bool:
        """Let something else than a run delete what nothing references; False if nothing can."""

    @abstractmethod
    def close(self) -> None:
        """Let go of databases."""


class CatalogImplementation(Implementation):
    """The embedded catalog on SQLite, with a folder as its store."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, SettableClock()
        self.catalog = self._open()
        self.catalog.create_repository(NAME, str(folder / "objects"))

    def _open(self) -> Catalog:
        wait = timedelta(0)
        url = f"sqlite:///{self.folder}/catalog.db"
        return Catalog(url, clock=self.clock, range_keys=2, fence_wait=wait)

    @property
    def repository(self) -> CatalogRepository:
        """The repository as collectors see it."""
        return CatalogRepository(self.catalog, NAME)

    @property
    def missing(self) -> CatalogRepository:
        """A repository that does not exist."""
        return CatalogRepository(self.catalog, "other")

    def upload(self, *keys: str, branch: str = "main") -> None:
        """Upload objects whose content is their key."""
        for key in keys:
            self.catalog.upload(NAME, branch, key, key.encode())

    def commit(self, branch: str = "main") -> str:
        """Commit what is staged; the database before it is kept as a backup."""
        with (
            closing(sqlite3.connect(self.folder / "catalog.db")) as now,
            closing(sqlite3.connect(self.folder / "backup.db")) as backup,
        ):
            now.backup(backup)
        return self.catalog.commit(NAME, branch, "a commit").id

    def branch(self, name: str, source: str = "main") -> None:
        """Create a branch."""
        self.catalog.create_branch(NAME, name, source)

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""
        self.catalog.delete_branch(NAME, name)

    def tag(self, name: str) -> None:
        """Tag the head of main."""
        self.catalog.create_tag(NAME, name, "main")

    def reset(self) -> None:
        """Drop what is staged on main."""
        self.catalog.reset(NAME, "main")

    def begin_upload(self, key: str) -> str | None:
        """Get a physical address."""
        return self.catalog.get_physical_address(NAME, "main", key).address

    def is_kept_out(self) -> bool:
        """Try to create a branch."""
        with suppress(Busy):
            self.branch("kept-out")
            return False
        return True

    def set_rules(self, policy: str, retention: str) -> None:
        """Store both rules."""
        self.catalog.set_policy(NAME, policy, "json")
        self.catalog.set_retention(NAME, retention, "json")

    def _file(self, range_id: str) -> Path:
        return self.folder / "objects" / metadata_key("_lakefs/committed", range_id)

    def damage(self, range_id: str) -> None:
        """Alter the last byte of a range's file."""
        data = bytearray(self._file(range_id).read_bytes())
        data[-1] ^= 1
        self._file(range_id).write_bytes(data)

    def lose(self, range_id: str) -> None:
        """Remove a range's file."""
        self._file(range_id).unlink()

    def steal_namespace(self) -> None:
        """Put the marker of another catalog's repository into the namespace."""
        other = Catalog(f"sqlite:///{self.folder}/other.db", clock=self.clock)
        other.create_repository(NAME, str(self.folder / "elsewhere"))
        other.close()
        shutil.copy(self.folder / "elsewhere" / MARKER, self.folder / "objects" / MARKER)

    def lose_last_commit(self) -> None:
        """Restore the database as it was before the last commit."""
        self.catalog.close()
        with (
            closing(sqlite3.connect(self.folder / "backup.db")) as backup,
            closing(sqlite3.connect(self.folder / "catalog.db")) as now,
        ):
            backup.backup(now)
        self.catalog = self._open()

    def reap(self) -> bool:
        """Run the reaper without a grace period."""
        target = self.catalog.reclaim_target(NAME)
        Reaper(self.catalog, ReapOptions(grace=timedelta(0))).reap(target)
        return True

    def close(self) -> None:
        """Close the catalog."""
        self.catalog.close()
