"""
The newest run: the state root names it, and the ledger must have the same run.

The ledger and the state root are two halves of one state, possibly on different machines. If only one of them
is restored from a backup, run numbers would be used twice, plans would be applied again after their items
were restored, and removed items and holds would be forgotten. So `newest-run.json` in the state root has the
number and the time of the newest run, and every plan, apply and restore compares it with the ledger::

    the ledger does not have that run, or another one of that number    the ledger is older
    the ledger has a later run with a plan                              the state root is older

A run is recorded in the ledger first. If the process is killed before the run is recorded here, the run has
no plan and no files, and does not count. A state root of an earlier version of Ebbtide gets the file when it
is first used.

A user who accepts the loss (`ebb state accept`) leaves an *acceptance* in the ledger: a run without a plan,
whose number is higher than any that was used. Plans before it cannot be applied, and outcomes before it may
be missing.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from ebbtide.core.errors import BadInput, MetadataError, SafetyStop, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.engine.files import write_durably
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import run_folder
from ebbtide.state.runs import Ledger, RunMark

FILE = "newest-run.json"
_ACCEPT = "continue with what there is: ebb state accept"


def check_newest_run(root: Path, ledger: Ledger) -> None:
    """Stop if the ledger or the state root was restored without the other."""
    with _locked(root):
        _check(root, ledger)


def begin_run(
    root: Path, ledger: Ledger, target: str, target_uid: str, collector: str, policy: str, now: datetime
) -> int:
    """Record a new run in the ledger and in the state root, and return its number, which is unused."""
    with _locked(root):
        _check(root, ledger)
        run_id = ledger.begin(target, target_uid, collector, policy, now)
        _write(root, ledger)
    return run_id


def check_applicable(root: Path, ledger: Ledger, manifest: Manifest) -> None:
    """Stop unless the ledger knows everything that was done by a plan and since then."""
    check_newest_run(root, ledger)
    run_id = manifest.run_id
    if run_id < ledger.acceptance():
        raise StalePlan(
            f"plan {run_id} was made before a restored ledger or state root was accepted",
            why="not all that was applied and restored since is known",
            fix=f"plan again: ebb plan {manifest.target}",
        )
    known = {
        run_folder(root, run_id).outcomes(batch, attempt).name
        for batch, attempts in ledger.batch_attempts(run_id).items()
        for attempt, _ in attempts
    }
    if unknown := sorted(set(outcome_names(root, run_id)) - known):
        raise SafetyStop(
            f"the ledger is older than the state root: it does not know {unknown[0]} of run {run_id}",
            why="the plan was applied before, and it is unknown what happened to its items since",
            fix=f"restore a newer copy of the ledger, or plan again: ebb plan {manifest.target}",
        )


def outcome_names(root: Path, run_id: int) -> list[str]:
    """List the folders of outcomes that a run has, whether or not the ledger knows them."""
    folder = run_folder(root, run_id).path / "outcomes"
    return [place.name for place in folder.iterdir()] if folder.is_dir() else []


def accept_restored(root: Path, ledger: Ledger) -> tuple[int, str]:
    """Accept that the ledger or the state root is older; return the number of the acceptance, and why."""
    with _locked(root):
        found = _difference(root, ledger)
        if not found:
            raise BadInput("the ledger and the state root agree", why="there is nothing to accept")
        newest = ledger.newest_run()
        used = max(_highest_folder(root), _named(root), newest.run_id if newest else 0)
        number = ledger.accept(used + 1, found)
        _write(root, ledger)
    return number, found


def _difference(root: Path, ledger: Ledger) -> str:
    """Return how the ledger and the state root differ; empty if they agree."""
    try:
        _check(root, ledger)
    except SafetyStop as stopped:
        return stopped.what
    lost = (RemovedTable(root, ledger, uid).lost() for uid in ledger.target_uids())
    return next(filter(None, lost), "")


def _check(root: Path, ledger: Ledger) -> None:
    mark, highest = _read(root), _highest_folder(root)
    newest = ledger.newest_run()
    if highest > (newest.run_id if newest else 0):
        raise _older_ledger(highest)
    if mark is None:
        _adopt(root, ledger)
        return
    if ledger.run_mark(mark.run_id) != mark:
        raise _older_ledger(mark.run_id)
    later = ledger.later_effect(mark.run_id)
    if later is not None:
        raise _older_root(later)


def _adopt(root: Path, ledger: Ledger) -> None:
    """Record the newest run in a state root of an earlier version, if it has the files of the last plan."""
    last = ledger.latest_plan()
    if last is not None and not run_folder(root, last).path.is_dir():
        raise _older_root(last)
    _write(root, ledger)


def _older_ledger(run_id: int) -> SafetyStop:
    return SafetyStop(
        f"the ledger is older than the state root: run {run_id} is missing in it, or is another run",
        why="it was restored from a backup, or 'ledger.url' names another one; numbers of runs would be used"
        " twice, and items that were restored would be deleted again",
        fix=f"restore a newer copy of the ledger or correct 'ledger.url', or {_ACCEPT}",
    )


def _older_root(run_id: int) -> SafetyStop:
    return SafetyStop(
        f"the state root is older than the ledger: it does not know run {run_id}",
        why="it was restored from a backup, or 'root' names another one; items that runs have removed and"
        " holds of restored items would be forgotten",
        fix=f"restore a newer copy of the state root or correct 'root', or {_ACCEPT}",
    )


def _highest_folder(root: Path) -> int:
    folder = root / "runs"
    names = [place.name for place in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=0)


def _named(root: Path) -> int:
    """Return the number in the record; 0 if it is missing or damaged."""
    try:
        mark = _read(root)
    except MetadataError:
        return 0
    return mark.run_id if mark else 0


def _read(root: Path) -> RunMark | None:
    try:
        said = json.loads((root / FILE).read_text(encoding="utf-8"))
        return RunMark(int(said["run_id"]), int(said["made_at"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as broken:
        raise MetadataError(
            f"{FILE} in the state root cannot be read",
            why="without it, it is unknown whether the ledger and the state root belong together",
            fix=f"restore {FILE} from a backup, or {_ACCEPT}",
        ) from broken


def _write(root: Path, ledger: Ledger) -> None:
    newest = ledger.newest_run()
    if newest is not None:
        write_durably(root / FILE, json.dumps(asdict(newest)))


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Let one process at a time begin a run or compare, because a run is recorded in two places."""
    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "newest-run.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
