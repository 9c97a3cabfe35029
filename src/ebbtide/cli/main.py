"""The `ebb` command: the table of its subcommands, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ebbtide import __version__
from ebbtide.cli.failure import fail, signals_raise
from ebbtide.cli.lazy import Commands, lazy_group
from ebbtide.cli.state import State
from ebbtide.core.format import numbers
from ebbtide.storage.network import quick_first_contact

LAKE: Commands = {
    "policy": ("lake_rules", "A repository's lifecycle policy."),
    "retention": ("lake_rules", "A repository's retention rules."),
    "check": ("lake_check", "List the store on the executors and check that every live object is there."),
    "delete": ("lake_owner", "Delete a repository: its branches, tags, commits and rules."),
    "upload": ("lake", "Upload a file or a folder to a branch (staged until committed)."),
    "adopt": ("lake_owner", "Make a repository the owner of its namespace."),
    "recover": ("lake_owner", "Import commits that the catalog has lost and the namespace still has."),
    "forget": ("lake_owner", "Declare commits that the catalog has lost garbage."),
    "reap": ("lake_reap", "Delete objects that have no references and waited long enough in the queue."),
    "queue": ("lake_reap", "Show what waits to be deleted, why, and from when it may go."),
    "create": ("lake", "Create a repository."),
    "list": ("lake", "List repositories."),
    "commit": ("lake", "Commit what is staged on a branch."),
    "branch": ("lake", "List, create or delete branches."),
    "tag": ("lake", "List, create or delete tags."),
    "merge": ("lake", "Merge a ref into a branch."),
    "rm": ("lake", "Delete keys from a branch (staged until committed)."),
    "reset": ("lake", "Drop what is staged on a branch."),
    "log": ("lake", "Show the commits of a ref, newest first."),
    "ls": ("lake", "List the objects of a ref, and which are gone or in the recycle bin."),
    "cat": ("lake", "Print an object's bytes."),
}
BUCKET: Commands = {
    "rules": ("bucket_rules", "Lifecycle rules of buckets, in S3's JSON or XML."),
    "where": ("bucket_rules", "Show where the versions of a key were moved."),
    "forecast": ("bucket_forecast", "Show what the rules will do in the coming days."),
}
IMAGE: Commands = {
    "scan": ("image_purge", "Record which images a registry has, and since when."),
    "ls": ("image_inventory", "List tags with their policies and dates."),
    "show": ("image_inventory", "Show what is known about an image, and its log entries."),
    "explain": ("image_inventory", "Explain why an image is kept or deleted, and which rules apply."),
    "delete": ("image_purge", "Delete an image now, or all images older than an age."),
    "purge": ("image_purge", "The daily job: recycle expired images, then empty the bin of expired ones."),
    "recycle": ("image_recycle", "The recycle bin: list, restore, empty."),
    "listen": ("image_inventory", "Receive a registry's notifications, for exact times."),
    "policy": ("image_policy", "The policies of a registry: list, show, change, rename, remove, load."),
    "assign": ("image_marks", "Assign a policy to an image: its values are copied, its date is set."),
    "pin": ("image_marks", "Protect an image from deletion until a date, or forever."),
    "unpin": ("image_marks", "Remove the pin of an image; its policy counts from now."),
    "quarantine": ("image_marks", "Record whether the check of an image is pending, failed or passed."),
    "log": ("image_access", "Show who changed what and when, and what was refused."),
    "adopt": ("image_access", "Register a registry, so that it can be changed while others have roles."),
    "role": ("image_access", "Who may change policies, and who may change images."),
}
COMMANDS: Commands = {
    "init": ("init", "Set up a folder: write ebbtide.toml and the state root."),
    "rehearsal": ("rehearsal", "Advance the clock of a root that was made for learning."),
    "lake": (LAKE, "Work with repositories of the embedded catalog."),
    "bucket": (BUCKET, "Work with S3 buckets under lifecycle rules."),
    "image": (IMAGE, "Work with the images of container registries."),
    "plan": ("plan", "Decide what may be deleted (deletes nothing), or show a plan."),
    "explain": ("explain", "Explain why an item is kept or deleted."),
    "apply": ("apply", "Apply a plan, after checking it again."),
    "recycle": ("recycle", "List the recycle bin of a target, set its days, empty it."),
    "restore": ("restore", "Bring back items that a run set aside."),
    "runs": ("runs", "List runs and how they ended."),
    "state": ("restored_state", "Continue after only the ledger or only the state root was restored."),
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
    """Ebbtide decides which stored data may be deleted, shows why, and deletes it safely."""
    state = State(config)
    context.obj = state
    context.call_on_close(state.close)


def main() -> None:
    """Run the command line; every error is a message and an exit code, never a traceback."""
    with signals_raise():
        code = run(sys.argv[1:])
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    command = typer.main.get_command(app)
    try:
        # Not command.main(), which hides the message of an interruption.
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
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - users get no traceback
        return fail(error, arguments)
    return 0
