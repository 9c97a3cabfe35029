"""`ebb lake policy` and `ebb lake retention`: the rules of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, say_next
from ebbtide.cli.state import State
from ebbtide.core.documents import parse_document
from ebbtide.core.errors import NotFound
from ebbtide.core.format import plural
from ebbtide.input_files import read_rules
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.repository.policy import lake_policy, parse_lake_policy, policy_hash, policy_warnings
from ebbtide.targets.repository.retention_rules import (
    RetentionRules,
    parse_retention,
    retention_hash,
    retention_rules,
)

app = typer.Typer(add_completion=False)
policies = typer.Typer(no_args_is_help=True, add_completion=False, help="A repository's lifecycle policy.")
retentions = typer.Typer(no_args_is_help=True, add_completion=False, help="A repository's retention rules.")
app.add_typer(policies, name="policy")
app.add_typer(retentions, name="retention")

Repo = Annotated[str, typer.Argument(help="The repository.")]


@policies.command("set")
def set_policy(
    context: typer.Context,
    repo: Repo,
    file: Annotated[Path, typer.Argument(help="The policy in JSON, TOML or YAML.")],
    as_json: AsJson = False,
) -> None:
    """Check a policy and make it the repository's."""
    state: State = context.obj
    text, fmt = read_rules(str(file))
    policy = parse_lake_policy(text, fmt)
    shared_catalog(state).set_policy(repo, text, fmt)
    warnings = policy_warnings(policy)
    if as_json:
        print_json({"repository": repo, "hash": policy_hash(policy), "warnings": warnings})
        return
    say(f"{safe(repo)} has a policy of {plural(len(policy.rules), 'rule')}")
    for warning in warnings:
        say(f"[yellow]warning:[/yellow] {safe(warning)}")
    say_next(state.command("plan", f"lake:{repo}"))


@policies.command("get")
def get_policy(context: typer.Context, repo: Repo, as_json: AsJson = False) -> None:
    """Print the repository's policy as it was set."""
    state: State = context.obj
    stored = shared_catalog(state).policy(repo)
    if stored is None:
        raise NotFound(f"{repo} has no policy", fix=f"set one with 'ebb lake policy set {repo} FILE'")
    text, fmt = stored
    if as_json:
        lake_policy(parse_document(text, fmt))
        print_json(parse_document(text, fmt))
    else:
        typer.echo(text.rstrip("\n"))


@retentions.command("set")
def set_retention(
    context: typer.Context,
    repo: Repo,
    file: Annotated[Path, typer.Argument(help="The retention rules in JSON, TOML or YAML.")],
    as_json: AsJson = False,
) -> None:
    """Check retention rules and make them the repository's."""
    state: State = context.obj
    text, fmt = read_rules(str(file))
    rules = parse_retention(text, fmt)
    version = shared_catalog(state).set_retention(repo, text, fmt)
    if as_json:
        print_json({"repository": repo, "version": version, "hash": retention_hash(rules)})
    else:
        say(f"{safe(repo)} keeps {_described(rules)}")


@retentions.command("get")
def get_retention(context: typer.Context, repo: Repo, as_json: AsJson = False) -> None:
    """Print the repository's retention rules as they were set."""
    state: State = context.obj
    stored = shared_catalog(state).retention(repo)
    if stored is None:
        raise NotFound(
            f"{repo} has no retention rules", fix=f"set them with 'ebb lake retention set {repo} FILE'"
        )
    text, fmt = stored
    if as_json:
        document = parse_document(text, fmt, name="retention")
        retention_rules(document)
        print_json(document)
    else:
        typer.echo(text.rstrip("\n"))


def _described(rules: RetentionRules) -> str:
    default = "forever" if rules.default_days is None else f"for {plural(rules.default_days, 'day')}"
    named = "".join(
        f", those of {safe(name)} for {plural(days, 'day')}" for name, days in rules.branch_days.items()
    )
    tags = "tagged ones as long as the tag" if rules.tags_protect else "tags protect nothing"
    return f"old commits {default}{named}; {tags}"
