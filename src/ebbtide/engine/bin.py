"""
The recycle bin protocol: what `engine.recycle`, `engine.restore` and `engine.bin_expiry` ask of any bin.

`engine.object_bin` has the bin that is a folder of an object store. Other backends, such as the repositories
of a registry, answer for themselves. A bin is read from its backend alone: a lost state root loses nothing
that lies in it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ebbtide.core.bin_label import Label
from ebbtide.core.display import Explanation, Table
from ebbtide.core.errors import EbbtideError, MetadataError, NotFound, Unsupported
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Context, Identity, Run
from ebbtide.storage.store import DeleteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebbtide.engine.apply import Applied

OnDamage = Callable[[EbbtideError], None]


class FolderGone(NotFound):
    """A folder of the bin is not there: nothing was set aside, or all of it was restored or emptied since."""


@dataclass(frozen=True)
class BinItem:
    """One item in the bin: which run's folder has it, where it was, and how large it is."""

    folder: str
    run: int
    address: str
    size: int


@dataclass(frozen=True)
class RestoreChoice:
    """What is to come back: all of a folder of the bin or of a run, or single items."""

    folder: str | None = None
    items: tuple[str, ...] = ()
    """Names of items; none means everything in the folder or of the run."""
    days: int | None = None
    """For how many days no run takes the items again; None is as long as the bin keeps them."""
    run: int | None = None
    """The run that set them aside, where the bin has no folders."""
    to: str | None = None
    """Another name for the only item, where items can have one."""
    alone: bool = False
    """Leave in the bin what belongs to an item, such as the signatures of an image."""

    def asked(self) -> str:
        """Return the choice for the ledger; an interrupted restore is finished by it."""
        asked = {"folder": self.folder, "items": len(self.items) or "all", "days": self.days}
        return json.dumps({"restore": asked})


@dataclass(frozen=True)
class Returned:
    """What became of an item of the bin, and which item of the target it is now."""

    result: DeleteResult
    """As of `Store.move`."""
    address: str
    version: str | None = None
    """The version that is in place now; None stands for every version."""
    note: Explanation | None = None
    """What the target has to say of it besides the outcome."""
    troubles: tuple[str, ...] = ()
    """What was not done although the item is back."""


@dataclass(frozen=True)
class Wanted:
    """The items of the bin that a choice names."""

    items: Iterable[BinItem]
    labels: tuple[Label, ...] = ()
    """The folders that they lie in."""
    whole: Manifest | None = None
    """The plan of the run that comes back whole, if that is in this state root."""
    gone: tuple[str, ...] = ()
    """Items that a run set aside and the bin does not have any more, each with what became of it."""


@dataclass(frozen=True)
class Listing:
    """What lies in a bin: for people, for programs, and what cannot be understood there."""

    table: Table
    plain: Any
    damage: tuple[EbbtideError, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class BinRows:
    """All items of a bin for a plan of its expiry, as the columns of `EXPIRY`, and what was read."""

    rows: DataFrame
    read: dict[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emptied:
    """What became of the items of a bin that was emptied at once."""

    gone: tuple[Any, ...]
    """The items that are gone, for programs."""
    failed: tuple[str, ...]
    """Why others are not."""
    damage: tuple[EbbtideError, ...] = ()


Confirm = Callable[[int, int], None]
"""Asks whether so many items with so many bytes may go; raises if not."""

EXPIRY = (
    "address string, names array<string>, rule string, held_by string, size bigint,"
    " set_aside timestamp, ends timestamp"
)
"""What a bin says of each item for its expiry: from `ends` on it may be deleted for good."""


class BinDefaults:
    """What most bins answer alike."""

    records_restores = True
    """Whether a restore is a run in the ledger: needed where plans go by what runs removed."""
    copies_out = True
    """Whether items can be copied to a folder of this machine."""
    in_order = False
    """Whether emptying looks at neighbours together."""
    action: str | None = None
    """What plans call the removal of an item, where the target names its actions."""
    item = "object"
    """What its items are called."""
    elsewhere = "--to FOLDER copies an item whose place is taken"
    """What a user can do with an item whose place is taken."""

    def check_setting(self, days: int | None) -> None:
        """Refuse a number of days that the bin cannot keep items for."""

    def check_restore(self, choice: RestoreChoice) -> None:
        """Refuse, before anything is changed, a restore that must not happen."""

    def before_page(self, page: Sequence[BinItem], run_id: int) -> None:
        """Prepare the target for a page of items that are about to come back."""

    def after_restore(self, choice: RestoreChoice, wanted: Wanted, back: int) -> None:
        """Do what belongs to a restore that brought so many items back."""

    def days_of(self, folder: str) -> int:  # noqa: ARG002 (nothing is held)
        """Return for how many days items of a folder are held when they are back."""
        return 0

    def empty(self, older_than: int | None, confirm: Confirm) -> Emptied | None:  # noqa: ARG002 (a plan does it)
        """Empty the bin at once, as far as it is old enough; None if that takes a plan."""
        return None

    def check(self, plan: Manifest) -> None:
        """Refuse, before Spark starts, to apply a plan of the expiry; it may cost more than other checks."""

    def before_plan(self) -> tuple[str, ...]:
        """Do what must happen before the expiry is planned; return warnings for the plan."""
        return ()

    def after_expiry(self, plan: Manifest, applied: Applied) -> None:
        """Do what belongs to an expiry that succeeded, now or before."""

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Record that an expiry ended with an error."""


class RecycleBin(BinDefaults, ABC):
    """The recycle bin of one target, whatever it lies in."""

    context: Context
    """The state that runs on the target work with."""

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """The target that the bin belongs to."""

    def check_owner(self) -> Identity:
        """Return the identity of the bin's owner as it is now; raise if it cannot be trusted."""
        return self.identity

    # What lies in it

    @abstractmethod
    def listing(self, run: int | None = None) -> Listing:
        """Return what lies in the bin, or what a run set aside."""

    @abstractmethod
    def stream(self, run: int | None, on_damage: OnDamage) -> Iterator[tuple[BinItem, datetime]]:
        """Stream every item with the time from which on it may be deleted for good."""

    @abstractmethod
    def damaged(self, found: Sequence[EbbtideError]) -> MetadataError:
        """Make the error for parts of the bin that cannot be understood, after all others were shown."""

    # Restoring

    @abstractmethod
    def choice_of(self, plan: Manifest, items: tuple[str, ...]) -> RestoreChoice:
        """Return the choice of all or some items of a run; NotFound if it set nothing aside."""

    @abstractmethod
    def wanted(self, choice: RestoreChoice) -> Wanted:
        """Find what is to come back; an unknown name stops everything before it begins."""

    @abstractmethod
    def bring_back(self, page: Sequence[BinItem], choice: RestoreChoice) -> Sequence[Returned]:
        """Move items to where they were, none over another content: an answer for each, in order."""

    def read(self, item: BinItem) -> bytes:
        """Read an item in the bin, where items can be copied out."""
        raise Unsupported(f"{item.address} cannot be copied out of the recycle bin", fix="restore it")

    # Expiry

    @abstractmethod
    def reach(self) -> Reach:
        """Return a check by which an executor shows that it can reach the bin."""

    @abstractmethod
    def check_ready(self) -> None:
        """Raise if what the bin lies in does not answer."""

    @abstractmethod
    def expiry(self, run: Run, older_than: int | None) -> BinRows:
        """List the bin on the executors; `older_than` days replace the days that items are kept for."""

    @abstractmethod
    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if the bin is not what a plan of its expiry was made for."""

    @abstractmethod
    def deleter(self, attempt: Attempt) -> Actor:
        """Make what deletes items of the bin for good on the executors, and reaches nothing else."""
