"""What writers do with physical addresses: ask for one, upload to it, link it, in time or too late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.machine.checking import reached
from tests.machine.repository import Given, Repository

from ebbtide.core.errors import NotFound

_RECENT = 3


@dataclass(frozen=True)
class GetAddress:
    """Ask for a physical address, and maybe upload to it at once."""

    gated: ClassVar[bool] = False
    branch: str
    key: str
    upload: bool

    def on(self, repo: Repository) -> None:
        """Do it."""
        given = repo.get_address(repo.branch(self.branch), self.key)
        if self.upload:
            repo.upload_to(given)


@dataclass(frozen=True)
class UploadTo:
    """Upload to an address that was handed out some time ago, whether or not its token is still good."""

    gated: ClassVar[bool] = False
    place: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        waiting = [given for given in repo.given if not given.uploaded]
        repo.upload_to(_chosen(waiting, self.place))


@dataclass(frozen=True)
class Link:
    """Link an address that was handed out some time ago."""

    gated: ClassVar[bool] = True
    place: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        waiting = [given for given in repo.given if not given.linked]
        repo.link(_chosen([given for given in waiting if given.uploaded] or waiting, self.place))


@dataclass(frozen=True)
class LinkedUpload:
    """Ask for an address, upload to it and link it, all at once."""

    gated: ClassVar[bool] = True
    branch: str
    key: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        given = repo.get_address(repo.branch(self.branch), self.key)
        repo.upload_to(given)
        repo.link(given)


@dataclass(frozen=True)
class AbandonedUpload:
    """Upload an object that nobody will ever stage."""

    gated: ClassVar[bool] = False
    branch: str
    key: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        given = repo.get_address(repo.branch(self.branch), self.key)
        repo.upload_to(given)
        repo.given.remove(given)


@dataclass(frozen=True)
class LateUpload:
    """Put an object into an old partition past the catalog: by an expired token, or else by hand."""

    gated: ClassVar[bool] = False
    place: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        expired = [one for one in repo.given if not one.uploaded and one.expires <= repo.clock()]
        if expired:
            repo.upload_to(_chosen(expired, self.place))
        else:
            repo.put_by_hand(self.place)


@dataclass(frozen=True)
class Import:
    """Commit an entry for an object that nothing refers to, however long it has lain there."""

    gated: ClassVar[bool] = True
    branch: str
    key: str
    place: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        forgotten = sorted(repo.contents.keys() - repo.gone - reached(repo.document()))
        if not forgotten:
            raise NotFound("everything is referred to")
        address = forgotten[self.place % len(forgotten)]
        repo.import_entry(repo.branch(self.branch), self.key, address)


@dataclass(frozen=True)
class ChangeRetention:
    """Make other rules the repository's retention rules."""

    gated: ClassVar[bool] = False
    rules: dict[str, Any]

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.set_retention(self.rules)


def _chosen(waiting: list[Given], place: int) -> Given:
    if not waiting:
        raise NotFound("no address of that kind was handed out")
    # Of the old ones most have expired: who comes back comes back soon.
    return waiting[-_RECENT:][place % min(_RECENT, len(waiting))]
