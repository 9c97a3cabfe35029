"""`ebb image policy`: the policies of a registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.registry import records_uid
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.format import plural
from ebbtide.core.instant import format_second
from ebbtide.input_files import read_rules
from ebbtide.state.users import current_user
from ebbtide.targets.oci.client.address import registry_address
from ebbtide.targets.oci.kind import image_records
from ebbtide.targets.oci.policies.document import parse_policies, plain_policy, policies_hash, write_policies
from ebbtide.targets.oci.policies.policy import SYSTEM_POLICIES, Period, Policy, Unit, same_name
from ebbtide.targets.oci.records.model import LogKind
from ebbtide.targets.oci.records.policies import PolicyChange
from ebbtide.targets.oci.records.records import ImageRecords

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The policies of a registry.")

Where = Annotated[
    str, typer.Argument(help="The registry: oci://HOST or oci-layout:FOLDER.", metavar="REGISTRY")
]
Name = Annotated[str, typer.Argument(help="The policy; capitals, hyphens and underscores do not matter.")]
_SYSTEM = {same_name(policy.name) for policy in SYSTEM_POLICIES}


@app.command("ls")
def list_policies(context: typer.Context, registry: Where, as_json: AsJson = False) -> None:
    """List the policies, with the last user who changed each."""
    records, uid = _open(context, registry)
    rows = []
    policies = records.policies(uid)
    for key, policy in sorted(policies.named.items()):
        changes = records.log(uid, subject=policy.name, kind=LogKind.POLICY)
        last = next((entry for entry in changes if not entry.refused), None)
        known = {"system": key in _SYSTEM, "updated_by": last and last.by, "updated_at": last and last.at}
        rows.append(plain_policy(policy) | {"period": str(policy.period or "never")} | known)
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            row["name"],
            row["period"],
            "may go earlier" if row["can_delete_prior"] else "pinned",
            "through the bin" if row["recycle"] else "deleted at once",
            "system" if row["system"] else "",
            f"{row['updated_by']} {format_second(row['updated_at'])}" if row["updated_by"] else "",
        )
        for row in rows
    ]
    table(f"Policies of {safe(registry_address(registry))}", _COLUMNS, cells)
    fate = "are kept" if policies.keeps_unmatched else f"fall under {safe(policies.unmatched)}"
    say(f"tags that no assign rule matches {fate}")


_COLUMNS = ("policy", "period", "before its date", "when it goes", "", "changed by")


@app.command("show")
def show(
    context: typer.Context,
    registry: Where,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the whole document, as 'load' reads it: JSON, or YAML."""
    if as_yaml and as_json:
        raise BadInput("--yaml and --json are given", fix="leave one of them out")
    records, uid = _open(context, registry)
    policies = records.policies(uid)
    document = write_policies(policies) | {"unmatched": policies.unmatched}
    if as_yaml:
        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    else:
        print_json(document)


@app.command("set")
def set_policy(
    context: typer.Context,
    registry: Where,
    name: Name,
    days: Annotated[int | None, typer.Option(help="Days that it lasts.")] = None,
    months: Annotated[int | None, typer.Option(help="Calendar months that it lasts.")] = None,
    years: Annotated[int | None, typer.Option(help="Calendar years that it lasts.")] = None,
    never: Annotated[bool, typer.Option("--never", help="It never expires.")] = False,
    pin: Annotated[
        bool | None, typer.Option("--pin/--no-pin", help="Whether images refuse to go before their date.")
    ] = None,
    recycle: Annotated[
        bool | None, typer.Option("--recycle/--no-recycle", help="Whether deleted images go to the bin.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add or change a policy; other values stay. Images that it was assigned to keep their values."""
    records, uid = _open(context, registry, "change policies")
    given = {Unit.DAYS: days, Unit.MONTHS: months, Unit.YEARS: years}
    periods = [Period(number, unit) for unit, number in given.items() if number is not None]
    if len(periods) + never > 1:
        raise BadInput("more than one period is given", fix="use one of --days, --months, --years, --never")

    def edit(known: Policy | None) -> Policy:
        if known is None and not periods and not never:
            fix = "give --days, --months, --years or --never"
            raise BadInput(f"the new policy {name!r} has no period", fix=fix)
        policy = known or Policy(name)
        return replace(
            policy,
            period=periods[0] if periods else None if never else policy.period,
            can_delete_prior=policy.can_delete_prior if pin is None else not pin,
            recycle=policy.recycle if recycle is None else recycle,
        )

    _answer(registry, records.edit_policy(uid, name, edit, current_user()), as_json=as_json)


@app.command("rename")
def rename(
    context: typer.Context,
    registry: Where,
    name: Name,
    new: Annotated[str, typer.Argument(help="Its new name.")],
    as_json: AsJson = False,
) -> None:
    """Rename a policy; assign rules follow, and images that have it show its old name."""
    records, uid = _open(context, registry, "change policies")
    _answer(registry, records.rename_policy(uid, name, new, current_user()), as_json=as_json)


@app.command("rm")
def remove(context: typer.Context, registry: Where, name: Name, as_json: AsJson = False) -> None:
    """Remove a policy, unless it is a system policy or an assign rule names it."""
    records, uid = _open(context, registry, "change policies")
    _answer(registry, records.remove_policy(uid, name, current_user()), as_json=as_json)


@app.command("load")
def load(
    context: typer.Context,
    registry: Where,
    file: Annotated[Path, typer.Argument(help="The policies in JSON, TOML or YAML.")],
    as_json: AsJson = False,
) -> None:
    """Replace all policies, assign rules and keep_newest rules by those of a file, and show what changes."""
    policies = parse_policies(*read_rules(str(file)))
    records, uid = _open(context, registry, "change policies")
    _answer(registry, records.save_policies(uid, policies, current_user()), as_json=as_json)


def _open(context: typer.Context, registry: str, what: str = "") -> tuple[ImageRecords, str]:
    """Open the records of a registry; `what` says what a command is going to change."""
    state: State = context.obj
    return image_records(state), records_uid(state, registry, what)


def _answer(registry: str, change: PolicyChange, *, as_json: bool) -> None:
    """Show the differences, before and after."""
    if as_json:
        answer = {"registry": registry_address(registry), "hash": policies_hash(change.after)}
        print_json(answer | {"changes": change.differences})
        return
    if not change.differences:
        say("nothing is different")
        return
    say(f"{plural(len(change.differences), 'change')} in {safe(registry_address(registry))}")
    for one in change.differences:
        say(f"  {safe(one.subject)}: {safe(one.what)}")
        say(f"    before: {safe(_words(one.before))}")
        say(f"    after:  {safe(_words(one.after))}")


def _words(value: Any) -> str:
    """Write a policy or the rules of a kind on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_word(one)}" for name, one in value.items())
    return "; ".join(_words(rule) for rule in value or ()) or "-"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
