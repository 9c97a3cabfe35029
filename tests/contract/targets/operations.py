"""
What operators do with a target of any kind: plan, apply and restore, here or in a process that is killed.

`work` is what the children of `tests.services.doomed` do. A child opens everything anew in the state root
that it is told, as a command does.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from tests.services.doomed import Moments, session
from tests.services.lake import SettableClock
from tests.toy_target.installation import ship_code

from ebbtide.cli.state import State
from ebbtide.core.manifest import Manifest
from ebbtide.engine import apply as applying
from ebbtide.engine.actor import Actor, act_on_rows
from ebbtide.engine.apply import Applied, ApplyOptions, apply
from ebbtide.engine.plan import PlanOptions, plan
from ebbtide.engine.restore import Restored, restore
from ebbtide.engine.run_folder import OnStep, run_folder
from ebbtide.targets.target import Options, Target, bin_of

WORK = f"{__name__}:work"
ITEM = "item done"
"""The moment within a batch, or a page of a restore: one item is done, and nothing says so yet."""
SETTINGS = "ebbtide.toml"


class Workplace(State):
    """The place that a command works in, with a clock that tests set."""

    def __init__(self, folder: Path, clock: SettableClock) -> None:
        super().__init__(folder / SETTINGS)
        self._clock = clock

    @property
    def clock(self) -> SettableClock:
        """The clock that stands still until a test moves it."""
        return self._clock


def make_plan(
    spark: Any, target: Target, options: Options, now: datetime, batch_size: int, on_step: OnStep
) -> Manifest:
    """Make a plan as of a time."""
    collector, size = target.collector(options, now), PlanOptions(batch_size)
    return plan(spark, target.context, collector, now=now, options=size, on_step=on_step)


def apply_plan(
    spark: Any, target: Target, manifest: Manifest, on_step: OnStep, *, override_breaker: bool = True
) -> Applied:
    """Apply a plan, however large it is unless the breaker shall look."""
    collector, options = target.collector_of(manifest), ApplyOptions(override_breaker=override_breaker)
    return apply(spark, target.context, collector, manifest, options=options, on_step=on_step)


def restore_run(target: Target, manifest: Manifest, on_step: OnStep) -> Restored:
    """Restore everything that a run set aside."""
    own_bin = bin_of(target)
    return restore(own_bin, own_bin.choice_of(manifest, ()), on_step)


def kind_of_step(step: str) -> str:
    """Name a step without the number of its batch or page."""
    return re.sub(r"\d+", "N", step)


@dataclass(frozen=True)
class Fatal:
    """An actor on an executor which, when its first item is done, kills the driver and then itself."""

    actor: Actor
    driver: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Act on one row after the other, up to the first outcome, which never gets to the driver."""
        rows = (batch.slice(number, 1) for batch in batches for number in range(batch.num_rows))
        for outcome in self.actor(rows):
            with suppress(ProcessLookupError):  # the other executor was faster
                os.kill(self.driver, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
            yield outcome


def die_within_a_batch() -> None:
    """Let the next batch be the end of this process."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    driver = os.getpid()

    def act(rows: Any, make_actor: Any, *others: Any, **options: Any) -> Any:
        return act_on_rows(rows, lambda attempt: Fatal(make_actor(attempt), driver), *others, **options)

    applying.act_on_rows = act


def come_to_each_item(own_bin: Any, moments: Moments) -> None:
    """Make a moment of every item that a restore brings back."""
    plain = type(own_bin).bring_back

    def bring_back(self: Any, page: Iterable[Any], choice: Any) -> Iterator[Any]:
        for item in page:
            yield from plain(self, [item], choice)
            moments.step(ITEM)

    type(own_bin).bring_back = bring_back


def work(order: dict[str, Any], told: int) -> None:
    """Plan, apply or restore, and die at the first moment that no process before has died at."""
    named = (lambda step: step) if order["each_step"] else kind_of_step
    moments = Moments(told, lambda step: named(step) not in order["survived"])
    if order["url"].startswith("files:"):
        ship_code()
    clock = SettableClock(datetime.fromisoformat(order["now"]))
    place = Workplace(Path(order["folder"]), clock)
    target = place.target(order["url"])
    if order["what"] == "plan":
        make_plan(session(order), target, order["options"], clock(), order["batch_size"], moments.step)
        return
    manifest = run_folder(place.root, order["run_id"]).read_manifest()
    if order["what"] == "restore":
        come_to_each_item(bin_of(target), moments)
        restore_run(target, manifest, moments.step)
        return
    if "batch N started" in map(kind_of_step, order["survived"]) and ITEM not in order["survived"]:
        die_within_a_batch()
    apply_plan(session(order), target, manifest, moments.step)
