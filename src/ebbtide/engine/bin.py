"""
The recycle bin protocol, which `engine.recycle`, `engine.restore` and `engine.bin_expiry` use.

`engine.object_bin` implements a bin in a folder of an object store. Targets implement other backends, such as
the repositories of a registry. A bin is read from its backend alone: if the state root is lost, nothing in
the bin is.
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
    """A folder of the bin does not exist: nothing was set aside, or all of it was restored or deleted."""


@dataclass(frozen=True)
class BinItem:
    """One item in the bin: which run's folder has it, where it was, and how large it is."""

    folder: str
    run: int
    address: str
    size: int


@dataclass(frozen=True)
class RestoreChoice:
    """What to restore: all of a folder of the bin or of a run, or single items."""

    folder: str | None = None
    items: tuple[str, ...] = ()
    """Names of items; none means everything in the folder or of the run."""
    days: int | None = None
    """For how many days the restored items are held; None is as long as the bin keeps them."""
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
    """The result of restoring one item, and which item of the target it is now."""

    result: DeleteResult
    """As of `Store.move`."""
    address: str
    version: str | None = None
    """The version that is in place now; None stands for every version."""
    note: Explanation | None = None
    """More that the target reports about it."""
    troubles: tuple[str, ...] = ()
    """What failed although the item is back."""


@dataclass(frozen=True)
class Wanted:
    """The items of the bin that a choice names."""

    items: Iterable[BinItem]
    labels: tuple[Label, ...] = ()
    """The labels of their folders."""
    whole: Manifest | None = None
    """The plan of the run, if all of it is restored and the plan is in this state root."""
    gone: tuple[str, ...] = ()
    """Items that a run set aside and that are no longer in the bin, each with the reason."""


@dataclass(frozen=True)
class Listing:
    """The contents of a bin for people and for programs, and the damage that was found."""

    table: Table
    plain: Any
    damage: tuple[EbbtideError, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class BinRows:
    """All items of a bin with the columns of `EXPIRY`, and what was read."""

    rows: DataFrame
    read: dict[str, Any]
    warnings: tuple[str, ...] = ()


EXPIRY = (
    "address string, names array<string>, rule string, held_by string, size bigint,"
    " set_aside timestamp, ends timestamp"
)
"""The columns of a bin's items for a plan of its expiry; from `ends` on an item may be deleted for good."""


class BinDefaults:
    """Defaults that suit most bins."""

    records_restores = True
    """Whether a restore is a run in the ledger, which plans that use removed items need."""
    copies_out = True
    """Whether items can be copied to a folder of this machine."""
    in_order = False
    """Whether the actor that empties it lists neighbours together."""
    action: str | None = None
    """The action of a plan of its expiry, where the target has several actions."""
    item = "object"
    """The noun for its items."""
    elsewhere = "--to FOLDER copies an item whose place is taken"
    """What a user can do with an item whose place is taken."""

    def check_setting(self, days: int | None) -> None:
        """Refuse a number of days that the bin cannot keep items for."""

    def check_restore(self, choice: RestoreChoice) -> None:
        """Refuse, before anything is changed, a restore that must not happen."""

    def before_page(self, page: Sequence[BinItem], run_id: int) -> None:
        """Prepare the target for a page of items that are about to come back."""

    def after_restore(self, choice: RestoreChoice, wanted: Wanted, back: int) -> None:
        """Finish a restore; `back` is the number of restored items."""

    def days_of(self, folder: str) -> int:  # noqa: ARG002 (nothing is held)
        """Return for how many days restored items of a folder are held."""
        return 0

    def before_empty(self) -> None:
        """Refuse, before anything is planned, a user who may not empty the bin by hand."""

    def after_empty(self, plan: Manifest) -> dict[str, Any]:  # noqa: ARG002 (the outcomes say it all)
        """Return what programs learn besides the outcomes when the bin was emptied by hand."""
        return {}

    def check_emptied(self, plan: Manifest) -> None:
        """Raise, after the result was shown, if something was left in the bin that should have gone."""

    def check(self, plan: Manifest) -> None:
        """Refuse, before Spark starts, to apply a plan of the expiry; it may cost more than other checks."""

    def before_plan(self) -> tuple[str, ...]:
        """Prepare a plan of the expiry; return warnings for the plan."""
        return ()

    def after_expiry(self, plan: Manifest, applied: Applied) -> None:
        """Finish an expiry that succeeded, now or before."""

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Record that an expiry ended with an error."""


class RecycleBin(BinDefaults, ABC):
    """The recycle bin of one target, on any backend."""

    context: Context
    """The state root, ledger and clock of the target's runs."""

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """The target that the bin belongs to."""

    def check_owner(self) -> Identity:
        """Return the identity of the bin's owner as it is now; raise if it cannot be trusted."""
        return self.identity

    # Contents

    @abstractmethod
    def listing(self, run: int | None = None) -> Listing:
        """Return the contents of the bin, or what one run set aside."""

    @abstractmethod
    def stream(self, run: int | None, on_damage: OnDamage) -> Iterator[tuple[BinItem, datetime]]:
        """Stream every item with the time from which it may be deleted for good."""

    @abstractmethod
    def damaged(self, found: Sequence[EbbtideError]) -> MetadataError:
        """Return the error for damaged parts of the bin, after all others were shown."""

    # Restoring

    @abstractmethod
    def choice_of(self, plan: Manifest, items: tuple[str, ...]) -> RestoreChoice:
        """Return the choice of all or some items of a run; raise NotFound if it set nothing aside."""

    @abstractmethod
    def wanted(self, choice: RestoreChoice) -> Wanted:
        """Find the items to restore; raise if a name is unknown, before anything is restored."""

    @abstractmethod
    def bring_back(self, page: Sequence[BinItem], choice: RestoreChoice) -> Sequence[Returned]:
        """Move items back to their places, never over other content; return a result for each, in order."""

    def read(self, item: BinItem) -> bytes:
        """Return the bytes of an item in the bin, where items can be copied out."""
        raise Unsupported(f"{item.address} cannot be copied out of the recycle bin", fix="restore it")

    # Expiry

    @abstractmethod
    def reach(self) -> Reach:
        """Return a check that an executor runs to prove that it can reach the bin."""

    @abstractmethod
    def check_ready(self) -> None:
        """Raise if the bin's backend does not answer."""

    @abstractmethod
    def expiry(self, run: Run, older_than: int | None) -> BinRows:
        """List the bin on the executors; `older_than` days replace the days that items are kept for."""

    @abstractmethod
    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if the bin is not what a plan of its expiry was made for."""

    @abstractmethod
    def deleter(self, attempt: Attempt) -> Actor:
        """Return the actor that deletes items of the bin for good, and nothing outside it."""
