"""`ebb image scan`: look at a registry and record what is there, and since when."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json, progress, safe, say
from ebbtide.cli.state import State
from ebbtide.engine.layout import scratch_folder
from ebbtide.ledger.locks import target_lock
from ebbtide.registry.purge.job import looker_of
from ebbtide.report.format import count, plural
from ebbtide.tables.failures import own_errors

app = typer.Typer()


@app.command()
def scan(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Believe that what earlier scans have seen is gone.")
    ] = False,
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Scan a registry and give new images their policies; nothing in the registry is changed."""
    state: State = context.obj
    state.now_override = now or state.now_override
    shop = state.registry_shop(target)
    with (
        target_lock(shop.root, shop.uid, f"ebb image scan {target}"),
        state.spark(master) as spark,
        progress() as report,
        scratch_folder(state.root) as folder,
        own_errors(),
    ):
        policies = shop.records.policies(shop.uid)
        done = looker_of(shop, spark, report).look(policies, folder.path, allow_empty=allow_empty)
    if as_json:
        names = ("repositories", "tags", "images", "read", "gone", "warnings", "at")
        print_json({name: getattr(done, name) for name in names})
        return
    tags, images = plural(done.tags, "tag"), plural(done.images, "manifest")
    say(f"scanned {tags} and {images} of {plural(done.repositories, 'repository', 'repositories')}")
    say(f"  {count(done.read)} manifests were new, {count(done.gone)} are gone")
    for warning in done.warnings:
        say(f"  [yellow]warning:[/yellow] {safe(warning)}")
    say(f"next: {safe(f'ebb image ls {target}')} | {safe(f'ebb plan {target}')}")
