"""`ebb image listen`: take a registry's notifications, so that times are known to the second."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json_line, safe, say
from ebbtide.cli.state import State
from ebbtide.targets.oci.inventory.events import Event as Told
from ebbtide.targets.oci.inventory.listening import Listener
from ebbtide.targets.oci.records.model import Action, Event

TOKEN = "EBBTIDE_REGISTRY_LISTEN_TOKEN"  # noqa: S105 - the name of a variable, not a secret

app = typer.Typer(add_completion=False)


@app.command()
def listen(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="The registry that notifies: oci://HOST")],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 5060,
    as_json: AsJson = False,
) -> None:
    """
    Listen for notifications until interrupted; name the address in the registry's configuration.

    With EBBTIDE_REGISTRY_LISTEN_TOKEN set, only requests that bear this token are taken.
    With --json the address, every event and every refusal is a line.
    """
    state: State = context.obj
    shop = state.registry_shop(target)

    def store(events: Sequence[Told]) -> None:
        shop.records.add_events(
            shop.uid,
            [Event(Action(one.action), one.repository, one.tag, one.digest, one.at) for one in events],
        )
        if as_json:
            for event in events:
                print_json_line({"event": event})

    def complain(words: str) -> None:
        if as_json:
            print_json_line({"refused": words})
        else:
            say(f"[yellow]not taken:[/yellow] {safe(words)}")

    listener = Listener(
        store,
        host=host,
        port=port,
        token=os.environ.get(TOKEN, ""),
        on_trouble=complain,
    )
    if as_json:
        print_json_line({"listening": listener.url, "target": target})
    else:
        say(f"listening at {safe(listener.url)} for {safe(target)}; end with Ctrl-C")
    try:
        listener.serve()
    finally:
        listener.close()
