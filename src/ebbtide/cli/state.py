"""The state of one command, each part made when it is first needed: settings, clock, ledger, Spark."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ebbtide.cli.console import mark_output
from ebbtide.config import NOW_VARIABLE, Settings, load_settings
from ebbtide.core.errors import (
    BadInput,
    EbbtideError,
    EnvironmentProblem,
    NotFound,
    SafetyStop,
)
from ebbtide.core.instant import Clock, format_duration, format_second, parse_instant, system_clock
from ebbtide.engine.rehearsal import Rehearsal, RehearsalClock, find_rehearsal
from ebbtide.storage.network import check_answers
from ebbtide.targets.kinds import kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.core.breaker import BreakerLimits
    from ebbtide.engine.apply import ApplyOptions
    from ebbtide.engine.collector import Context
    from ebbtide.engine.plan import PlanOptions
    from ebbtide.state.runs import Ledger
    from ebbtide.targets.target import Closeable, Shared, Target

# ruff: noqa: PLC0415 - a command that needs no Spark must not wait for its import


LATEST = "latest"
WRITTEN_BY_HAND = 1000
"""As many items as a world in a file that a user wrote may have."""
QUIET = "warning"
"""The level of the log at which runs write nothing."""


class State:
    """The wiring of one command."""

    def __init__(self, config: Path | None = None) -> None:
        self._config = config
        self._shared: dict[str, Closeable] = {}
        self._log = ExitStack()

    @cached_property
    def settings(self) -> Settings:
        """The configuration, checked."""
        return load_settings(self._config)

    @property
    def root(self) -> Path:
        """The state root."""
        return self.settings.root

    def close(self) -> None:
        """Close the databases that were opened, so that they can be copied when the command has ended."""
        for one in self._shared.values():
            one.close()
        if "ledger" in self.__dict__:
            self.ledger.close()
        self._log.close()

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """Return the object of a name, or make it; it is closed when the command ends."""
        if name not in self._shared:
            self._shared[name] = make()
        return cast("Shared", self._shared[name])

    def warn(self, warning: str) -> None:
        """Print a warning that does not stop the command."""
        print(f"warning: {warning}", file=sys.stderr)

    def announce(self, *, takes_now: bool) -> None:
        """Start the log, and print on standard error what a user must know about the clock."""
        if os.environ.get(NOW_VARIABLE) and not takes_now:
            print(
                f"warning: {NOW_VARIABLE} is ignored: this command uses the machine's clock"
                " (only commands with --now, such as 'ebb plan', take it)",
                file=sys.stderr,
            )
        with suppress(EbbtideError):  # A command that needs the settings reports what is wrong with them.
            mark_output(rehearsal=self.rehearsal is not None)
            if self.rehearsal is not None:
                ahead, now = (
                    format_duration(self.rehearsal.ahead),
                    format_second(self.clock()),
                )
                print(f"rehearsal: it is {now}, {ahead} ahead of the machine's clock", file=sys.stderr)
        self._start_log()

    def _start_log(self) -> None:
        """Write the log that the settings ask for until the command ends; by default there is none."""
        try:
            wanted = self.settings.log
        except EbbtideError:
            return
        if wanted.level != QUIET:
            from ebbtide.engine.log import logged_to

            path = Path(wanted.file) if wanted.file else None
            self._log.enter_context(logged_to(wanted.level, as_json=wanted.format == "json", path=path))

    @cached_property
    def rehearsal(self) -> Rehearsal | None:
        """The rehearsal if the root is one; None in a real root."""
        return find_rehearsal(self.root)

    @property
    def clock(self) -> Clock:
        """The clock of all that is changed or recorded: the machine's; only in a rehearsal it is ahead."""
        if self.rehearsal is not None:
            return RehearsalClock(self.root, system_clock)
        return system_clock

    @property
    def is_rehearsal(self) -> bool:
        """Whether the root is a rehearsal."""
        return self.rehearsal is not None

    @property
    def context(self) -> Context:
        """The state that runs work with."""
        from ebbtide.engine.collector import Context

        return Context(self.root, self.ledger, self.clock)

    @cached_property
    def ledger(self) -> Ledger:
        """The run ledger."""
        from ebbtide.state.runs import Ledger

        rehearsal = self.rehearsal is not None
        return Ledger(self.settings.database("ledger"), clock=self.clock, rehearsal=rehearsal)

    def target(self, url: str) -> Target:
        """Open a target by its URL."""
        kind = kind_of(url)
        return kind.open(kind.url(url), self)

    @contextmanager
    def spark(self, master: str | None = None, items: int | None = None) -> Iterator[SparkSession]:
        """Start Spark for the block, tuned for little work if so many items are few; None is unknown."""
        from ebbtide.engine.cluster_check import session_proof
        from ebbtide.engine.spark.latency import is_small
        from ebbtide.engine.spark.session import SparkOptions, spark_session

        spark = self.settings.spark
        chosen = master or spark.master
        if self.rehearsal is not None and not chosen.startswith("local"):
            raise SafetyStop(
                f"the Spark master {chosen} is not on this machine",
                why="this is a rehearsal, and its local data is not local to a cluster",
                fix="leave out --master and spark.master, or use a real root",
            )
        if chosen.startswith("spark://") and "," not in chosen:
            check_answers(chosen, "the Spark master", EnvironmentProblem)
        self.root.mkdir(parents=True, exist_ok=True)
        with session_proof(self.root, chosen) as proof:
            options = SparkOptions(
                master=chosen,
                driver_memory=spark.driver_memory,
                java=spark.java,
                java_options=spark.java_options,
                shuffle_partitions=spark.shuffle_partitions,
                is_small=is_small(items),
                conf={**spark.conf, **proof},
            )
            with spark_session(options, cache=self.root) as session:
                yield session

    @property
    def limits(self) -> BreakerLimits:
        """The breaker's limits."""
        from ebbtide.core.breaker import BreakerLimits

        return BreakerLimits(**self.settings.breaker.model_dump())

    @property
    def plan_options(self) -> PlanOptions:
        """How plans are cut."""
        from ebbtide.engine.plan import PlanOptions

        return PlanOptions(batch_size=self.settings.deletes.batch_size, limits=self.limits)

    def apply_options(self, *, override_breaker: bool) -> ApplyOptions:
        """How plans are applied."""
        from ebbtide.engine.actor import DeleteOptions
        from ebbtide.engine.apply import ApplyOptions

        deletes = self.settings.deletes
        return ApplyOptions(
            limits=self.limits,
            override_breaker=override_breaker,
            max_plan_age=timedelta(days=self.settings.plans.max_age_days),
            deletes=DeleteOptions(deletes.rate_per_prefix, deletes.page, deletes.tasks),
        )

    def command(self, *words: object) -> str:
        """Write a command that works from here, so that it can be pasted into a shell."""
        config = [] if self._config is None else ["--config", str(self._config)]
        return shlex.join(["ebb", *config, *(str(word) for word in words)])

    def run_id(self, plan: str) -> int:
        """Read a PLAN argument: a run's number, `latest`, `TARGET:latest`, or the folder of a plan."""
        if plan == LATEST:
            return self._last_plan(None)
        target, colon, last = plan.rpartition(":")
        if colon and last == LATEST:
            return self._last_plan(target)
        if plan.isdigit():
            return int(plan)
        folder = Path(plan)
        if folder.is_dir():
            from ebbtide.engine.run_folder import RunFolder

            manifest = RunFolder(folder).read_manifest()
            if folder.absolute().parent != (self.root / "runs").absolute():
                raise BadInput(
                    f"{plan} is not under this state root", fix="go to the folder that made the plan"
                )
            return manifest.run_id
        raise BadInput(
            f"{plan!r} names no plan", fix="give a run's number (see 'ebb runs'), 'latest' or TARGET:latest"
        )

    def _last_plan(self, target: str | None) -> int:
        """Find the last plan, of a target or of all."""
        url = None if target is None else kind_of(target).url(target)
        last = self.ledger.latest_plan(url)
        if last is None:
            of = "" if target is None else f" for {target}"
            fix = f"make one with '{self.command('plan', url or 'lake:REPO')}'"
            raise NotFound(f"there is no plan{of} yet", fix=fix)
        return last


def instant(text: str | None, clock: Clock) -> datetime:
    """Read a --now option; without one it is now."""
    return parse_instant(text) if text else clock()
