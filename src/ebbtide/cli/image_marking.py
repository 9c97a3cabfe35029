"""What commands that change one image share: the registry is asked for it, then its mark is changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from ebbtide.cli.console import print_json, safe, say
from ebbtide.cli.state import State
from ebbtide.core.instant import format_second, parse_instant
from ebbtide.state.actors import current_user
from ebbtide.targets.oci.client.image_ref import ImageRef, image_ref
from ebbtide.targets.oci.records.marking import Operation
from ebbtide.targets.oci.records.model import Mark, Target

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
    """Do something to an image that is there, and show its mark before and after."""
    image = image_ref(text)
    target = find_image(state, image)
    if manifest:
        target = replace(target, tag="")
    from ebbtide.targets.oci.purge.known import copied_before  # noqa: PLC0415 (Arrow takes a while to load)

    uid = state.identified_registry(image.registry, what).uid
    seen = copied_before(state.image_records, state.root, uid, image.registry, target)
    change = state.image_records.change_mark(uid, target, operation, current_user(), what, seen)
    before, after = (_plain(mark) for mark in (change.before, change.after))
    if as_json:
        answer = {"registry": image.registry, "image": str(target), "digest": target.digest, "what": what}
        print_json(answer | {"before": before, "after": after})
        return
    say(f"{safe(target)}: {safe(what)}")
    _show(before, after)


def find_image(state: State, image: ImageRef) -> Target:
    """Ask the registry what the name stands for now, so that only what exists is marked."""
    with state.registry_shop(image.registry).opened() as registry:
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
