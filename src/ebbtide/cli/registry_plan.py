"""What `ebb plan oci://HOST` takes: what runs, and whether the bin is meant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer

from ebbtide.cli.console import progress
from ebbtide.cli.state import State
from ebbtide.errors import BadInput
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.purge.job import plan_bin, plan_registry
from ebbtide.registry.purge.order import PurgeOrder
from ebbtide.registry.purge.wanted import Wanted

RunningImages = Annotated[
    str | None,
    typer.Option(
        "--running",
        help="What runs: a file (kubectl get pods -A -o json, or a list) or a cluster, https://HOST (oci:).",
    ),
]
Bin = Annotated[
    bool, typer.Option("--bin", help="Plan what has been in the recycle bin for its days, and nothing else.")
]


@dataclass(frozen=True)
class RegistryChoice:
    """What a purge is told besides its target."""

    running: str | None = None
    bin: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was said."""
        return self == RegistryChoice()


def purge_order(state: State, target: str, running: str | None, wanted: Wanted | None = None) -> PurgeOrder:
    """Put together what decides a purge: the stored policies, and what runs."""
    from ebbtide.registry.pods import running_from  # noqa: PLC0415 (httpx takes a while to load)

    shop, settings = state.registry_shop(target), state.settings.registry
    source = running or settings.running
    return PurgeOrder(
        shop.records.policies(shop.uid),
        None if source is None else running_from(source, state.clock),
        timedelta(hours=settings.oldest_scan_hours),
        wanted,
    )


def make_registry_plan(
    state: State,
    target: str,
    choice: RegistryChoice,
    master: str | None,
    wanted: Wanted | None = None,
) -> Manifest:
    """Make a plan for a registry, or for its bin."""
    shop = state.registry_shop(target)
    if choice.bin and choice.running is not None:
        raise BadInput("what runs does not matter to the bin", fix="leave out --running or --bin")
    order = None if choice.bin else purge_order(state, target, choice.running, wanted)
    with state.spark(master) as spark, progress() as report:
        if order is None:
            return plan_bin(spark, shop, now=state.clock(), options=state.freeze_options, on_progress=report)
        return plan_registry(
            spark, shop, order, now=state.clock(), options=state.freeze_options, on_progress=report
        )
