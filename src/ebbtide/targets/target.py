"""
The target protocol: what the command line, reports and services ask of anything that can be collected.

A kind of target is a package with a `TargetKind`, named by an entry point of the group `ebbtide.targets`.
Nothing else has to know it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ebbtide.core.display import OBJECTS, OBJECTS_WITH_BIN, Explanation, Table, Words
from ebbtide.core.documents import check_fields
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.core.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.config import Settings
    from ebbtide.core.instant import Clock
    from ebbtide.engine.bin import RecycleBin
    from ebbtide.engine.collector import Collector, Context, Identity

Shared = TypeVar("Shared", bound="Closeable")


class Closeable(Protocol):
    """Something that is closed when the command ends."""

    def close(self) -> None:
        """Close it."""


class Workspace(Protocol):
    """The settings, clock and state that a command gives to targets."""

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
        """Return the object of a name, or make it; it is closed when the command ends."""

    def warn(self, warning: str) -> None:
        """Print a warning that does not stop the command."""


@dataclass(frozen=True)
class Option:
    """An option of a command that only some kinds of targets understand."""

    flags: tuple[str, ...]
    """Such as `("--branch", "-b")`; a name without dashes is an argument."""
    help: str
    is_flag: bool = True
    """True if it takes no value."""
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    explains: bool = False
    """True if `ebb explain` understands it too."""
    required: bool = False
    default: str | None = None

    @property
    def name(self) -> str:
        """The name under which a target is given its value."""
        return self.flags[0].removeprefix("--").replace("-", "_")


Options = Mapping[str, Any]
"""The values of the options that were given, by name; other options are missing."""


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
        """Explain why a plan as of `now` would keep or delete an item; raise NotFound if there is none."""

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""

    def bin(self) -> RecycleBin | None:
        """Open the target's recycle bin; None if it has none."""


class BinReference(NamedTuple):
    """A recycle bin as a user named it, and the items that were named with it."""

    bin: RecycleBin
    items: tuple[str, ...] = ()


def bin_of(target: Target) -> RecycleBin:
    """Return a target's recycle bin; raise BadInput if it has none."""
    found = target.bin()
    if found is None:
        raise BadInput(
            f"{target.identity.url} has no recycle bin", why="what its runs delete is gone for good"
        )
    return found


@dataclass(frozen=True)
class WorldResult:
    """The decisions of a simulation, for people and for programs."""

    tables: tuple[Table, ...]
    plain: Any
    as_lines: bool = False
    """True if programs get one JSON object per line; `plain` is then a list."""


StartSpark = Callable[[], "AbstractContextManager[SparkSession]"]
"""Starts Spark for a block."""


class Simulation(Protocol):
    """`ebb simulate WORLD`: decide about a small world that is written by hand, without a target."""

    @property
    def help(self) -> str:
        """The help text of the command."""

    @property
    def inputs(self) -> Sequence[Option]:
        """The arguments and options of the command."""

    def run(self, given: Options, now: datetime, workspace: Workspace, spark: StartSpark) -> WorldResult:
        """Decide as of `now`; start Spark only if it is needed."""


@dataclass(frozen=True)
class CaseResult:
    """How one case of a policy suite ended; both sides hold only what the case asked about."""

    name: str
    passed: bool
    expected: Any
    actual: Any
    differences: Sequence[str] = ()
    """Lines that say what differs from the expectation."""
    refused: str = ""
    """Why the rules of the case are invalid."""

    def to_plain(self) -> dict[str, Any]:
        """Return the public JSON form."""
        plain = {name: getattr(self, name) for name in ("name", "passed", "expected", "actual")}
        return plain | ({"refused": self.refused} if self.refused else {})


@dataclass(frozen=True)
class CheckedPolicy:
    """A policy that was read without errors."""

    rules: int
    enabled: int
    hash: str
    warnings: Sequence[str] = ()


Case = Any
"""One case of a policy suite, in the form that its kind of target reads it."""


class PolicySuite(ABC):
    """`ebb policy test` and `ebb policy check` for one kind of target."""

    needs_spark = False
    """True if `run` needs a Spark session."""

    @abstractmethod
    def case(self, data: dict[str, Any], where: str) -> Case:
        """Check one case; an error says where it is."""

    @abstractmethod
    def run(self, spark: SparkSession | None, cases: Sequence[Case]) -> Sequence[CaseResult]:
        """Return one result per case, in their order."""

    def check(self, document: Any) -> CheckedPolicy:  # noqa: ARG002 - for kinds that can
        """Check a policy without setting it; raise PolicyError if it is wrong."""
        raise BadInput("policies of this kind cannot be checked by themselves", fix="test them with a suite")


def case_header(data: dict[str, Any], where: str, fields: Sequence[str]) -> tuple[str, str]:
    """Refuse fields of a case that are not known; return its name, and its place for errors."""
    check_fields(where, data, fields)
    name = str(data.get("name", "unnamed"))
    return name, f"{where} ({name})"


def case_time(data: dict[str, Any], place: str) -> datetime:
    """Return the time that a case decides for."""
    try:
        return parse_instant(data.get("now", ""))
    except BadInput as wrong:
        raise WorldError(f"{place}: now: {wrong.what}", fix=wrong.fix) from None


def needed(spark: SparkSession | None) -> SparkSession:
    """Return the session of a suite that needs Spark."""
    if spark is None:
        raise AssertionError("this suite needs Spark")
    return spark


class TargetKind(ABC):
    """A kind of target, found by the scheme of its URLs. It is imported by every command: keep it light."""

    usage: str
    """How its URLs are written, for help and errors, such as `s3://BUCKET`."""
    plural: str
    """The plural noun for them, such as `buckets`."""
    planned_by: str
    """What decides in a plan without options, such as `its lifecycle rules`."""
    item: str = "object"
    """What its items are called in plans and reports."""
    options: Sequence[Option] = ()
    """The options of `ebb plan` that it understands."""
    world: str = ""
    """The name of its simulation and of its policy suite, such as `bucket`; empty if it has neither."""

    @abstractmethod
    def url(self, text: str) -> str:
        """Return the one spelling of a URL; raise BadInput if it is not one of this kind."""

    @abstractmethod
    def open(self, url: str, workspace: Workspace) -> Target:
        """Open a target."""

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:  # noqa: ARG002 - for kinds that own storage
        """Return the storage that targets of this kind own, by name: no other target may collect it."""
        return {}

    def words(self, plan: Manifest) -> Words:
        """Return the words for a plan and its outcomes."""
        words = OBJECTS_WITH_BIN if plan.recycling else OBJECTS
        if self.item == words.item:
            return words
        return replace(words, item=self.item, known=f"Known {self.item}s", has_references=False)

    def described(self, plan: Manifest) -> list[str]:  # noqa: ARG002 - for kinds that have something to add
        """Return a few lines about what was read for a plan."""
        return []

    def check_bin_setting(self, text: str) -> None:  # noqa: B027 - for kinds whose policies decide
        """Refuse `ebb recycle set` where something else decides how long items stay in the bin."""

    def open_bin(self, text: str, workspace: Workspace) -> BinReference:
        """Open the recycle bin that a user names, by a URL or, where that is possible, by an item."""
        return BinReference(bin_of(self.open(self.url(text), workspace)))

    def simulation(self) -> Simulation | None:
        """Return the simulation of worlds that are written by hand, if there is one."""
        return None

    def policy_suite(self) -> PolicySuite | None:
        """Return the tests of policies, if there are any."""
        return None
