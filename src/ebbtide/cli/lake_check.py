"""`ebb lake check`: is everything that a live reference names really there?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json, safe, say
from ebbtide.cli.state import State, instant
from ebbtide.core.errors import LiveObjectMissing
from ebbtide.core.format import count
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import scratch_folder
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.live_objects import LiveCheck, check_live
from ebbtide.targets.repository.policy import LakePolicy, parse_lake_policy
from ebbtide.targets.repository.world import world_of

app = typer.Typer(add_completion=False)


@app.command()
def check(
    context: typer.Context,
    repo: Annotated[str, typer.Argument(help="The repository.")],
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """List the store on the executors and check that every live object is there."""
    state: State = context.obj
    repository = shared_catalog(state).repository(repo)
    stored = shared_catalog(state).policy(repo)
    policy = parse_lake_policy(*stored) if stored else LakePolicy(())
    lake = CatalogRepository(shared_catalog(state), repo)
    world = world_of(lake, lake.snapshot(), policy, instant(now, state.clock))
    table = RemovedTable(state.root, state.ledger, repository.uid)
    with state.spark(master) as spark, scratch_folder(state.root) as scratch, own_errors():
        gone = table.snapshot(scratch.removed).gone(spark)
        found = check_live(
            spark, world, gone, lambda address: shared_catalog(state).reaped_because(repository.uid, address)
        )
    queue = shared_catalog(state).queue_counts(repository.uid)
    if as_json:
        print_json(asdict(found) | {"queue": queue})
    else:
        say(f"{count(found.live)} live objects, {count(found.listed)} listed beside them")
        say(f"{count(queue['waiting'])} wait to be reaped, {count(queue['fenced'])} are about to be")
    _judge(repo, found)


def _judge(repo: str, found: LiveCheck) -> None:
    if not found.missing_count:
        return
    for line in found.missing:
        say(f"missing: {safe(line)}")
    raise LiveObjectMissing(
        f"{found.missing_count} live objects of {repo} are not in the store",
        why="data is lost already, or the store and the catalog disagree about names",
        fix="find out which before any plan is applied",
    )
