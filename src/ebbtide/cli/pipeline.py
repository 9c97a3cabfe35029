"""Running the engine from the command line: checks, Spark, progress, and confirmation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial

import typer

from ebbtide.cli.console import print_json, progress, safe, say, table
from ebbtide.cli.state import State
from ebbtide.core.display import ConfirmationNeeded, Table
from ebbtide.core.manifest import Manifest
from ebbtide.engine.collector import Collector
from ebbtide.engine.newest_run import check_newest_run
from ebbtide.engine.plan import plan
from ebbtide.engine.workload import items_to_plan
from ebbtide.state.locks import target_lock
from ebbtide.targets.target import Options


def check_ready(state: State, collector: Collector) -> None:
    """Refuse a target whose store or registry does not answer, or that another run has locked."""
    collector.check_ready()
    check_free(state, collector.identity.uid)


def check_free(state: State, target_uid: str) -> None:
    """Take the target's lock and release it; the run takes it again when it begins."""
    check_newest_run(state.root, state.ledger)
    with target_lock(state.root, target_uid, "a check"):
        pass


def run_plan(state: State, collector: Collector, master: str | None, now: datetime) -> Manifest:
    """Check the target, and make a plan as of `now`; Spark is started for its size."""
    collector.check_ready()
    context, options = state.context, state.plan_options
    start = partial(state.spark, master, items_to_plan(context, collector))
    with progress() as report:
        return plan(start, context, collector, now=now, options=options, on_progress=report)


def plan_or_ask(
    state: State,
    make: Callable[[Options], Collector],
    options: Options,
    master: str | None,
    now: datetime,
    *,
    as_json: bool,
) -> Manifest:
    """Make a plan. If a table has to be confirmed first, show it, and ask if there is a terminal."""
    try:
        return run_plan(state, make(options), master, now)
    except ConfirmationNeeded as needed:
        if as_json:
            print_json(needed.plain)
            raise
        show_table(needed.table)
        if not (sys.stdin.isatty() and typer.confirm("Confirm?")):
            raise
        return run_plan(state, make({**options, needed.option: True}), master, now)


def show_table(shown: Table) -> None:
    """Print a table that a target made."""
    table(safe(shown.title), shown.columns, list(shown.rows), numbers=shown.numbers)
    if shown.footer:
        say(safe(shown.footer))
