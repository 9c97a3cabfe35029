"""`ebb bucket rules` and `ebb bucket where`: lifecycle rules of buckets, and where they moved objects."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput, LifecycleError, NotFound
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import format_second, parse_instant
from ebbtide.targets.s3.kind import bucket_context, bucket_rules
from ebbtide.targets.s3.model import bucket_name, bucket_url
from ebbtide.targets.s3.rules.configuration import MINIMUM_SIZE, Configuration, MinimumSize
from ebbtide.targets.s3.rules.document import configuration_hash, write_json, write_xml
from ebbtide.targets.s3.rules.document import read_rules_file as read_file
from ebbtide.targets.s3.rules.validation import MALFORMED
from ebbtide.targets.s3.rules.warnings import configuration_warnings
from ebbtide.targets.s3.transition.moves import MoveLog, MoveRecord, Stage

app = typer.Typer(add_completion=False)
rules = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Lifecycle rules of buckets, in S3's JSON or XML."
)
app.add_typer(rules, name="rules")

Bucket = Annotated[str, typer.Argument(help="The bucket: s3://NAME or NAME.")]
File = Annotated[
    str, typer.Argument(help="A LifecycleConfiguration in JSON, XML, YAML or TOML; '-' reads standard input.")
]
LeastSize = Annotated[
    str | None,
    typer.Option("--minimum-size", help=f"{MINIMUM_SIZE}, which XML cannot say: {' or '.join(MinimumSize)}."),
]


@rules.command("check")
def check(
    context: typer.Context, file: File, minimum_size: LeastSize = None, as_json: AsJson = False
) -> None:
    """Check a configuration as S3 would, without setting it; exits 2 if S3 refuses it."""
    state: State = context.obj
    try:
        configuration = read_rules_file(state, file, minimum_size)
    except BadInput as refused:
        if not as_json:
            raise
        _print_line({"valid": False} | _answer(refused))
        raise typer.Exit(2) from None
    warnings = configuration_warnings(configuration, now=state.clock())
    if as_json:
        # The format of the answer is a contract, so warnings go to standard error.
        _print_line({"valid": True})
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return
    say(f"valid: {plural(len(configuration.rules), 'rule')}, {len(configuration.enabled)} enabled")
    _show_warnings(warnings)


@rules.command("set")
def set_rules(
    context: typer.Context,
    bucket: Bucket,
    file: File,
    minimum_size: LeastSize = None,
    as_json: AsJson = False,
) -> None:
    """Make a configuration the bucket's; it replaces the one before as a whole."""
    state: State = context.obj
    url = bucket_url(bucket)
    configuration = read_rules_file(state, file, minimum_size)
    bucket_rules(state).put(url, configuration)
    warnings = [
        *configuration_warnings(configuration, now=state.clock()),
        *_reaching_rules(state, url, configuration),
    ]
    if as_json:
        print_json({"bucket": url, "hash": configuration_hash(configuration), "warnings": warnings})
        return
    say(f"{safe(url)} has {plural(len(configuration.rules), 'rule')}, {len(configuration.enabled)} enabled")
    _show_warnings(warnings)


@rules.command("get")
def get_rules(
    context: typer.Context,
    bucket: Bucket,
    xml: Annotated[bool, typer.Option("--xml", help="Print XML, the body of S3's PUT.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the bucket's configuration as JSON in boto3's form, or as XML."""
    if xml and as_json:
        raise BadInput("--xml and --json are given", fix="leave one of them out")
    state: State = context.obj
    configuration = bucket_rules(state).get(bucket)
    if not xml:
        print_json(write_json(configuration))
        return
    print(write_xml(configuration), end="")
    if configuration.minimum_size is not MinimumSize.ALL_128K:
        print(f"note: XML cannot say {MINIMUM_SIZE}: {configuration.minimum_size}", file=sys.stderr)


@rules.command("rm")
def remove_rules(context: typer.Context, bucket: Bucket, as_json: AsJson = False) -> None:
    """Forget the bucket's configuration; it is fine if there is none."""
    state: State = context.obj
    url = bucket_url(bucket)
    bucket_rules(state).delete(url)
    if as_json:
        print_json({"bucket": url})
    else:
        say(f"{safe(url)} has no rules")


@rules.command("list")
def list_rules(context: typer.Context, as_json: AsJson = False) -> None:
    """List the buckets that have rules, and whether any rule is enabled."""
    state: State = context.obj
    found = bucket_rules(state).stored()
    if as_json:
        print_json(found)
        return
    rows = [(row.bucket, "yes" if row.enabled else "no", format_second(row.updated)) for row in found]
    table("Buckets with rules", ("bucket", "enabled", "updated"), rows)


def _reaching_rules(state: State, url: str, configuration: Configuration) -> list[str]:
    """Warn of rules that reach into a lake or the recycle bin."""
    from ebbtide.targets.s3.nested import known_lakes, reach_warnings  # noqa: PLC0415 (not for a check)

    opened = bucket_context(state, url)
    has_bin = state.ledger.recycling_days(opened.uid) is not None
    return reach_warnings(configuration, known_lakes(opened.spec, opened.lakes), has_bin=has_bin)


def read_rules_file(state: State, name: str, minimum_size: str | None = None) -> Configuration:
    """Read a configuration whose rules may name the locations that are configured."""
    return read_file(name, state.settings.bucket.locations, minimum_size)


def _print_line(answer: Mapping[str, Any]) -> None:
    """Print the answer of a check on one line, so that a shell can compare it."""
    print(json.dumps(answer, ensure_ascii=False))


def _answer(refused: BadInput) -> dict[str, str]:
    """Return the answer of S3, for which a document that cannot be read is malformed."""
    if isinstance(refused, LifecycleError):
        return {"code": refused.code, "message": refused.message}
    return {"code": MALFORMED, "message": refused.what}


def _show_warnings(warnings: list[str]) -> None:
    for warning in warnings:
        say(f"[yellow]warning:[/yellow] {safe(warning)}")


_SHOWN = ("version", "location", "url", "stage", "size", "etag", "modified", "at", "rules", "run")


@app.command()
def where(
    context: typer.Context,
    bucket: Annotated[str, typer.Argument(help="The bucket, as BUCKET or s3://BUCKET.")],
    key: Annotated[str, typer.Argument(help="The key that the object had there.")],
    as_json: AsJson = False,
) -> None:
    """Show to which location the versions of a key were moved, when, and by which rule."""
    state: State = context.obj
    name = bucket_name(bucket)
    found = MoveLog(state.root).where(name, key)
    if not found:
        raise NotFound(
            f"nothing is known of a move of {key!r} out of {name}",
            why="no run under this state root moved it to a location",
            fix="check the spelling; an object that was not moved is still in its bucket",
        )
    if as_json:
        print_json([_row(move) for move in found])
        return
    for move in found:
        _show(move)


def _row(move: MoveRecord) -> dict[str, Any]:
    return {"bucket": move.bucket, "key": move.key, **{name: getattr(move, name) for name in _SHOWN}}


def _show(move: MoveRecord) -> None:
    """Print one move."""
    say(f"[bold]{safe(move.url)}[/bold]  {human_bytes(move.size)}")
    rules = ", ".join(move.rules) or "no named rule"
    done = "moved" if move.stage is Stage.MOVED else "copied"
    run = "" if move.run is None else f" (run {move.run})"
    say(f"  location {safe(move.location)}: {done} at {_second(move.at)} by {safe(rules)}{run}")
    say(f"  version {safe(move.version)}, written {_second(move.modified)}")
    if move.stage is not Stage.MOVED:
        say("  the original may still be in the bucket: the run that copied it has not finished")


def _second(recorded: str) -> str:
    return format_second(parse_instant(recorded))
