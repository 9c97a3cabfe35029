"""`ebb simulate`: what a policy would do to a small world written by hand."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide.cli.bucket_rules import LeastSize, read_rules_file
from ebbtide.cli.console import AsJson, Master, Now, print_json, table
from ebbtide.cli.state import State, instant
from ebbtide.core.documents import format_of, parse_document
from ebbtide.core.errors import BadInput
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.lake.simulation import simulate
from ebbtide.targets.lake.world_document import world_document
from ebbtide.targets.oci.lines import plain_judgement
from ebbtide.targets.oci.lines import read_lines as read_images
from ebbtide.targets.oci.model import OLDEST_SCAN
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.running import read_running
from ebbtide.targets.s3.evaluation.places import Setting
from ebbtide.targets.s3.lines import plain_verdict, read_lines
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.simulation import simulate as simulate_buckets

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Run the pipeline on a small world written by hand."
)
_IDS = ("version_id", "upload_id")


@app.callback()
def _group() -> None:
    """Simulate one of the front doors."""


@app.command("lake")
def lake(
    context: typer.Context,
    world: Annotated[str, typer.Argument(help="A world in JSON, YAML or TOML; '-' reads standard input.")],
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Run the lifecycle pipeline on a world: its policy table, commits, and what goes and stays."""
    state: State = context.obj
    document = world_document(read_document(world))
    moment = instant(now, state.clock)
    with state.spark(master) as spark, own_errors():
        plain = simulate(spark, [(document, moment)])[0].to_plain()
    if as_json:
        print_json(plain)
    else:
        _show(plain)


@app.command("bucket")
def bucket(
    context: typer.Context,
    rules: Annotated[
        str, typer.Option("--rules", help="A LifecycleConfiguration in JSON, XML, YAML or TOML.")
    ],
    versions: Annotated[
        str, typer.Option("--versions", help="Versions and uploads, a JSON object a line; '-' reads stdin.")
    ],
    now: Now = None,
    versioning: Annotated[
        Versioning, typer.Option("--versioning", help="Whether the bucket keeps versions.")
    ] = Versioning.ENABLED,
    minimum_size: LeastSize = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Let lifecycle rules judge versions written by hand: a line for each, in order."""
    state: State = context.obj
    setting = Setting(read_rules_file(state, rules, minimum_size), instant(now, state.clock), versioning)
    items = read_lines(read_text(versions), "standard input" if versions == "-" else versions)
    with state.spark(master) as spark, own_errors():
        (verdicts,) = simulate_buckets(spark, [(setting, items)])
    rows = [plain_verdict(item, verdict) for item, verdict in zip(items, verdicts, strict=True)]
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return
    shown = [[_cell(value) for name, value in row.items() if name not in _IDS] for row in rows]
    names = [row.get("version_id") or row.get("upload_id") for row in rows]
    columns = ("key", "version or upload", "action", "storage class", "rule", "due", "held by")
    table("Verdicts", columns, [[row[0], name, *row[1:]] for row, name in zip(shown, names, strict=True)])


@app.command("registry")
def registry(
    context: typer.Context,
    policies: Annotated[
        str,
        typer.Option(
            "--policies", help="policies, assign, keep_newest and unmatched, in JSON, YAML or TOML."
        ),
    ],
    images: Annotated[str, typer.Option("--images", help="Images, a JSON object a line; '-' reads stdin.")],
    running: Annotated[
        str | None,
        typer.Option("--running", help="What runs: a Kubernetes pod list, a JSON list, or a line an image."),
    ] = None,
    oldest_scan: Annotated[
        float, typer.Option("--oldest-scan", min=0, max=87_600, help="Hours after which a scan is too old.")
    ] = OLDEST_SCAN / timedelta(hours=1),
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """Let image policies judge images written by hand: a line for each manifest, then its tags."""
    state: State = context.obj
    document = read_policies(read_document(policies), "standard input" if policies == "-" else policies)
    items = read_images(read_text(images), "standard input" if images == "-" else images)
    found = None if running is None else read_running(read_text(running), running)
    judged = judge(document, items, instant(now, state.clock), found, timedelta(hours=oldest_scan))
    if as_json:
        for judgement in judged:
            print(json.dumps(plain_judgement(judgement), ensure_ascii=False))
        return
    rows = [plain_judgement(judgement) for judgement in judged]
    names = [f":{row['tag']}" if "tag" in row else f"@{row['digest']}" for row in rows]
    columns = ("tag or digest", "decision", "policy", "deadline", "held by")
    shown = [[_cell(row[name.replace(" ", "_")]) for name in columns[1:]] for row in rows]
    table(
        "Judgements",
        columns,
        [[row["repository"] + name, *cells] for row, name, cells in zip(rows, names, shown, strict=True)],
    )


def read_text(name: str) -> str:
    """Read a text file, or standard input."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except OSError as broken:
        raise BadInput(f"{name} cannot be read: {broken.strerror}", fix="check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not text", fix="save it as UTF-8") from None


def read_document(name: str) -> Any:
    """Read a JSON, YAML or TOML file, or JSON from standard input."""
    if name == "-":
        return parse_document(read_text(name), "json", name="standard input")
    return parse_document(read_text(name), format_of(name), name=name)


def _show(plain: dict[str, Any]) -> None:
    for title, key in (
        ("Policy table", "policy_table"),
        ("Current rules", "current_rules"),
        ("Potential commits", "potential_commits"),
        ("Due", "due"),
        ("Held", "held"),
    ):
        rows = plain[key]
        columns = list(rows[0]) if rows else ["(nothing)"]
        table(title, columns, [[_cell(row[column]) for column in columns] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value)
