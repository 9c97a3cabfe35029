"""
The target protocol: what the command line, reports and services ask of anything that can be collected.

A kind of target is a package with an object that follows `TargetKind`, named by an entry point of the group
`ebbtide.targets`. Nothing else has to know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ebbtide.core.display import Explanation
from ebbtide.core.manifest import Manifest
from ebbtide.core.words import Words

if TYPE_CHECKING:
    from ebbtide.config import Settings
    from ebbtide.core.instant import Clock
    from ebbtide.engine.collector import Collector, Context, Identity

Shared = TypeVar("Shared", bound="Closeable")


class Closeable(Protocol):
    """Something that is closed when the command ends."""

    def close(self) -> None:
        """Let go of it."""


class Workspace(Protocol):
    """What a target may use of the place that a command works in."""

    @property
    def settings(self) -> Settings:
        """The configuration, checked."""

    @property
    def root(self) -> Path:
        """The state root."""

    @property
    def clock(self) -> Clock:
        """The clock of all that is changed or recorded."""

    @property
    def is_rehearsal(self) -> bool:
        """Whether the root is a rehearsal, which must reach nothing but this machine."""

    @property
    def context(self) -> Context:
        """The state that runs work with; it opens the ledger."""

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """Return what was made under a name, or make it; it is closed when the command ends."""

    def warn(self, warning: str) -> None:
        """Tell the user something that does not stop the command."""


@dataclass(frozen=True)
class Option:
    """An option of `ebb plan` that only some kinds of targets understand."""

    flags: tuple[str, ...]
    help: str
    is_flag: bool = True
    """Whether it takes no value."""
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    explains: bool = False
    """Whether `ebb explain` understands it too."""

    @property
    def name(self) -> str:
        """The name under which a target is given its value."""
        return self.flags[0].removeprefix("--").replace("-", "_")


Options = Mapping[str, Any]
"""The values of a kind's options that were given, by name; what was not given is not there."""


class Target(Protocol):
    """A repository, a bucket, a registry: whatever has collectors."""

    @property
    def context(self) -> Context:
        """The state that runs on it work with."""

    @property
    def identity(self) -> Identity:
        """Which target it is."""

    def collector(self, options: Options, now: datetime) -> Collector:
        """Return the collector of a plan as of `now`; BadInput if the options contradict each other."""

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Say why an item goes or stays, as a plan as of `now` would decide; NotFound if there is none."""

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""

    def bin_collector(self, older_than: int | None = None) -> Collector:
        """Return the collector of the target's recycle bin."""


class TargetKind(Protocol):
    """A kind of target, found by the scheme of its URLs. It is imported by every command: keep it light."""

    @property
    def usage(self) -> str:
        """How its URLs are written, for help and errors, such as `s3://BUCKET`."""

    @property
    def plural(self) -> str:
        """What many of them are called, such as `buckets`."""

    @property
    def planned_by(self) -> str:
        """What a plan without options goes by, such as `its lifecycle rules`."""

    @property
    def options(self) -> Sequence[Option]:
        """The options of `ebb plan` that it understands."""

    def url(self, text: str) -> str:
        """Return the one spelling of a URL; BadInput if it is none of this kind."""

    def open(self, url: str, workspace: Workspace) -> Target:
        """Open a target."""

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:
        """Return the storage that targets of this kind own, by name: no other target may collect it."""

    def words(self, plan: Manifest) -> Words:
        """Return the words for a plan and what becomes of it."""

    def described(self, plan: Manifest) -> list[str]:
        """Say in a few lines what was read for a plan."""
