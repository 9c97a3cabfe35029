"""`ebb policy`: check policies, and test them with suites of cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbtide.cli.console import AsJson, Master, print_json, safe, say
from ebbtide.cli.state import WRITTEN_BY_HAND, State
from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.format import plural
from ebbtide.input_files import read_document
from ebbtide.targets.kinds import DEFAULT_WORLD, tested_kinds
from ebbtide.targets.target import Case, CaseResult, PolicySuite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check and test policies.")


@dataclass(frozen=True)
class KnownCase:
    """A case of a suite, and the name of the kind that it is about."""

    kind: str
    case: Case


@app.command("check")
def check(
    policy: Annotated[str, typer.Argument(help="A policy in JSON, TOML or YAML.")],
    kind: Annotated[
        str, typer.Option("--kind", help="The kind of target that the policy is for.", metavar="KIND")
    ] = DEFAULT_WORLD,
    as_json: AsJson = False,
) -> None:
    """Check a policy without setting it: that of a lake, or of the --kind of target that is named."""
    if kind not in tested_kinds():
        raise BadInput(f"--kind is {kind!r}", fix=nearest(kind, tested_kinds()))
    checked = _suite(kind).check(read_document(policy))
    if as_json:
        print_json({"rules": checked.rules, "hash": checked.hash, "warnings": checked.warnings})
        return
    say(f"{plural(checked.rules, 'rule')}, {checked.enabled} enabled")
    for warning in checked.warnings:
        say(f"[yellow]warning:[/yellow] {safe(warning)}")


@app.command("test")
def test(
    context: typer.Context,
    suites: Annotated[list[Path], typer.Argument(help="Suites in JSON or YAML: lists of cases.")],
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Run test suites for policies: all that need Spark in one session; exits 1 if any fails."""
    state: State = context.obj
    cases = [case for suite in suites for case in suite_cases(read_document(str(suite)), str(suite))]
    if any(_suite(case.kind).needs_spark for case in cases):
        from ebbtide.engine.spark.failures import own_errors  # noqa: PLC0415 (some suites need no Spark)

        with state.spark(master, WRITTEN_BY_HAND) as spark, own_errors():
            results = run_suite(spark, cases)
    else:
        results = run_suite(None, cases)
    failed = [result for result in results if not result.passed]
    if as_json:
        print_json([result.to_plain() for result in results])
    else:
        for result in results:
            _show(result)
        say(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def suite_cases(data: Any, origin: str) -> list[KnownCase]:
    """Check a suite; an error names the suite and the case."""
    if not isinstance(data, list):
        raise WorldError(f"{origin}: a suite is a list of cases", fix='write [{"name": ..., "expect": ...}]')
    return [_case(row, f"{origin}: case {index}") for index, row in enumerate(data)]


def _case(data: Any, where: str) -> KnownCase:
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not a table", fix='write {"name": ..., "expect": ...}')
    kind = data.get("kind", DEFAULT_WORLD)
    if kind not in tested_kinds():
        raise WorldError(f"{where}: kind is {kind!r}", fix=nearest(str(kind), tested_kinds()))
    return KnownCase(kind, _suite(kind).case(data, where))


def run_suite(spark: SparkSession | None, cases: Sequence[KnownCase]) -> list[CaseResult]:
    """Evaluate all cases of a kind at once, and return the results in the order of the cases."""
    found: dict[str, Iterator[CaseResult]] = {}
    for kind in dict.fromkeys(case.kind for case in cases):
        found[kind] = iter(_suite(kind).run(spark, [case.case for case in cases if case.kind == kind]))
    return [next(found[case.kind]) for case in cases]


def _suite(name: str) -> PolicySuite:
    suite = tested_kinds()[name].policy_suite()
    if suite is None:
        raise AssertionError(f"{name} has no policy suite")
    return suite


def _show(result: CaseResult) -> None:
    if result.passed:
        say(f"[green]pass[/green]  {safe(result.name)}")
        return
    say(f"[red]FAIL[/red]  {safe(result.name)}")
    for line in result.differences:
        say(f"        {safe(line)}")
