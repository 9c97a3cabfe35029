"""
Crash everywhere: kill plan and apply after every single thing that they make durable, one by one.

    python -m tests.crash_everywhere [--steps] [first-plan] [apply] [second-plan]

It prints a line for each kill point and a total as JSON, and ends with 1 at the first thing that is wrong.
The points are the durable steps that a job reports, the deletes within a batch, and between them each write
to a table, a store, a database or a document, and each removal (`--steps` leaves these out). Without the
name of a job it is all of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.crashing import JOBS, Job, Scene, every_kill_point, make_scene, quick
from tests.services.executioner import Executioner
from tests.services.spark import OPTIONS

from ebbtide.engine.spark.session import spark_session


@contextmanager
def scenery() -> Iterator[Scene]:
    """Build the lake, with a Spark of its own, and clear all of it away afterwards."""
    with tempfile.TemporaryDirectory(prefix="ebbtide-crashes-") as name:
        base = Path(name)
        with (
            spark_session(OPTIONS, cache=base / "spark") as spark,
            Executioner(spark, base / "deaths.log") as executioner,
        ):
            scene = Scene(quick(spark), base / "lake", base / "pristine", executioner)
            make_scene(scene)
            yield scene


def say(line: str) -> None:
    """Print a line at once, for whoever waits."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def crash_everywhere(scene: Scene, jobs: Sequence[Job], *, fine: bool) -> dict[str, int]:
    """Kill these jobs at every moment; give how many of each were survived, up to the first that was not."""
    survived: dict[str, int] = {}
    for job in jobs:
        survived[job.name] = 0
        moments = scene.fine_moments(job) if fine else [*job.steps, *job.within]
        for death in every_kill_point(scene, job, moments, fine=fine):
            say(f"{death.job}, killed at {death.moment!r}: {'; '.join(death.wrong) or 'survived'}")
            if death.wrong:
                return survived | {"wrong": 1}
            survived[job.name] += 1
    return survived | {"wrong": 0}


def main(arguments: list[str]) -> int:
    """Crash everywhere and say how it went."""
    named = [name.replace("-", " ") for name in arguments if name != "--steps"]
    jobs = [job for job in JOBS if job.name in named] if named else JOBS
    begun = time.monotonic()
    with scenery() as scene:
        counts = crash_everywhere(scene, jobs, fine="--steps" not in arguments)
    wrong = counts.pop("wrong")
    total = {"kill_points_survived": sum(counts.values()), "by_job": counts, "wrong": wrong}
    say(json.dumps(total | {"seconds": round(time.monotonic() - begun)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
