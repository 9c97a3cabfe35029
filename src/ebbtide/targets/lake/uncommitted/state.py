"""
What a run leaves on a branch's path for the next: its "GC commit", how far it has read, the newest commit.

The next run need not list partitions of which this one has seen everything. A partition is *settled* when
nothing can come into it any more and nothing in it waits to become garbage; what is staged in it is in the GC
commit. The state is written when the run has succeeded, not before: then what it found is really gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from ebbtide.core.errors import NotFound
from ebbtide.storage.store import DeleteRequest, Store
from ebbtide.targets.lake.catalog.partitions import PARTITION_LIFE, partition_began

FORMAT = 1


@dataclass(frozen=True)
class BranchState:
    """One branch's path, as the last run left it."""

    branch_id: str
    gc_commit: str | None
    """The metarange of what was staged on the branch; None if nothing was."""
    staged: int
    last_partition: str | None
    """The oldest partition that is not settled: the next run lists it and all newer ones."""
    newest_commit: str
    run_id: int
    optimized_runs: int
    """How many runs in a row have not listed everything."""
    finished: bool = False
    """The branch is no more and its path is empty: there is nothing to come back for."""
    format: int = FORMAT

    def to_json(self) -> str:
        """Write the state with a seal, so that a damaged one is not believed."""
        plain = asdict(self)
        return json.dumps(plain | {"seal": _seal(plain)}, indent=2, sort_keys=True)


class BadState(Exception):
    """A state that cannot be used; it says why."""


def state_from_json(text: str) -> BranchState:
    """Read a state, or say why it cannot be used."""
    try:
        plain = json.loads(text)
        seal = plain.pop("seal")
        state = BranchState(**plain)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadState("it is not readable") from None
    if seal != _seal(plain):
        raise BadState("it was altered")
    if state.format != FORMAT:
        raise BadState(f"it has format {state.format}")
    return state


def state_key(branch_path: str) -> str:
    """Name the state's place on a branch's path."""
    return f"{branch_path}_gc/state.json"


def read_state(store: Store, branch_path: str, branch_id: str) -> BranchState:
    """Read a branch's state, or say why there is none to use."""
    try:
        text = store.read(state_key(branch_path)).decode()
    except NotFound:
        raise BadState("no earlier run left one") from None
    except UnicodeDecodeError:
        raise BadState("it is not readable") from None
    state = state_from_json(text)
    if state.branch_id != branch_id:
        raise BadState("it is another branch's")
    return state


def save_state(store: Store, branch_path: str, state: BranchState) -> None:
    """Leave a state for the next run, unless a later run has left one already; a finished path needs none."""
    try:
        known = read_state(store, branch_path, state.branch_id)
    except BadState:
        known = None
    if known is not None and known.run_id >= state.run_id:
        return
    if not state.finished:
        store.write(state_key(branch_path), state.to_json().encode())
    elif known is not None:
        store.delete([DeleteRequest(state_key(branch_path))])


def last_unsettled(
    partitions: Iterable[str], waiting: str | None, listed_at: datetime, uploads: timedelta
) -> str | None:
    """
    Give the oldest partition that is not settled; None if there are no partitions at all.

    A partition takes new objects for an hour, and an upload to an address in it may take as long as its
    token lives. `waiting` is the oldest partition with an object that is too young to be garbage.
    """
    ordered = sorted(partitions)
    if not ordered:
        return waiting
    open_since = listed_at - PARTITION_LIFE - uploads
    unsettled = [name for name in ordered if (partition_began(name) or listed_at) >= open_since]
    # The newest counts as read at any rate: without it the next run would take this for a first one.
    return max([*unsettled, *([waiting] if waiting else []), ordered[0]])


def states_to_json(states: Mapping[str, BranchState]) -> str:
    """Write the states of many branches, by path, to be kept with a plan until it is applied."""
    return json.dumps({path: asdict(state) for path, state in sorted(states.items())}, sort_keys=True)


def states_from_json(text: str) -> dict[str, BranchState]:
    """Read what was kept with a plan."""
    return {path: BranchState(**row) for path, row in json.loads(text).items()}


def _seal(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
