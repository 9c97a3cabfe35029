"""`ebb image scan`: look at a registry and record what is there, and since when."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Master, print_json, progress, safe, say, say_next
from ebbtide.cli.preflight import check_free
from ebbtide.cli.state import State
from ebbtide.core.format import count, plural
from ebbtide.engine.layout import scratch_folder
from ebbtide.engine.spark.failures import own_errors
from ebbtide.state.locks import target_lock
from ebbtide.targets.oci.purge.collector import looker_of

app = typer.Typer(add_completion=False)


@app.command()
def scan(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Believe that what earlier scans have seen is gone.")
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Scan a registry and give new images their policies; nothing in the registry is changed."""
    state: State = context.obj
    shop = state.registry_shop(target)
    state.registry(target).check_ready()
    check_free(state, shop.uid)
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
    say_next(state.command("image", "ls", target))
    say_next(state.command("plan", target))
