"""`ebb lake reap` and `ebb lake queue`: delete unreferenced objects online, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from time import sleep
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput, PartlyApplied
from ebbtide.core.format import plural
from ebbtide.core.instant import format_instant, format_second
from ebbtide.targets.lake.catalog.reclaim_batches import ReclaimTarget
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.lake.reaper import Reaped, Reaper, ReapOptions, StoreRemover

Repo = Annotated[str | None, typer.Argument(help="The repository, or one that was deleted.")]
Grace = Annotated[
    float | None, typer.Option("--grace", min=0, help="Hours in the queue before an object goes.")
]
SHOWN = 50

app = typer.Typer(add_completion=False)


@app.command()
def reap(
    context: typer.Context,
    repo: Repo = None,
    every: Annotated[bool, typer.Option("--all", help="All repositories, deleted ones too.")] = False,
    watch: Annotated[
        float | None, typer.Option("--watch", min=0.1, help="Repeat forever, with this many seconds between.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Objects in a batch.")] = None,
    grace: Grace = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the objects that would be deleted; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete objects that have no references and waited long enough in the queue."""
    state: State = context.obj
    options = _options(state, batch, grace)
    _check_which(repo, every=every)
    if dry_run:
        _rehearse(state, _targets(state, repo), options, as_json=as_json)
        return
    deletes = state.settings.deletes
    reaper = Reaper(shared_catalog(state), options, StoreRemover(deletes.rate_per_prefix, deletes.page))
    # With one repository and one pass an error ends the command; otherwise the others continue.
    work = reaper.reap if watch is None and not every else reaper.try_reap
    while True:
        done = [work(target) for target in _targets(state, repo)]
        if watch is None:
            _report(done, as_json=as_json)
            _judge(done)
            return
        if as_json:
            print(
                json.dumps([_plain(one) for one in done if one.batches or one.needed or one.stopped]),
                flush=True,
            )
        else:
            _report([one for one in done if one.batches or one.stopped], as_json=False)
        sleep(watch)


@app.command()
def queue(
    context: typer.Context,
    repo: Annotated[str, typer.Argument(help="The repository, or one that was deleted.")],
    grace: Grace = None,
    as_json: AsJson = False,
) -> None:
    """Show which objects wait to be deleted, why, and since when they may be."""
    state: State = context.obj
    options = _options(state, None, grace)
    target = shared_catalog(state).reclaim_target(repo)
    rows = shared_catalog(state).reclaim_queue(target)
    shown, write = (rows, format_instant) if as_json else (islice(rows, SHOWN), format_second)
    found = [
        {
            "address": row.address,
            "reason": row.reason,
            "state": row.state,
            "queued": write(row.queued),
            "due": write(max(row.queued + options.grace, row.again)),
            "problem": row.problem,
        }
        for row in shown
    ]
    if as_json:
        print_json(found)
        return
    if not found:
        say(f"nothing waits in the queue of {safe(repo)}")
        return
    columns = ("state", "reason", "queued", "due", "address", "problem")
    table(f"Queue of {repo}", columns, [[one[name] for name in columns] for one in found])
    if next(rows, None) is not None:
        say(f"and more; the first {SHOWN} are shown, --json gives all")


def _options(state: State, batch: int | None, grace: float | None) -> ReapOptions:
    settings = state.settings.reaper
    hours = settings.grace_hours if grace is None else grace
    return ReapOptions(
        grace=timedelta(hours=hours),
        batch=batch or settings.batch,
        remember=timedelta(days=settings.remember_days),
    )


def _check_which(repo: str | None, *, every: bool) -> None:
    if every == (repo is not None):
        raise BadInput(
            "reap needs a repository or --all" if repo is None else f"{repo!r} and --all are both given",
            fix="name a repository, or use --all",
        )


def _targets(state: State, repo: str | None) -> Sequence[ReclaimTarget]:
    return (
        shared_catalog(state).reclaim_targets()
        if repo is None
        else [shared_catalog(state).reclaim_target(repo)]
    )


def _rehearse(state: State, targets: Sequence[ReclaimTarget], options: ReapOptions, *, as_json: bool) -> None:
    """Print the size of the next batch of each repository."""
    found = {
        target.name: shared_catalog(state).due_batch(target, limit=options.batch, grace=options.grace)
        for target in targets
    }
    if as_json:
        print_json(found)
        return
    for name, batch in found.items():
        say(
            f"{safe(name)}: {plural(len(batch.addresses), 'object')} would go in the next batch, of which"
            f" {batch.taken_over} are fenced already; {batch.needed} would leave the queue, being needed"
        )


def _report(done: Sequence[Reaped], *, as_json: bool) -> None:
    if as_json:
        print_json([_plain(one) for one in done])
        return
    for one in done:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(one.outcomes.items()))
        counts = counts or ("stopped" if one.stopped else "nothing due")
        say(f"{safe(one.repository)}: {counts}; {one.needed} still needed")
        for problem in (*one.problems, *filter(None, [one.stopped])):
            say(f"  {safe(problem)}")


def _plain(one: Reaped) -> dict[str, Any]:
    return {
        "repository": one.repository,
        "outcomes": dict(one.outcomes),
        "needed": one.needed,
        "taken_over": one.taken_over,
        "batches": one.batches,
        "problems": one.problems,
        "stopped": one.stopped,
    }


def _judge(done: Sequence[Reaped]) -> None:
    failed = sum(one.failed for one in done)
    stopped = [one.repository for one in done if one.stopped]
    if stopped:
        raise PartlyApplied(
            f"{plural(len(stopped), 'repository', 'repositories')} could not be reaped: {', '.join(stopped)}",
            why="the reasons are above; all other repositories were reaped",
            fix="correct them, and reap again",
        )
    if failed:
        raise PartlyApplied(
            f"{plural(failed, 'object')} could not be deleted",
            why="the store failed or refused; they stay fenced, so no reference to them can be added",
            fix="see the reasons above; the next reap after a few minutes tries them again",
        )
