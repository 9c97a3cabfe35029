"""Sweeps: which branches' paths a run looks at, and how far down each has to be listed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.names import path_safe
from ebbtide.targets.lake.catalog.partitions import BRANCHES, branch_path, partition_began, repository_path
from ebbtide.targets.lake.catalog.ranges import METADATA, STAGED, read_metarange, read_range
from ebbtide.targets.lake.rulebook import SweepRules
from ebbtide.targets.lake.uncommitted.state import BadState, BranchState, read_state

SIDE_BY_SIDE = 16
"""So many branches are looked at at once: a store answers many small questions as fast as one."""
_UID = re.compile(r"[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True)
class Sweep:
    """One branch's path: all its partitions, or those from the newest down to where the last run has read."""

    branch_id: str
    path: str
    before: BranchState | None = None
    """What the last run left; None is a clean run."""
    why_clean: str = ""
    newest_commit: str | None = None
    """The newest commit that an earlier run has seen, whether or not the rest of its state is used."""
    partitions: tuple[str, ...] = ()
    """What is to be listed, the newest first."""

    @property
    def is_clean(self) -> bool:
        """Tell whether everything is listed."""
        return self.before is None

    def covers(self, partition: str) -> bool:
        """Tell whether a partition is among those to be listed, whether or not it is there."""
        last = self.before.last_partition if self.before else None
        return last is None or partition <= last


@dataclass(frozen=True)
class Survey:
    """What there is to be listed."""

    sweeps: tuple[Sweep, ...]
    foreign_folders: tuple[str, ...] = ()
    """Folders that no branch wrote to: live objects may lie there, garbage is never looked for."""
    foreign_levels: tuple[str, ...] = ()
    """Folders whose own files alone are meant: those on the way down to partitions."""
    everything: bool = False
    """The whole namespace is listed, so every reference inside it must be met."""

    @property
    def is_clean(self) -> bool:
        """Tell whether no sweep relies on an earlier run."""
        return all(sweep.is_clean for sweep in self.sweeps)


def survey(store: Store, repository: Repository, branch_ids: Mapping[str, str], rules: SweepRules) -> Survey:
    """Find the branches' paths and their partitions; `branch_ids` are those of the branches there are now."""
    wanted = _branch_ids(store, repository, branch_ids, rules.branch)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        looked = pool.map(lambda branch_id: _sweep(store, repository, branch_id, rules), sorted(wanted))
        found = list(pool.map(lambda sweep: _with_partitions(store, sweep), looked))
    swept = Survey(tuple(sweep for sweep, _ in found))
    if rules.branch is not None or not swept.is_clean:
        return swept
    inner = [sweep.path + name for sweep, others in found for name in others]
    return _with_foreign(swept, store, repository, inner)


def _branch_ids(
    store: Store, repository: Repository, branch_ids: Mapping[str, str], branch: str | None
) -> set[str]:
    """Name the folders to sweep: of all branches that ever wrote, or of all that ever had one name."""
    place = repository_path(repository.uid) + BRANCHES
    folders = {name.removesuffix("/") for name in store.children(place) if name.endswith("/")}
    if branch is None:
        return folders | set(branch_ids.values())
    others = {found for name, found in branch_ids.items() if name != branch}
    stem = path_safe(branch, "")
    # A branch that was deleted left its folder; one of another name may share it, and then it is spared.
    former = {
        name for name in folders if name.startswith(stem) and _UID.fullmatch(name[len(stem) :])
    } - others
    mine = {branch_ids[branch]} if branch in branch_ids else set()
    if not former | mine:
        raise NotFound(
            f"repository {repository.name!r} has no branch {branch!r}, and none of that name left a path",
            fix="list the branches that there are with 'ebb lake branch'",
        )
    return former | mine


def _sweep(store: Store, repository: Repository, branch_id: str, rules: SweepRules) -> Sweep:
    """Decide whether what the last run left of a branch can be built on."""
    path = branch_path(repository.uid, branch_id)
    try:
        before = read_state(store, path, branch_id)
    except BadState as bad:
        return Sweep(branch_id, path, why_clean=f"the last run's state cannot be used: {bad}")
    clean = Sweep(branch_id, path, newest_commit=before.newest_commit)
    if rules.clean:
        return replace(clean, why_clean="it was asked for")
    if before.optimized_runs + 1 >= rules.clean_every:
        return replace(clean, why_clean=f"one run in {rules.clean_every} is a clean one")
    try:
        # Read here in full, and checked against its names: later it would be too late for a clean run.
        for info in read_metarange(store, STAGED, before.gc_commit) if before.gc_commit else ():
            read_range(store, STAGED, info, ["key"])
    except MetadataError as broken:
        return replace(clean, why_clean=f"the last run's GC commit cannot be used: {broken.what}")
    return replace(clean, before=before)


def _with_partitions(store: Store, sweep: Sweep) -> tuple[Sweep, list[str]]:
    """List the partitions of a branch that are to be listed, and what else lies beside them."""
    names = list(store.children(sweep.path))
    partitions = [name for name in names if name.endswith("/") and partition_began(name[:-1])]
    chosen = tuple(sorted(name[:-1] for name in partitions if sweep.covers(name[:-1])))
    others = sorted({name for name in names if name.endswith("/")} - set(partitions))
    return replace(sweep, partitions=chosen), others


def _with_foreign(swept: Survey, store: Store, repository: Repository, inner: Sequence[str]) -> Survey:
    """Find all that lies in the namespace beside the partitions, so that every reference can be met."""
    home = repository_path(repository.uid)
    levels = ["", "repos/", home, home + BRANCHES]
    inside = {METADATA, *levels}
    folders = [
        level + name
        for level in levels[:-1]
        for name in store.children(level)
        if name.endswith("/") and level + name not in inside
    ]
    branches = [sweep.path for sweep in swept.sweeps]
    return Survey(swept.sweeps, (*folders, *inner), (*levels, *branches), everything=True)
