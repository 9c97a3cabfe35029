"""`ebb simulate`: what rules would do to a small world that is written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json
from ebbtide.cli.lazy import lazy_group
from ebbtide.cli.pipeline import show_table
from ebbtide.cli.state import WRITTEN_BY_HAND, State, instant
from ebbtide.cli.target_options import with_options
from ebbtide.targets.kinds import simulated_kinds
from ebbtide.targets.target import Options, Simulation, TargetKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _command(name: str, kind: TargetKind) -> Any:
    """Make the command of one kind of target; only now its simulation is imported."""
    simulation = kind.simulation()
    if simulation is None:
        raise AssertionError(f"{kind.usage} names a world and has no simulation")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @with_options(simulation.inputs)
    def simulate(
        context: typer.Context,
        now: Now = None,
        master: Master = None,
        as_json: AsJson = False,
        *,
        given: Options,
    ) -> None:
        _simulate(context.obj, simulation, given, now, master, as_json=as_json)

    app.command(name, help=simulation.help)(simulate)
    return typer.main.get_command(app)


app = lazy_group(
    {
        name: (partial(_command, name, kind), f"Decide about {kind.plural} written by hand.")
        for name, kind in simulated_kinds().items()
    },
    help="Run the pipeline on a small world written by hand.",
)


@app.callback()
def _group() -> None:
    """Run the pipeline on a small world written by hand."""


def _simulate(
    state: State,
    simulation: Simulation,
    given: Options,
    now: str | None,
    master: str | None,
    *,
    as_json: bool,
) -> None:
    found = simulation.run(given, instant(now, state.clock), state, partial(_spark, state, master))
    if not as_json:
        for table in found.tables:
            show_table(table)
    elif found.as_lines:
        for row in found.plain:
            print(json.dumps(row, ensure_ascii=False))
    else:
        print_json(found.plain)


@contextmanager
def _spark(state: State, master: str | None) -> Iterator[SparkSession]:
    from ebbtide.engine.spark.failures import own_errors  # noqa: PLC0415 (a registry needs no Spark)

    with state.spark(master, WRITTEN_BY_HAND) as spark, own_errors():
        yield spark
