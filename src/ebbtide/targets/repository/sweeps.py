"""
Sweeps: which paths a run looks at, how far down each is listed, and the state that the last run left there.

The next run does not list partitions that this one has seen completely. A partition is *settled* when nothing
can come into it any more and nothing in it waits to become garbage; what is staged in it is in the GC commit.
The state of a path has the GC commit, the oldest unsettled partition and the newest commit. It is written
when a run has succeeded, and not before: only then is what it found really gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.storage.store import DeleteRequest, Store
from ebbtide.targets.repository.model import METADATA, STAGED
from ebbtide.targets.repository.protocol import Layout, RangeDecoder, VersionedRepository
from ebbtide.targets.repository.ranges import range_infos
from ebbtide.targets.repository.rules import SweepRules

SIDE_BY_SIDE = 16
"""How many branches are looked at in parallel: a store answers many small requests as fast as one."""
FORMAT = 1


@dataclass(frozen=True)
class Sweep:
    """The path of a branch: all its partitions, or from the newest down to the last unsettled one."""

    branch_id: str
    path: str
    before: BranchState | None = None
    """The state that the last run left; None is a clean run."""
    why_clean: str = ""
    newest_commit: str | None = None
    """The newest commit that an earlier run saw, whether or not the rest of its state is used."""
    partitions: tuple[str, ...] = ()
    """The partitions to list, the newest first."""

    @property
    def is_clean(self) -> bool:
        """Return True if everything is listed."""
        return self.before is None

    def covers(self, partition: str) -> bool:
        """Return True if a partition is to be listed, whether or not it exists."""
        last = self.before.last_partition if self.before else None
        return last is None or partition <= last


@dataclass(frozen=True)
class Survey:
    """What a run has to list."""

    sweeps: tuple[Sweep, ...]
    foreign_folders: tuple[str, ...] = ()
    """Folders that no branch wrote to: they may hold live objects, but garbage is never looked for there."""
    foreign_levels: tuple[str, ...] = ()
    """Folders on the way down to the partitions; only their own files are listed."""
    everything: bool = False
    """The whole namespace is listed, so every referenced address in it must be found."""

    @property
    def is_clean(self) -> bool:
        """Return True if no sweep relies on an earlier run."""
        return all(sweep.is_clean for sweep in self.sweeps)


def survey(repository: VersionedRepository, rules: SweepRules) -> Survey:
    """Find the paths to sweep and their partitions."""
    store, layout, decoder = repository.store(), repository.layout, repository.decoder
    wanted = _path_ids(repository, store, layout, rules.branch)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        looked = pool.map(lambda path_id: _sweep(store, layout, decoder, path_id, rules), sorted(wanted))
        found = list(pool.map(lambda sweep: _with_partitions(store, layout, sweep), looked))
    swept = Survey(tuple(sweep for sweep, _ in found))
    if rules.branch is not None or not swept.is_clean:
        return swept
    inner = [sweep.path + name for sweep, others in found for name in others]
    return _with_foreign(swept, store, layout, inner)


def _path_ids(repository: VersionedRepository, store: Store, layout: Layout, branch: str | None) -> set[str]:
    """Return the paths to sweep: of all branches that ever wrote, or of all that ever had one name."""
    branch_ids, paths = repository.branch_ids(), layout.paths(store)
    if branch is None:
        return paths | set(branch_ids.values())
    others = {found for name, found in branch_ids.items() if name != branch}
    # A deleted branch left its path; if a branch of another name may share it, it is not swept.
    former = {path_id for path_id in paths if layout.is_path_of(path_id, branch)} - others
    mine = {branch_ids[branch]} if branch in branch_ids else set()
    if not former | mine:
        raise NotFound(
            f"repository {repository.name!r} has no branch {branch!r}, and no deleted branch of that name"
            " left a path",
            fix=f"list the branches with '{repository.command} branch'",
        )
    return former | mine


def _sweep(store: Store, layout: Layout, decoder: RangeDecoder, path_id: str, rules: SweepRules) -> Sweep:
    """Decide whether a run can continue from the state that the last run left on a path."""
    path = layout.path(path_id)
    try:
        before = read_state(store, path, path_id)
    except BadState as bad:
        return Sweep(path_id, path, why_clean=f"the last run's state cannot be used: {bad}")
    clean = Sweep(path_id, path, newest_commit=before.newest_commit)
    if rules.clean:
        return replace(clean, why_clean="it was asked for")
    if before.optimized_runs + 1 >= rules.clean_every:
        return replace(clean, why_clean=f"one run in {rules.clean_every} is a clean one")
    try:
        # Decoded here in full, and so checked: when it is needed, it is too late to choose a clean run.
        if before.gc_commit is not None:
            for info in range_infos(decoder, STAGED, before.gc_commit):
                decoder.entries(STAGED, info)
    except MetadataError as broken:
        return replace(clean, why_clean=f"the last run's GC commit cannot be used: {broken.what}")
    return replace(clean, before=before)


def _with_partitions(store: Store, layout: Layout, sweep: Sweep) -> tuple[Sweep, list[str]]:
    """Return a sweep with its partitions, and the other folders beside them."""
    names = list(store.children(sweep.path))
    partitions = [name for name in names if name.endswith("/") and layout.partition_began(name[:-1])]
    chosen = tuple(sorted(name[:-1] for name in partitions if sweep.covers(name[:-1])))
    others = sorted({name for name in names if name.endswith("/")} - set(partitions))
    return replace(sweep, partitions=chosen), others


def _with_foreign(swept: Survey, store: Store, layout: Layout, inner: Sequence[str]) -> Survey:
    """Add everything in the namespace beside the partitions, so that every reference can be looked up."""
    levels = layout.levels
    inside = {METADATA, *levels}
    folders = [
        level + name
        for level in levels[:-1]
        for name in store.children(level)
        if name.endswith("/") and level + name not in inside
    ]
    branches = [sweep.path for sweep in swept.sweeps]
    return Survey(swept.sweeps, (*folders, *inner), (*levels, *branches), everything=True)


@dataclass(frozen=True)
class BranchState:
    """The path of a branch, as the last run left it."""

    branch_id: str
    gc_commit: str | None
    """The metarange of the staged entries of the branch; None if there were none."""
    staged: int
    last_partition: str | None
    """The oldest unsettled partition: the next run lists it and all newer ones."""
    newest_commit: str
    run_id: int
    optimized_runs: int
    """How many runs in a row did not list everything."""
    finished: bool = False
    """The branch was deleted and its path is empty: there is nothing left to sweep."""
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the state as JSON with a seal, so that a damaged one is not used."""
        plain = asdict(self)
        return json.dumps(plain | {"seal": _seal(plain)}, indent=2, sort_keys=True)


class BadState(Exception):
    """A state that cannot be used, and why."""


def state_from_json(text: str) -> BranchState:
    """Parse a state; BadState if it cannot be used."""
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
    """Return the key of the state on a path."""
    return f"{branch_path}_gc/state.json"


def read_state(store: Store, branch_path: str, branch_id: str) -> BranchState:
    """Read the state of a branch; BadState if there is none that can be used."""
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
    """Write a state for the next run, unless a later run has written one; a finished path needs none."""
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
    layout: Layout, partitions: Iterable[str], waiting: str | None, listed_at: datetime, uploads: timedelta
) -> str | None:
    """
    Return the oldest unsettled partition; None if there are no partitions at all.

    A partition receives new objects for its life, and an upload to an address in it may take as long as its
    token is valid. `waiting` is the oldest partition with an object that is too young to be garbage.
    """
    ordered = sorted(partitions)
    if not ordered:
        return waiting
    open_since = listed_at - layout.partition_life - uploads
    unsettled = [name for name in ordered if (layout.partition_began(name) or listed_at) >= open_since]
    # The newest always counts: without it the next run would take this for a first one.
    return max([*unsettled, *([waiting] if waiting else []), ordered[0]])


def states_to_json(states: Mapping[str, BranchState]) -> str:
    """Return the states of many branches, by path, as JSON to keep with a plan until it is applied."""
    return json.dumps({path: asdict(state) for path, state in sorted(states.items())}, sort_keys=True)


def states_from_json(text: str) -> dict[str, BranchState]:
    """Parse the states that were kept with a plan."""
    return {path: BranchState(**row) for path, row in json.loads(text).items()}


def _seal(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
