"""`ebb image listen`: take a registry's notifications, so that times are known to the second."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from ebbtide.cli.console import safe, say
from ebbtide.cli.state import State
from ebbtide.registry.inventory.events import Event as Told
from ebbtide.registry.inventory.listening import Listener
from ebbtide.registry.records.model import Action, Event

TOKEN = "EBBTIDE_REGISTRY_LISTEN_TOKEN"  # noqa: S105 - the name of a variable, not a secret

app = typer.Typer()


@app.command()
def listen(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="The registry that notifies: oci://HOST")],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 5060,
) -> None:
    """
    Listen for notifications until interrupted; name the address in the registry's configuration.

    With EBBTIDE_REGISTRY_LISTEN_TOKEN set, only requests that bear this token are taken.
    """
    state: State = context.obj
    shop = state.registry_shop(target)

    def store(events: Sequence[Told]) -> None:
        shop.records.add_events(
            shop.uid,
            [Event(Action(one.action), one.repository, one.tag, one.digest, one.at) for one in events],
        )

    listener = Listener(
        store,
        host=host,
        port=port,
        token=os.environ.get(TOKEN, ""),
        on_trouble=lambda words: say(f"[yellow]not taken:[/yellow] {safe(words)}"),
    )
    say(f"listening at {safe(listener.url)} for {safe(target)}; end with Ctrl-C")
    try:
        listener.serve()
    finally:
        listener.close()
