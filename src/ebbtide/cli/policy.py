"""`ebb policy`: check policies and test them, the way people test code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

from ebbtide.cli.console import AsJson, Master, print_json, safe, say
from ebbtide.cli.simulate import read_document
from ebbtide.cli.state import State
from ebbtide.core.documents import nearest
from ebbtide.core.errors import WorldError
from ebbtide.core.format import plural
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.lake import policy_suite as lakes
from ebbtide.targets.lake.lifecycle.policies import policy_warnings
from ebbtide.targets.oci import policy_suite as registries
from ebbtide.targets.repository.policy import lake_policy, policy_hash
from ebbtide.targets.s3 import policy_suite as buckets

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check and test policies.")

Case = lakes.Case | buckets.Case | registries.Case
Result = lakes.CaseResult | buckets.CaseResult | registries.CaseResult
_KINDS: dict[str, Callable[[dict[str, Any], str], Case]] = {
    "lake": lakes.lake_case,
    "bucket": buckets.bucket_case,
    "registry": registries.registry_case,
}


@app.command("check")
def check(
    policy: Annotated[str, typer.Argument(help="A policy in JSON, TOML or YAML.")],
    as_json: AsJson = False,
) -> None:
    """Check a lake policy without setting it."""
    parsed = lake_policy(read_document(policy))
    warnings = policy_warnings(parsed)
    if as_json:
        print_json({"rules": len(parsed.rules), "hash": policy_hash(parsed), "warnings": warnings})
        return
    say(f"{plural(len(parsed.rules), 'rule')}, {len(parsed.enabled)} enabled")
    for warning in warnings:
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
    if all(isinstance(case, registries.Case) for case in cases):
        results = run_suite(None, cases)
    else:
        with state.spark(master) as spark, own_errors():
            results = run_suite(spark, cases)
    failed = [result for result in results if not result.passed]
    if as_json:
        print_json([result.to_plain() for result in results])
    else:
        for result in results:
            _show(result)
        say(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def suite_cases(data: Any, origin: str) -> list[Case]:
    """Check a suite; an error names the suite and the case."""
    if not isinstance(data, list):
        raise WorldError(f"{origin}: a suite is a list of cases", fix='write [{"name": ..., "expect": ...}]')
    return [_case(row, f"{origin}: case {index}") for index, row in enumerate(data)]


def _case(data: Any, where: str) -> Case:
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not a table", fix='write {"name": ..., "expect": ...}')
    kind = data.get("kind", "lake")
    if kind not in _KINDS:
        raise WorldError(f"{where}: kind is {kind!r}", fix=nearest(str(kind), _KINDS))
    return _KINDS[kind](data, where)


def run_suite(spark: SparkSession | None, cases: Sequence[Case]) -> list[Result]:
    """Judge all cases of a kind at once, and give the results in their order; registries need no Spark."""
    of_registries = registries.run_cases([case for case in cases if isinstance(case, registries.Case)])
    found: dict[type[Case], Iterator[Result]] = {registries.Case: iter(of_registries)}
    if spark is not None:
        of_lakes = [case for case in cases if isinstance(case, lakes.Case)]
        of_buckets = [case for case in cases if isinstance(case, buckets.Case)]
        found[lakes.Case] = iter(lakes.run_cases(spark, of_lakes))
        found[buckets.Case] = iter(buckets.run_cases(spark, of_buckets))
    return [next(found[type(case)]) for case in cases]


def _show(result: Result) -> None:
    if result.passed:
        say(f"[green]pass[/green]  {safe(result.name)}")
        return
    say(f"[red]FAIL[/red]  {safe(result.name)}")
    for line in result.differences():
        say(f"        {safe(line)}")
