"""
Every error that Ebbtide raises on purpose.

::

    EbbtideError                      exit 1   something failed; nothing more specific is known
    ├── BadInput                      exit 2   the caller can put it right
    │   ├── PolicyError                        a policy does not say what it must
    │   │   └── LifecycleError                 S3 refuses this lifecycle configuration, and with which code
    │   ├── ConfigError                        ebbtide.toml or an EBBTIDE_ variable is wrong
    │   ├── AddressError             exit 3   an address has no canonical form, so the run stops
    │   ├── WorldError                         a simulated world is malformed
    │   ├── NotFound                           no such repository, branch, commit, object, plan or run
    │   │   └── ObjectGone                     it was there; a run or the reaper took it away
    │   ├── AlreadyExists                      the name is taken
    │   ├── Forbidden                          this user does not have the role that it needs
    │   └── Refused                            the catalog does not allow this (expired token, conflict, ...)
    ├── SafetyStop                    exit 3   in doubt nothing is deleted
    │   ├── MetadataError                      a range, metarange, plan or table is missing or damaged
    │   ├── BreakerTripped                     the plan is larger than the configuration allows
    │   ├── StalePlan                          policy, namespace or time moved on since the plan was made
    │   ├── Busy                               another run holds the target
    │   ├── ExecutorUnfit                      an executor has another disk or build, or no way to the store
    │   ├── ForeignNamespace                   the namespace's marker names another owner, or none is certain
    │   ├── HistoryLost                        the catalog does not know commits that were made
    │   ├── LiveObjectMissing                  a live reference points at nothing
    │   └── GarbledName                        a listing has a name that cannot be read beyond doubt
    ├── StoreError                    exit 1   the object store failed or refused
    │   ├── SlowDown                           the store asked for fewer requests, and kept asking
    │   ├── Denied                             a store or registry does not let this user do it
    │   ├── NameTaken                          a folder has the name of a file, or the other way round
    │   ├── UnsafeEntry              exit 3   a symbolic link or special file lies in a store
    │   └── Unsupported                        a registry cannot do it, or it is switched off there
    ├── EnvironmentProblem            exit 1   Java, Spark or a database is missing or unusable
    └── PartlyApplied                 exit 4   some items were deleted, some could not be

Every message says what was found, why that stopped the run, and what to do next.

>>> str(PolicyError("rule 'r1': days is 0", why="an object cannot live less than a day", fix="use 1"))
"rule 'r1': days is 0; an object cannot live less than a day. What to do: use 1"
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime


class EbbtideError(Exception):
    """The base of all: catch this to catch whatever Ebbtide raises on purpose."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "", details: Sequence[str] = ()) -> None:
        self.what, self.why, self.fix, self.details = what, why, fix, tuple(details)
        text = what if not why else f"{what}; {why}"
        sentence = text if not fix else f"{text}. What to do: {fix}"
        super().__init__("\n".join([sentence, *self.details]))

    def with_reason(self, more: str) -> EbbtideError:
        """Return the same error with one more reason."""
        told = copy(self)
        EbbtideError.__init__(
            told,
            self.what,
            why=f"{self.why}; {more}" if self.why else more,
            fix=self.fix,
            details=self.details,
        )
        return told

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross from Spark's workers to the driver, so they must survive pickling."""
        return (_rebuild, (type(self), self.__dict__.copy(), self.args))


def _rebuild(cls: type[EbbtideError], state: dict[str, object], args: tuple[object, ...]) -> EbbtideError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class BadInput(EbbtideError):
    """What was given cannot be used; nothing was changed."""

    exit_code = 2


class PolicyError(BadInput):
    """A policy does not say what it must."""


class LifecycleError(PolicyError):
    """S3 refuses this lifecycle configuration; `code` and `message` are what it answers."""

    def __init__(self, code: str, message: str, found: str, *, why: str = "", fix: str = "") -> None:
        self.code, self.message = code, message
        super().__init__(f"{found} ({code})", why=why, fix=fix)


class ConfigError(BadInput):
    """The configuration file or an environment variable is wrong."""


class AddressError(BadInput):
    """An address has no canonical form, so it is unknown what it names."""

    exit_code = 3


class WorldError(BadInput):
    """A simulated world is malformed."""


class NotFound(BadInput):
    """No such repository, branch, tag, commit, object, plan or run."""


class ObjectGone(NotFound):
    """The object was here; a run, or the reaper, took it away, and this says which and why."""

    def __init__(
        self,
        address: str,
        *,
        since: datetime,
        run_id: int,
        rules: tuple[str, ...],
        restorable: bool,
        until: datetime | None = None,
        by: str = "",
    ) -> None:
        self.address, self.since, self.run_id = address, since, run_id
        self.rules, self.restorable, self.until = rules, restorable, until
        done = "deleted it" if until is None else "set it aside"
        in_bin = "" if until is None else f"it lies in the recycle bin until {until:%Y-%m-%dT%H:%M:%SZ}; "
        super().__init__(
            f"{address} is gone since {since:%Y-%m-%dT%H:%M:%SZ}",
            why=by or f"run {run_id} {done} by {', '.join(rules) or 'no named rule'}",
            fix=f"{in_bin}bring it back with 'ebb restore {run_id} {address}'"
            if restorable
            else "it was deleted for good and cannot be restored",
        )


class AlreadyExists(BadInput):
    """The name is taken."""


class Forbidden(BadInput):
    """The user does not have the role that this needs; it was not done, and the log says who tried."""


class Refused(BadInput):
    """The catalog does not allow this: an expired token, a conflict, an address inside the namespace."""


class SafetyStop(EbbtideError):
    """A check found a doubt; the run stopped before it deleted anything."""

    exit_code = 3


class MetadataError(SafetyStop):
    """A range, metarange, plan or table is missing, damaged or not what it should be."""


class BreakerTripped(SafetyStop):
    """The plan deletes more than the configuration allows."""


class StalePlan(SafetyStop):
    """The policy, the namespace or the time moved on since the plan was made."""


class Busy(SafetyStop):
    """Another run is at work on the same target."""


class ExecutorUnfit(SafetyStop):
    """An executor does not share the state root or the build of the driver, or cannot reach the target."""


class ForeignNamespace(SafetyStop):
    """A namespace belongs to another repository or catalog, or its owner is unknown."""


class HistoryLost(SafetyStop):
    """The catalog lacks commits that were made: it was probably restored from an older copy."""


class LiveObjectMissing(SafetyStop):
    """A live reference points at an object that the store does not have."""


class GarbledName(SafetyStop):
    """A listing has a name that cannot be read beyond doubt: it may be the name of another object."""


class StoreError(EbbtideError):
    """The object store failed or refused."""


class SlowDown(StoreError):
    """The store asked for fewer requests and kept asking after every back-off."""


class Denied(StoreError):
    """A store or registry wants other credentials, or this user may not do it; again will not help."""


class NameTaken(StoreError):
    """A disk cannot hold a file and a folder of one name, as a bucket can."""


class UnsafeEntry(StoreError):
    """A symbolic link or a special file lies in a store: following it and skipping it are both unsafe."""

    exit_code = 3


class Unsupported(StoreError):
    """A registry cannot do what was asked, or it is switched off there; it did nothing."""


class EnvironmentProblem(EbbtideError):
    """Java, Spark or a database is missing or unusable."""


class PartlyApplied(EbbtideError):
    """Some items were deleted or restored and some could not be, or a restore brought nothing back."""

    exit_code = 4


_received: list[KeyboardInterrupt] = []
"""The signals that asked the current command to stop, in order."""


def record_interruption(stopped: KeyboardInterrupt) -> None:
    """Remember that a signal asked this process to stop, in case the exception for it gets lost."""
    _received.append(stopped)


def forget_interruptions() -> None:
    """Forget the signals of an earlier command in this process."""
    _received.clear()


def interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """
    Return the interruption that caused an error, or None if there was none.

    The signal that stops us may have stopped Spark's JVM too, and then any cleanup on the way out fails with
    a connection error. Python also drops an exception that a signal handler raises inside a finalizer; the
    command then continues without a JVM until something fails. So received signals are remembered as well.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            return found
        found = found.__context__
    return _received[-1] if _received else None
