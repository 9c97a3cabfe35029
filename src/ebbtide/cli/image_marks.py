"""`ebb image assign`, `pin`, `unpin` and `quarantine`: change the mark of one image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say
from ebbtide.cli.registry import identified_registry
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import NEVER, format_second, parse_instant
from ebbtide.state.users import current_user
from ebbtide.targets.oci.client.address import ImageRef, image_ref
from ebbtide.targets.oci.kind import image_records, registry_context
from ebbtide.targets.oci.model import QuarantineState
from ebbtide.targets.oci.records.mark_operations import Operation, assigning, pinning, quarantining, unpinning
from ebbtide.targets.oci.records.model import Mark, Target

app = typer.Typer(add_completion=False)

Ref = Annotated[
    str,
    typer.Argument(
        help="The image: oci://HOST/REPO:TAG, oci://HOST/REPO@DIGEST or oci-layout:FOLDER//REPO:TAG."
    ),
]
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")
_NOTHING: Mapping[str, Any] = Mark(Target("", "", "")).plain()


def change_image(
    state: State, text: str, operation: Operation, what: str, *, as_json: bool, manifest: bool = False
) -> None:
    """Change the mark of an existing image, and show it before and after."""
    image = image_ref(text)
    target = find_image(state, image)
    if manifest:
        target = replace(target, tag="")
    from ebbtide.targets.oci.purge.last_scan import copied_before  # noqa: PLC0415 (Arrow takes a while to load)

    uid = identified_registry(state, image.registry, what).uid
    seen = copied_before(image_records(state), state.root, uid, image.registry, target)
    change = image_records(state).change_mark(uid, target, operation, current_user(), what, seen)
    before, after = (_plain(mark) for mark in (change.before, change.after))
    if as_json:
        answer = {"registry": image.registry, "image": str(target), "digest": target.digest, "what": what}
        print_json(answer | {"before": before, "after": after})
        return
    say(f"{safe(target)}: {safe(what)}")
    _show(before, after)


def find_image(state: State, image: ImageRef) -> Target:
    """Resolve a name in the registry, so that only an existing image is marked."""
    with registry_context(state, image.registry).opened() as registry:
        found = registry.resolve(image.repository, image.reference)
    return Target(image.repository, image.tag, found.digest)


def _plain(mark: Mark | None) -> dict[str, Any] | None:
    return None if mark is None else mark.plain()


def _show(before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
    """Show the values that are different, and those that are not."""
    old, new = before or _NOTHING, after or _NOTHING
    for name, value in new.items():
        if name == "digest" and not old["digest"]:
            say(f"  digest: {safe(value)}")
        elif old[name] != value:
            say(f"  {name}: {safe(_word(old[name]))} -> {safe(_word(value))}")
        elif value not in (None, ""):
            say(f"  {name}: {safe(_word(value))}")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return format_second(parse_instant(value))
    return "-" if value in (None, "") else str(value)


@app.command()
def assign(
    context: typer.Context,
    ref: Ref,
    policy: Annotated[str, typer.Argument(help="The policy; see 'ebb image policy ls'.")],
    until: Annotated[
        str | None, typer.Option(help="Expire at this time instead of after the policy's period.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Assign a policy, or assign it again: its values as they are now, its date counted from now."""
    date = parse_instant(until) if until else None
    what = f"assign {policy}" + (f" until {format_second(date)}" if date else "")
    change_image(context.obj, ref, assigning(policy, date), what, as_json=as_json)


@app.command()
def pin(
    context: typer.Context,
    ref: Ref,
    until: Annotated[
        str | None, typer.Option(help="Until this time; without it the image is never deleted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pin an image: it cannot be deleted until the date, or ever."""
    date = parse_instant(until) if until else NEVER
    what = "pin for ever" if date == NEVER else f"pin until {format_second(date)}"
    change_image(context.obj, ref, pinning(date), what, as_json=as_json)


@app.command()
def unpin(context: typer.Context, ref: Ref, as_json: AsJson = False) -> None:
    """Remove a pin. The policy is assigned again from now, so that nothing is deleted at once."""
    change_image(context.obj, ref, unpinning, "unpin", as_json=as_json)


@app.command()
def quarantine(
    context: typer.Context,
    ref: Ref,
    pending: Annotated[bool, typer.Option("--pending", help="Its check is pending: it is held.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It failed: Quarantine Failed counts.")] = False,
    passed: Annotated[
        bool, typer.Option("--passed", help="It passed: its earlier policy applies again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Mark the manifest that a name refers to: its check is pending, failed or passed."""
    if [pending, failed, passed].count(True) != 1:
        raise BadInput("the result of the check is not clear", fix="give --pending, --failed or --passed")
    state = QuarantineState.PENDING if pending else QuarantineState.FAILED if failed else None
    what = f"quarantine {state or 'passed'}"
    change_image(context.obj, ref, quarantining(state), what, as_json=as_json, manifest=True)
