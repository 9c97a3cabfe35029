"""`ebb image role`: who may change the policies of a registry, and who its images."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.core.instant import format_second
from ebbtide.state.actors import current_user
from ebbtide.targets.oci.client.address import registry_address
from ebbtide.targets.oci.records.model import EVERYWHERE, Role, read_role

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Who may change policies, and who may change images."
)

Where = Annotated[
    str,
    typer.Argument(help="The registry: oci://HOST, oci-layout:FOLDER, or '*' for all.", metavar="REGISTRY"),
]
User = Annotated[str, typer.Argument(help="The user or service, as EBBTIDE_USER or the system names it.")]
RoleName = Annotated[str, typer.Argument(help=f"The role: {' or '.join(Role)}.", metavar="ROLE")]


@app.command("grant")
def grant(
    context: typer.Context, registry: Where, user: User, role: RoleName, as_json: AsJson = False
) -> None:
    """Give a role. With the first in a registry its granter becomes a purge-policy-writer, too."""
    state: State = context.obj
    records, uid, by = state.image_records, _uid(state, registry, "grant a role"), current_user()
    known = {(one.member, one.role) for one in records.grants(uid)}
    before, after = records.grant(uid, user, read_role(role), by)
    kept = (by, Role.POLICY_WRITER) in {(one.member, one.role) for one in records.grants(uid)} - {*known}
    _answer(registry, user, before, after, as_json=as_json, granter=by if kept and by != user else "")


@app.command("revoke")
def revoke(
    context: typer.Context, registry: Where, user: User, role: RoleName, as_json: AsJson = False
) -> None:
    """Take a role away; the last purge-policy-writer goes last."""
    state: State = context.obj
    before, after = state.image_records.revoke(_uid(state, registry), user, read_role(role), current_user())
    _answer(registry, user, before, after, as_json=as_json)


@app.command("ls")
def list_roles(context: typer.Context, registry: Where, as_json: AsJson = False) -> None:
    """List who has a role in a registry, there or in all."""
    state: State = context.obj
    found = state.image_records.grants(_uid(state, registry))
    if as_json:
        rows = [{"user": one.member, "role": one.role, "in": _where(registry, one.uid)} for one in found]
        print_json([row | {"at": one.at, "by": one.by} for row, one in zip(rows, found, strict=True)])
        return
    if not found:
        say("nobody has a role here, so whoever can open the database may do everything")
        return
    cells = [
        (one.member, one.role, _where(registry, one.uid), one.by, format_second(one.at)) for one in found
    ]
    table("Roles", ("user", "role", "in", "granted by", "at"), cells)


def _uid(state: State, registry: str, what: str = "") -> str:
    return EVERYWHERE if registry == EVERYWHERE else state.registry_records(registry, what)


def _where(registry: str, uid: str) -> str:
    return "all registries" if uid == EVERYWHERE else registry_address(registry)


def _answer(
    registry: str, user: str, before: list[Role], after: list[Role], *, as_json: bool, granter: str = ""
) -> None:
    """Show somebody's roles before and after, and that the granter became a policy writer, too."""
    if as_json:
        also = {"also": {granter: [Role.POLICY_WRITER]}} if granter else {}
        print_json({"registry": registry, "user": user, "before": before, "after": after} | also)
        return
    say(f"{safe(user)}: {', '.join(before) or 'no role'} -> {', '.join(after) or 'no role'}")
    if granter:
        say(f"{safe(granter)} also gets {Role.POLICY_WRITER}: it is the first grant here, and somebody")
        say(f"must be able to make others; revoke it when {safe(user)} or another has it")
