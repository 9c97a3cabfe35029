"""Plans for a registry that the commands of `ebb image` make."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.planning import plan_or_ask, run_plan
from ebbtide.cli.state import State
from ebbtide.core.manifest import Manifest
from ebbtide.targets.oci.purge.wanted import Wanted

RunningImages = Annotated[
    str | None,
    typer.Option(
        "--running",
        help="What runs: a file (kubectl get pods -A -o json, or a list) or a cluster, https://HOST (oci:).",
    ),
]


def plan_purge(
    state: State, target: str, running: str | None, master: str | None, *, as_json: bool
) -> Manifest:
    """Plan what has expired in a registry."""
    now, registry = state.clock(), state.registry(target)
    given = {} if running is None else {"running": running}
    return plan_or_ask(
        state, lambda options: registry.collector(options, now), given, master, now, as_json=as_json
    )


def plan_wanted(
    state: State, target: str, running: str | None, master: str | None, wanted: Wanted
) -> Manifest:
    """Plan the delete of what is wanted, and of nothing else."""
    now = state.clock()
    return run_plan(state, state.registry(target).purge(now, running, wanted), master, now)


def plan_image_bin(state: State, target: str, master: str | None) -> Manifest:
    """Plan what has expired in the bin of a registry."""
    return run_plan(state, state.registry(target).bin_collector(), master, state.clock())
