"""The `ebb` command: which subcommands there are, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide import __version__
from ebbtide.cli.lazy import lazy_group
from ebbtide.cli.state import State
from ebbtide.errors import EbbtideError

COMMANDS = {
    "init": ("init", "Set up a folder: write ebbtide.toml and the state root."),
    "lake": ("lake", "Work with repositories of the embedded catalog."),
    "bucket": ("bucket", "Work with S3 buckets under lifecycle rules."),
    "image": ("image", "Work with the images of container registries."),
    "plan": ("plan", "Decide what may be deleted (deletes nothing), or show a plan."),
    "explain": ("explain", "Say why an object goes or stays."),
    "apply": ("apply", "Delete what a plan says, after checking it again."),
    "recycle": ("recycle", "Look into the recycle bin of a target, set its days, empty it."),
    "restore": ("restore", "Bring back what a run set aside."),
    "runs": ("runs", "List runs and how they ended."),
    "report": ("report", "Write a run's report as one HTML file."),
    "simulate": ("simulate", "Run the pipeline on a small world written by hand."),
    "policy": ("policy", "Check and test policies."),
    "demo": ("demo", "Build a lake and go through the whole story."),
}

EXIT_CODES = """Exit codes:

0  done

1  failed

2  bad input: nothing was changed, correct it and try again

3  stopped by a safety check: in doubt nothing is deleted

4  partly applied: some items could not be deleted; apply again to finish
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
    context.obj = State(config)


def main() -> None:
    """Run the command line; every error is a message and an exit code, never a traceback."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one way out for each way a command can end
    """Run one command and give its exit code."""
    try:
        result: Any = typer.main.get_command(app).main(arguments, prog_name="ebb", standalone_mode=False)
    except EbbtideError as error:
        _complain(error)
        return error.exit_code
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as wrong:
        print(f"error: {_words(wrong)}\n  what to do: see '{_command(wrong)} --help'", file=sys.stderr)
        return 2
    except (typer.Abort, KeyboardInterrupt):
        print("interrupted; nothing is lost, run the same command again to go on", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as defect:  # noqa: BLE001 - the last resort, so that nobody meets a traceback
        return _report_defect(defect)
    return result if isinstance(result, int) else 0


def _complain(error: EbbtideError) -> None:
    print(f"error: {error.what or error}", file=sys.stderr)
    if error.why:
        print(f"  why: {error.why}", file=sys.stderr)
    if error.fix:
        print(f"  what to do: {error.fix}", file=sys.stderr)
    for line in error.details:
        print(f"  - {line}", file=sys.stderr)


def _words(wrong: typer.TyperException) -> str:
    return str(wrong.format_message()) if hasattr(wrong, "format_message") else str(wrong)


def _command(wrong: typer.TyperException) -> str:
    """Name the command that was called wrongly, as far as it was recognised."""
    context = getattr(wrong, "ctx", None)
    return "ebb" if context is None else str(context.command_path)


def _report_defect(defect: Exception) -> int:
    if os.environ.get("EBBTIDE_TRACEBACK"):
        traceback.print_exception(defect)
    words = str(defect).splitlines() or [""]
    print(
        f"error: an unexpected {type(defect).__name__}: {words[0]}\n"
        "  why: this is a defect of Ebbtide; it stopped where it was\n"
        "  what to do: run again with EBBTIDE_TRACEBACK=1 and report what it prints",
        file=sys.stderr,
    )
    return 1
