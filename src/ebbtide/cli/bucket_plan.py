"""What `ebb plan s3://BUCKET` and `ebb bucket forecast` share: whose rules, and what is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer

from ebbtide.bucket.enclosed import left_out
from ebbtide.bucket.forecasting import forecast as foresee
from ebbtide.bucket.job import plan_bucket
from ebbtide.bucket.planning import BucketPlanner
from ebbtide.bucket.sources import Source, Sourced
from ebbtide.cli.bucket_rules import Bucket, read_rules_file
from ebbtide.cli.console import AsJson, Master, Now, print_json, progress, safe, say, table
from ebbtide.cli.state import State
from ebbtide.engine.layout import scratch_folder
from ebbtide.errors import BadInput
from ebbtide.plan.manifest import Manifest
from ebbtide.report.format import count, human_bytes
from ebbtide.tables.failures import own_errors

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

app = typer.Typer()


@dataclass(frozen=True)
class BucketChoice:
    """Whose rules a command is about, and what it reads."""

    source: Source | None = None
    file: str | None = None
    inventory: str | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was said."""
        return self == BucketChoice()

    def rules(self, state: State, url: str) -> Sourced:
        """Read the rules."""
        if self.file is not None and self.source not in (None, Source.FILE):
            raise BadInput("--rules and --rules-from are given", fix="leave one of them out")
        if self.file is None and self.source is Source.FILE:
            raise BadInput("--rules-from file wants a file", fix="add --rules FILE")
        given = None if self.file is None else read_rules_file(state, self.file)
        source = Source.FILE if given is not None else self.source or Source.STORED
        return state.bucket_shop(url).sourced(source, given)


def make_bucket_plan(state: State, url: str, choice: BucketChoice, master: str | None) -> Manifest:
    """Make a plan for a bucket."""
    rules = choice.rules(state, url)
    with state.spark(master) as spark, progress() as report:
        return plan_bucket(
            spark,
            state.bucket_shop(url),
            rules,
            now=state.clock(),
            options=state.freeze_options,
            report=choice.inventory,
            on_progress=report,
        )


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
    """Say what the rules will do in the coming days if nothing changes, day by day; changes nothing."""
    state: State = context.obj
    state.now_override = now or state.now_override
    shop = state.bucket_shop(bucket)
    sourced = BucketChoice(rules_from, rules, inventory).rules(state, bucket)
    moment = state.clock()
    last = moment + timedelta(days=days)
    with (
        state.spark(master) as spark,
        progress() as report,
        scratch_folder(state.root) as folder,
        own_errors(),
    ):
        planner = BucketPlanner(spark, shop.spec, sourced, last, inventory, on_progress=report)
        coming = foresee(planner.verdicts(planner.inventory(folder)[0]), moment)
    if as_json:
        print_json(coming)
        return
    rows = [(c.day, c.action, c.rule_id, count(c.objects), human_bytes(c.bytes)) for c in coming]
    columns = ("day", "action", "rule", "items", "bytes")
    table(f"Until {last.date()}", columns, rows, numbers=(3, 4))
    for one in left_out(sourced.enclosed, sourced.configuration):
        say(f"left out what lies below {safe(one.label)}: no rule is about it alone")
