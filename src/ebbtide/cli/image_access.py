"""`ebb image adopt`, `role` and `log`: who may change a registry, and who has changed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.registry import identified_registry, records_uid
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import format_instant, format_second
from ebbtide.state.users import current_user
from ebbtide.targets.oci.client.address import image_ref, registry_address
from ebbtide.targets.oci.kind import image_records, registry_context
from ebbtide.targets.oci.records.model import EVERYWHERE, LogEntry, Role, read_role

app = typer.Typer(add_completion=False)
roles = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Who may change policies, and who may change images."
)
app.add_typer(roles, name="role")


@app.command()
def adopt(
    context: typer.Context,
    registry: Annotated[
        str, typer.Argument(help="The registry: oci://HOST or oci-layout:FOLDER.", metavar="REGISTRY")
    ],
    as_new: Annotated[
        bool,
        typer.Option(
            "--as-new", help="It is another registry than was recorded, or a copy: begin new records."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """
    Make a registry known: it gets its marker, and its name is recorded.

    Needed if other registries have roles. The effect of its policies is confirmed by its first plan.
    """
    from ebbtide.targets.oci.purge.identity import adopt_as_new  # noqa: PLC0415 (it loads much)

    state: State = context.obj
    target_context = registry_context(state, registry)
    known = target_context.records.identity(target_context.name) is not None
    if as_new:
        adopt_as_new(target_context, current_user())
    else:
        target_context.records.check_may_adopt(target_context.name, target_context.uid, current_user())
        target_context = identified_registry(state, registry, "adopt the registry", adopt=True)
    found = target_context.records.identity(target_context.name)
    marker = found.marker if found is not None else ""
    if as_json:
        print_json({"registry": target_context.name, "marker": marker, "was_known": known})
        return
    word = "is known already" if known and not as_new else "was adopted"
    say(
        f"{safe(target_context.name)} {word}"
        + (f"; its marker is {marker}" if marker else ", by its name alone")
    )


Where = Annotated[
    str,
    typer.Argument(help="The registry: oci://HOST, oci-layout:FOLDER, or '*' for all.", metavar="REGISTRY"),
]
User = Annotated[str, typer.Argument(help="The user or service, as EBBTIDE_USER or the system names it.")]
RoleName = Annotated[str, typer.Argument(help=f"The role: {' or '.join(Role)}.", metavar="ROLE")]


@roles.command("grant")
def grant(
    context: typer.Context, registry: Where, user: User, role: RoleName, as_json: AsJson = False
) -> None:
    """Grant a role. With the first role in a registry, its granter also becomes a purge-policy-writer."""
    state: State = context.obj
    records, uid, by = image_records(state), _uid(state, registry, "grant a role"), current_user()
    known = {(one.member, one.role) for one in records.grants(uid)}
    before, after = records.grant(uid, user, read_role(role), by)
    kept = (by, Role.POLICY_WRITER) in {(one.member, one.role) for one in records.grants(uid)} - {*known}
    _answer(registry, user, before, after, as_json=as_json, granter=by if kept and by != user else "")


@roles.command("revoke")
def revoke(
    context: typer.Context, registry: Where, user: User, role: RoleName, as_json: AsJson = False
) -> None:
    """Revoke a role; the last purge-policy-writer can only be revoked after all other roles."""
    state: State = context.obj
    before, after = image_records(state).revoke(_uid(state, registry), user, read_role(role), current_user())
    _answer(registry, user, before, after, as_json=as_json)


@roles.command("ls")
def list_roles(context: typer.Context, registry: Where, as_json: AsJson = False) -> None:
    """List the roles in a registry, including those in all registries."""
    state: State = context.obj
    found = image_records(state).grants(_uid(state, registry))
    if as_json:
        rows = [{"user": one.member, "role": one.role, "in": _where(registry, one.uid)} for one in found]
        print_json([row | {"at": one.at, "by": one.by} for row, one in zip(rows, found, strict=True)])
        return
    if not found:
        say("there are no roles here, so every user of the database may do everything")
        return
    cells = [
        (one.member, one.role, _where(registry, one.uid), one.by, format_second(one.at)) for one in found
    ]
    table("Roles", ("user", "role", "in", "granted by", "at"), cells)


def _uid(state: State, registry: str, what: str = "") -> str:
    return EVERYWHERE if registry == EVERYWHERE else records_uid(state, registry, what)


def _where(registry: str, uid: str) -> str:
    return "all registries" if uid == EVERYWHERE else registry_address(registry)


def _answer(
    registry: str, user: str, before: list[Role], after: list[Role], *, as_json: bool, granter: str = ""
) -> None:
    """Show a user's roles before and after, and whether the granter became a policy writer."""
    if as_json:
        also = {"also": {granter: [Role.POLICY_WRITER]}} if granter else {}
        print_json({"registry": registry, "user": user, "before": before, "after": after} | also)
        return
    say(f"{safe(user)}: {', '.join(before) or 'no role'} -> {', '.join(after) or 'no role'}")
    if granter:
        say(f"{safe(granter)} also gets {Role.POLICY_WRITER}: this is the first grant here, and a user")
        say(f"must be able to make others; revoke it when {safe(user)} or another user has it")


@app.command()
def log(
    context: typer.Context,
    registry: Annotated[str, typer.Argument(help="The registry: oci://HOST or oci-layout:FOLDER.")],
    subject: Annotated[
        str | None,
        typer.Argument(help="Only this: REPO:TAG, REPO@DIGEST, a whole image, a policy, a user or 'run 7'."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="The most entries to show; 0 shows all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the log, newest first; with --json one entry per line."""
    state: State = context.obj
    entries = image_records(state).log(
        records_uid(state, registry), subject=_subject(state, registry, subject), limit=limit or None
    )
    shown = 0
    for entry in entries:
        shown += 1
        if as_json:
            print(json.dumps(plain_entry(entry), ensure_ascii=False))
        else:
            _show(entry)
    if not shown and not as_json:
        say("the log has nothing about it")


def plain_entry(entry: LogEntry) -> dict[str, Any]:
    """Return an entry as plain data."""
    return {
        "id": entry.id,
        "at": format_instant(entry.at),
        "by": entry.by,
        "kind": str(entry.kind),
        "subject": entry.subject,
        "what": entry.what,
        "before": entry.before,
        "after": entry.after,
        "refused": entry.refused or None,
    }


def _subject(state: State, registry: str, subject: str | None) -> str:
    """Return the subject to look for; a full image reference must belong to this registry."""
    if not subject or not subject.startswith(("oci://", "oci-layout:", "file:")):
        return subject or ""
    image = image_ref(subject)
    if records_uid(state, image.registry) != records_uid(state, registry):
        raise BadInput(f"{subject} is not in {registry}", fix="name the registry that the image is in")
    return image.name


def _show(entry: LogEntry) -> None:
    at = format_second(entry.at)
    say(f"{at}  {safe(entry.by)}  {entry.kind}  [bold]{safe(entry.subject)}[/bold]: {safe(entry.what)}")
    if entry.refused:
        say(f"    [yellow]refused[/yellow]: {safe(entry.refused)}")
    elif isinstance(entry.before, Mapping) and isinstance(entry.after, Mapping):
        for name in {**entry.before, **entry.after}:
            old, new = entry.before.get(name), entry.after.get(name)
            if old != new:
                say(f"    {safe(name)}: {safe(json.dumps(old))} -> {safe(json.dumps(new))}")
    elif (entry.before, entry.after) != (None, None):
        say(f"    {safe(json.dumps(entry.before))} -> {safe(json.dumps(entry.after))}")
