"""`ebb policy`: check policies and test them, the way people test code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, Master, print_json, safe, say
from ebbtide.cli.simulate import read_document
from ebbtide.cli.state import State
from ebbtide.lake.lifecycle.policies import policy_warnings
from ebbtide.lake.policy_suite import CaseResult, run_cases, suite_cases
from ebbtide.rules.lake_policy_parser import lake_policy, policy_hash
from ebbtide.tables.failures import own_errors

app = typer.Typer(no_args_is_help=True, help="Check and test policies.")


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
    say(f"{len(parsed.rules)} rules, {len(parsed.enabled)} enabled")
    for warning in warnings:
        say(f"[yellow]warning:[/yellow] {safe(warning)}")


@app.command("test")
def test(
    context: typer.Context,
    suites: Annotated[list[Path], typer.Argument(help="Suites in JSON or YAML: lists of cases.")],
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Run test suites for policies: all cases in one Spark session; exits 1 if any fails."""
    state: State = context.obj
    cases = [case for suite in suites for case in suite_cases(read_document(str(suite)), str(suite))]
    with state.spark(master) as spark, own_errors():
        results = run_cases(spark, cases)
    failed = [result for result in results if not result.passed]
    if as_json:
        print_json([result.to_plain() for result in results])
    else:
        for result in results:
            _show(result)
        say(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def _show(result: CaseResult) -> None:
    if result.passed:
        say(f"[green]pass[/green]  {safe(result.name)}")
        return
    say(f"[red]FAIL[/red]  {safe(result.name)}")
    say(f"        expected {_lists(result.expected)}")
    say(f"        actual   {_lists(result.actual)}")


def _lists(value: dict[str, Any]) -> str:
    return safe("; ".join(f"{name} {', '.join(items) or 'nothing'}" for name, items in value.items()))
