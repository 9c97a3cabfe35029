"""`ebb image log`: who changed what and when, and what was refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, safe, say
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import format_instant, format_second
from ebbtide.targets.oci.client.image_ref import image_ref
from ebbtide.targets.oci.records.model import LogEntry

app = typer.Typer(add_completion=False)


@app.command()
def log(
    context: typer.Context,
    registry: Annotated[str, typer.Argument(help="The registry: oci://HOST or oci-layout:FOLDER.")],
    subject: Annotated[
        str | None,
        typer.Argument(help="Only this: REPO:TAG, REPO@DIGEST, a whole image, a policy, a user or 'run 7'."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="So many entries at most; 0 is all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the log, newest first; with --json one entry a line."""
    state: State = context.obj
    entries = state.image_records.log(
        state.registry_records(registry), subject=_subject(state, registry, subject), limit=limit or None
    )
    shown = 0
    for entry in entries:
        shown += 1
        if as_json:
            print(json.dumps(plain_entry(entry), ensure_ascii=False))
        else:
            _show(entry)
    if not shown and not as_json:
        say("the log has nothing about it")


def plain_entry(entry: LogEntry) -> dict[str, Any]:
    """Give an entry as plain data."""
    return {
        "id": entry.id,
        "at": format_instant(entry.at),
        "by": entry.by,
        "kind": str(entry.kind),
        "subject": entry.subject,
        "what": entry.what,
        "before": entry.before,
        "after": entry.after,
        "refused": entry.refused or None,
    }


def _subject(state: State, registry: str, subject: str | None) -> str:
    """Read what the log is asked about; a whole image must be of this registry."""
    if not subject or not subject.startswith(("oci://", "oci-layout:", "file:")):
        return subject or ""
    image = image_ref(subject)
    if state.registry_records(image.registry) != state.registry_records(registry):
        raise BadInput(f"{subject} is not in {registry}", fix="name the registry that the image is in")
    return image.name


def _show(entry: LogEntry) -> None:
    at = format_second(entry.at)
    say(f"{at}  {safe(entry.by)}  {entry.kind}  [bold]{safe(entry.subject)}[/bold]: {safe(entry.what)}")
    if entry.refused:
        say(f"    [yellow]refused[/yellow]: {safe(entry.refused)}")
    elif isinstance(entry.before, Mapping) and isinstance(entry.after, Mapping):
        for name in {**entry.before, **entry.after}:
            old, new = entry.before.get(name), entry.after.get(name)
            if old != new:
                say(f"    {safe(name)}: {safe(json.dumps(old))} -> {safe(json.dumps(new))}")
    elif (entry.before, entry.after) != (None, None):
        say(f"    {safe(json.dumps(entry.before))} -> {safe(json.dumps(entry.after))}")
