"""`ebb demo`: build a lake, plan, explain, apply and report."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

from ebbtide.cli.console import AsJson, print_json, progress, safe, say
from ebbtide.cli.explain import show_explanation
from ebbtide.cli.plan import show_summary
from ebbtide.cli.report import report_data
from ebbtide.cli.state import State
from ebbtide.core.decision import Decision
from ebbtide.core.display import Explanation
from ebbtide.core.errors import BadInput, LiveObjectMissing
from ebbtide.core.format import count, human_bytes
from ebbtide.core.instant import system_clock
from ebbtide.engine.apply import apply
from ebbtide.engine.plan import plan
from ebbtide.engine.rehearsal import begin_rehearsal
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import sample_decisions
from ebbtide.report.page import render
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.demo import POLICY, REPOSITORY, DemoClock, build_lake, check_needed
from ebbtide.targets.lake.kind import lake_context, shared_catalog
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.collector import RepositoryCollector
from ebbtide.targets.repository.explanation import blocks, explain
from ebbtide.targets.repository.policy import parse_lake_policy
from ebbtide.targets.repository.rules import RepositoryRules
from ebbtide.targets.repository.simulation import simulate
from ebbtide.targets.repository.world import world_of
from ebbtide.targets.repository.world_document import world_document

app = typer.Typer(add_completion=False)
MARKER = "made-by-ebb-demo"
_BUCKET_KEYS = 2_000


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where to build the lake.")] = Path("ebbtide-demo"),
    objects: Annotated[int, typer.Option("--objects", min=600, help="How many objects.")] = 201_000,
    bucket: Annotated[
        bool, typer.Option("--bucket", help="Use an S3 bucket, on a local server that is started for it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a lake, plan, explain, apply, check that nothing needed is lost, and write the report."""
    began = time.monotonic()
    state = _fresh_state(folder)
    tell = _Teller(began, silent=as_json)
    if bucket:
        from ebbtide.cli.demo_bucket import tell_bucket_story  # noqa: PLC0415 (a lake needs no boto3)

        told = tell_bucket_story(state, folder, min(objects, _BUCKET_KEYS), tell, silent=as_json)
        if as_json:
            print_json(told | {"seconds": round(time.monotonic() - began, 1)})
        return
    tell(f"building a lake of {count(objects)} objects over 60 simulated days in {folder}/")
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        # Building keeps one core busy; Spark starts and warms up on the other.
        starting = pool.submit(_warm_spark, state, stack)
        _build(state, folder, objects, tell)
        result = _story(state, starting.result(), folder, tell)
    if as_json:
        print_json(result | {"seconds": round(time.monotonic() - began, 1)})


def _build(state: State, folder: Path, objects: int, tell: _Teller) -> None:
    clock = DemoClock(system_clock() - timedelta(days=60))
    builder = Catalog(state.settings.database("catalog"), clock=clock, rehearsal=True)
    for event in build_lake(builder, clock, str(folder / "lake"), objects):
        tell(f"  {event}")
    builder.set_policy(REPOSITORY, POLICY, "json")
    tell("setting the policy (ebb lake policy set demo policy.json)")
    for line in POLICY.splitlines():
        tell(f"  {line}")


def _warm_spark(state: State, stack: ExitStack) -> SparkSession:
    """Start Spark and run the pipeline once on a tiny world, so that it is compiled when it is needed."""
    spark = stack.enter_context(state.spark())
    entry = {"address": "1", "created": "1998-01-01", "size": 1}
    commit = {"id": "c", "created": "1998-01-01", "entries": {"raw/a": entry, "b": entry | {"address": "2"}}}
    world = {"policy": json.loads(POLICY), "branches": {"main": "c"}, "commits": [commit]}
    simulate(spark, [(world_document(world), state.clock())])
    return spark


def _story(state: State, spark: SparkSession, folder: Path, tell: _Teller) -> dict[str, Any]:
    policy = parse_lake_policy(POLICY)
    now = state.clock()
    with progress() as bars:
        tell("planning: what may go, and why (ebb plan lake:demo)")
        repository = CatalogRepository(shared_catalog(state), REPOSITORY)
        collector = RepositoryCollector(
            lake_context(state).context, repository, RepositoryRules(lifecycle=policy)
        )
        manifest = plan(
            spark,
            lake_context(state).context,
            collector,
            now=now,
            options=state.plan_options,
            on_progress=bars,
        )
        if not tell.silent:
            show_summary(manifest)
        run = run_folder(state.root, manifest.run_id)
        world = world_of(repository, repository.snapshot(), policy, now)
        examples = {
            row["address"]: (decision, row["names"][0])
            for decision in (Decision.DUE, Decision.HELD)
            for row in [_example(sample_decisions(run, decision, 2000))]
        }
        tell("explaining an object that is due and one that is held")
        for explanation in explain(world, *examples):
            decision, key = examples[explanation.address]
            tell(f"{decision}: ebb explain lake:demo {key}")
            if not tell.silent:
                show_explanation(Explanation(tuple(blocks(explanation)), None))
        tell(
            f"applying: deleting {count(manifest.summary.due.objects)} objects (ebb apply {manifest.run_id})"
        )
        options = state.apply_options(override_breaker=False)
        applied = apply(
            spark, lake_context(state).context, collector, manifest, options=options, on_progress=bars
        )
    tell("checking, without the pipeline, that all that branch heads need is there and readable")
    checked = check_needed(shared_catalog(state), policy, now)
    if checked.missing:
        raise LiveObjectMissing(
            f"{len(checked.missing)} needed objects are missing, first {checked.missing[0]}",
            fix="this is a defect of Ebbtide: please report it",
        )
    page = folder / "report.html"
    page.write_text(render(report_data(state, manifest.run_id)), encoding="utf-8")
    tell(f"  {count(checked.readable)} of {count(checked.needed)} needed objects read back whole")
    tell(f"wrote {page}")
    freed = applied.freed
    gone = f"{human_bytes(freed.bytes)} in {count(freed.objects)} objects"
    tell(f"[bold]freed {gone}; nothing needed was lost[/bold]")
    return {
        "run_id": manifest.run_id,
        "freed": freed,
        "held": manifest.summary.held,
        "needed": checked.needed,
        "readable": checked.readable,
        "report": str(page),
    }


def _example(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Prefer an object with more than one path, or one that another path keeps, as the better example."""
    return max(rows, key=lambda row: (str(row["hold"]).startswith("referenced"), len(row["names"])))


def _fresh_state(folder: Path) -> State:
    if folder.exists():
        if not (folder / MARKER).exists():
            raise BadInput(f"{folder} is there and was not made by a demo", fix="choose another --folder")
        shutil.rmtree(folder)
    # This data is made up, and its clock is advanced: every record is marked as a rehearsal.
    begin_rehearsal(folder / ".ebbtide", system_clock())
    (folder / MARKER).touch()
    config = folder / "ebbtide.toml"
    config.write_text('root = ".ebbtide"\n', encoding="utf-8")
    return State(config)


class _Teller:
    """Prints the story with the seconds it took."""

    def __init__(self, began: float, *, silent: bool) -> None:
        self._began, self.silent = began, silent

    def __call__(self, text: str) -> None:
        if not self.silent:
            body = text if text.startswith("[bold]") else safe(text)
            say(f"[dim]{time.monotonic() - self._began:5.1f}s[/dim]  {body}")
