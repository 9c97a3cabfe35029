"""`ebb bucket rules`: S3 lifecycle configurations, checked as S3 checks them and kept as S3 keeps them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide.bucket.names import bucket_url
from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.errors import BadInput, LifecycleError
from ebbtide.report.format import plural
from ebbtide.rules.documents import format_of
from ebbtide.rules.instant import format_instant
from ebbtide.rules.s3.configuration import Configuration, MinimumSize
from ebbtide.rules.s3.json_form import SIZE
from ebbtide.rules.s3.reading import read_configuration_text
from ebbtide.rules.s3.refusals import MALFORMED
from ebbtide.rules.s3.surprises import configuration_warnings
from ebbtide.rules.s3.writing import configuration_hash, write_json, write_xml

app = typer.Typer(no_args_is_help=True, help="Lifecycle rules of buckets, in S3's JSON or XML.")

Bucket = Annotated[str, typer.Argument(help="The bucket: s3://NAME or NAME.")]
File = Annotated[
    str, typer.Argument(help="A LifecycleConfiguration in JSON, XML, YAML or TOML; '-' reads standard input.")
]
LeastSize = Annotated[
    str | None,
    typer.Option("--minimum-size", help=f"{SIZE}, which XML cannot say: {' or '.join(MinimumSize)}."),
]


@app.command("check")
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
        # The answer is a contract; what is more than yes or no goes beside it.
        _print_line({"valid": True})
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return
    say(f"valid: {plural(len(configuration.rules), 'rule')}, {len(configuration.enabled)} enabled")
    _show_warnings(warnings)


@app.command("set")
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
    state.bucket_rules.put(url, configuration)
    warnings = configuration_warnings(configuration, now=state.clock())
    if as_json:
        print_json({"bucket": url, "hash": configuration_hash(configuration), "warnings": warnings})
        return
    say(f"{safe(url)} has {plural(len(configuration.rules), 'rule')}, {len(configuration.enabled)} enabled")
    _show_warnings(warnings)


@app.command("get")
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
    configuration = state.bucket_rules.get(bucket)
    if not xml:
        print_json(write_json(configuration))
        return
    print(write_xml(configuration), end="")
    if configuration.minimum_size is not MinimumSize.ALL_128K:
        print(f"note: XML cannot say {SIZE}: {configuration.minimum_size}", file=sys.stderr)


@app.command("rm")
def remove_rules(context: typer.Context, bucket: Bucket, as_json: AsJson = False) -> None:
    """Forget the bucket's configuration; it is fine if there is none."""
    state: State = context.obj
    url = bucket_url(bucket)
    state.bucket_rules.delete(url)
    if as_json:
        print_json({"bucket": url})
    else:
        say(f"{safe(url)} has no rules")


@app.command("list")
def list_rules(context: typer.Context, as_json: AsJson = False) -> None:
    """List the buckets that have rules, and whether any rule is enabled."""
    state: State = context.obj
    found = state.bucket_rules.stored()
    if as_json:
        print_json(found)
        return
    rows = [(row.bucket, "yes" if row.enabled else "no", format_instant(row.updated)) for row in found]
    table("Buckets with rules", ("bucket", "enabled", "updated"), rows)


def read_rules_file(state: State, name: str, minimum_size: str | None = None) -> Configuration:
    """Read a configuration from a file whose name tells its format, or from standard input."""
    text, fmt = _standard_input() if name == "-" else (_text(name), _format(name))
    locations = state.settings.bucket.locations
    return read_configuration_text(text, fmt, locations=locations, minimum_size=minimum_size)


def _format(name: str) -> str:
    return "xml" if name.lower().endswith(".xml") else format_of(name)


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as broken:
        raise BadInput(f"{name} cannot be read: {broken.strerror}", fix="check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not text", fix="save it as UTF-8") from None


def _standard_input() -> tuple[str, str]:
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise BadInput("standard input is not text", fix="send UTF-8") from None
    return text, "xml" if text.lstrip("\ufeff \t\r\n").startswith("<") else "json"


def _print_line(answer: Mapping[str, Any]) -> None:
    """Print the answer of a check on one line, so that a shell can compare it."""
    print(json.dumps(answer, ensure_ascii=False))


def _answer(refused: BadInput) -> dict[str, str]:
    """Say what S3 answers; to it a document that cannot be read is a malformed one."""
    if isinstance(refused, LifecycleError):
        return {"code": refused.code, "message": refused.message}
    return {"code": MALFORMED, "message": refused.what}


def _show_warnings(warnings: list[str]) -> None:
    for warning in warnings:
        say(f"[yellow]warning:[/yellow] {safe(warning)}")
