"""The `ebb` command: which subcommands there are, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ebbtide import __version__
from ebbtide.cli.failure import fail
from ebbtide.cli.interruption import signals_raise
from ebbtide.cli.lazy import lazy_group
from ebbtide.cli.state import State
from ebbtide.core.format import numbers
from ebbtide.storage.network import quick_first_contact

COMMANDS = {
    "init": ("init", "Set up a folder: write ebbtide.toml and the state root."),
    "rehearsal": ("rehearsal", "Let time pass in a root that was made to learn with."),
    "lake": ("lake", "Work with repositories of the embedded catalog."),
    "bucket": ("bucket", "Work with S3 buckets under lifecycle rules."),
    "image": ("image", "Work with the images of container registries."),
    "plan": ("plan", "Decide what may be deleted (deletes nothing), or show a plan."),
    "explain": ("explain", "Say why an object goes or stays."),
    "apply": ("apply", "Delete what a plan says, after checking it again."),
    "recycle": ("recycle", "Look into the recycle bin of a target, set its days, empty it."),
    "restore": ("restore", "Bring back what a run set aside."),
    "runs": ("runs", "List runs and how they ended."),
    "state": ("restored_state", "Continue after the ledger or the state root was restored alone."),
    "report": ("report", "Write a run's report as one HTML file."),
    "simulate": ("simulate", "Run the pipeline on a small world written by hand."),
    "policy": ("policy", "Check and test policies."),
    "demo": ("demo", "Build a lake and go through the whole story."),
}

EXIT_CODES = """\b
Exit codes:
  0         done
  1         failed
  2         bad input: nothing was changed, correct it and try again
  3         stopped by a safety check: in doubt nothing is deleted
  4         partly applied: some items could not be deleted; apply again
  130, 143  interrupted by Ctrl-C or SIGTERM; one line says what was recorded
"""


app = lazy_group(
    COMMANDS,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ebb {__version__}")
        raise typer.Exit


@app.callback()
def ebb(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="The configuration file (ebbtide.toml).")] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Ebbtide decides which stored data may be forgotten, shows why, and forgets it safely."""
    state = State(config)
    context.obj = state
    context.call_on_close(state.close)


def main() -> None:
    """Run the command line; every error is a message and an exit code, never a traceback."""
    with signals_raise():
        code = run(sys.argv[1:])
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code."""
    command = typer.main.get_command(app)
    try:
        # Not command.main(), which hides what an interruption has to say.
        with (
            quick_first_contact(),
            numbers(plain=not sys.stdout.isatty()),
            command.make_context("ebb", list(arguments)) as context,
        ):
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nobody meets a traceback
        return fail(error, arguments)
    return 0
