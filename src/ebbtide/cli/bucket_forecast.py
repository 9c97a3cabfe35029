"""`ebb bucket forecast`: what the rules will do in the coming days."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from ebbtide.cli.bucket_rules import Bucket
from ebbtide.cli.console import AsJson, Master, Now, print_json, progress, safe, say, table
from ebbtide.cli.state import State, instant
from ebbtide.core.format import count, human_bytes
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import scratch_folder
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.s3.context import BucketContext, EffectiveRules, Source
from ebbtide.targets.s3.forecast import forecast as foresee
from ebbtide.targets.s3.kind import bucket_context
from ebbtide.targets.s3.nested import excluded_locations
from ebbtide.targets.s3.planner import BucketPlanner
from ebbtide.targets.s3.target import BucketTarget

RulesFrom = Annotated[
    Source | None,
    typer.Option("--rules-from", help="Whose rules: 'stored' are Ebbtide's, 'bucket' those that S3 has."),
]
RulesFile = Annotated[
    str | None, typer.Option("--rules", help="A file with the rules; nothing is stored (s3://...).")
]
Inventory = Annotated[
    str | None,
    typer.Option(
        "--inventory", help="Read this S3 Inventory report (manifest.json), do not list (s3://...)."
    ),
]
_MOST_DAYS = 3650

app = typer.Typer(add_completion=False)


def rules_of(
    state: State, url: str, rules_from: Source | None, rules: str | None
) -> tuple[BucketContext, EffectiveRules]:
    """Read the rules that a command is about."""
    opened = bucket_context(state, url)
    return opened, BucketTarget(opened, state.settings).rules({"rules_from": rules_from, "rules": rules})


@app.command()
def forecast(
    context: typer.Context,
    bucket: Bucket,
    days: Annotated[
        int, typer.Option("--days", min=0, max=_MOST_DAYS, help="How many days to look ahead.")
    ] = 30,
    rules_from: RulesFrom = None,
    rules: RulesFile = None,
    inventory: Inventory = None,
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Show, day by day, what the rules will do if the bucket does not change. Nothing is changed."""
    state: State = context.obj
    opened, sourced = rules_of(state, bucket, rules_from, rules)
    moment = instant(now, state.clock)
    last = moment + timedelta(days=days)
    with (
        state.spark(master) as spark,
        progress() as report,
        scratch_folder(state.root) as folder,
        own_errors(),
    ):
        removed = RemovedTable(state.root, state.ledger, opened.uid).snapshot(folder.removed)
        planner = BucketPlanner(
            spark, opened.spec, sourced, last, inventory, on_progress=report, removed=removed
        )
        coming = foresee(planner.verdicts(planner.inventory(folder)[0]), moment, sourced.versioning)
    if as_json:
        print_json(coming)
        return
    rows = [
        (c.day, c.action, c.rule_id, count(c.objects), human_bytes(c.bytes), human_bytes(c.freed))
        for c in coming
    ]
    columns = ("day", "action", "rule", "items", "bytes", "freed")
    table(f"Until {last.date()}", columns, rows, numbers=(3, 4, 5))
    for one in excluded_locations(sourced.nested, sourced.configuration):
        say(f"left out {safe(one.label)}: no rule is only for it")
