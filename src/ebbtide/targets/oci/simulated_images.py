"""
Images for simulations and policy tests, as JSON lines: each field is checked, and errors name the place.

`tags` may be plain names; `children` and `subject` may be digests or descriptors with a `digest`.
`quarantine` is null, ``"pending"``, ``"failed"``, or like ``{"state": "failed", "since": "2026-01-01"}``
(`status` is a synonym of `state`; `at`, `time`, `failed_at` and `pending_at` of `since`), or the short
``{"failed": "2026-01-01"}``. Three fields are not in an inventory: `delete_requested` asks to delete a tag or
an image now, `recycle` is the value assigned with the others, and `seen_at` is when a tag first stood for its
digest, or a manifest was first seen, if `moved_at` or `pushed_at` is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ebbtide.core.documents import check_fields, flag_field, json_lines, moment_field, size_field
from ebbtide.core.errors import WorldError
from ebbtide.core.instant import NEVER, format_instant
from ebbtide.targets.oci.client.names import is_tag
from ebbtide.targets.oci.model import Image, ImageVerdict, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.running import is_any_digest

_ASSIGNED = ("policy", "expires_at", "can_delete_prior", "recycle")
IMAGE_FIELDS = (
    *("repository", "digest", "media_type", "tags", "children", "subject", "pushed_at", "untagged_since"),
    *("quarantine", *_ASSIGNED, "size", "delete_requested", "seen_at", "created_at"),
)
TAG_FIELDS = ("name", "moved_at", *_ASSIGNED, "delete_requested", "seen_at")
_STATE = ("state", "status")
_SINCE = ("since", "at", "time", "failed_at", "pending_at")
_NEVER = "never"


def read_lines(text: str, name: str) -> list[Image]:
    """Parse JSON lines; empty ones are skipped."""
    found = [(where, read_image(data, where)) for where, data in json_lines(text, name)]
    check_images(found)
    return [image for _, image in found]


def read_image(data: Any, where: str) -> Image:
    """Parse one image."""
    _check_fields(where, data, IMAGE_FIELDS)
    return Image(
        repository=_text(where, "repository", data.get("repository")),
        digest=_digest(where, "digest", data.get("digest")),
        tags=tuple(_tag(one, f"{where}, tag {n}") for n, one in enumerate(_list(where, "tags", data), 1)),
        children=tuple(_digest(where, "children", one) for one in _list(where, "children", data)),
        subject=None if data.get("subject") is None else _digest(where, "subject", data["subject"]),
        pushed_at=moment_field(where, "pushed_at", data.get("pushed_at")),
        untagged_since=moment_field(where, "untagged_since", data.get("untagged_since")),
        quarantine=_quarantine(where, data.get("quarantine")),
        assigned=_assigned(where, data),
        delete_requested=bool(flag_field(where, "delete_requested", data.get("delete_requested"))),
        media_type=data.get("media_type") and _text(where, "media_type", data["media_type"]),
        size=size_field(where, "size", data.get("size")),
        created_at=moment_field(where, "created_at", data.get("created_at")),
        seen_at=moment_field(where, "seen_at", data.get("seen_at")),
    )


def check_images(images: Iterable[tuple[str, Image]]) -> None:
    """
    Refuse a manifest that is given twice, and a tag that names two: either could be meant.

    Each image comes with its place, and an error names both places.
    """
    seen: dict[str, str] = {}
    for where, image in images:
        _check_once(seen, f"{image.repository}@{image.digest}", where, "write one line for each manifest")
        for tag in image.tags:
            fix = "a tag names one manifest: remove it from the other"
            _check_once(seen, f"{image.repository}:{tag.name}", where, fix)


def _check_once(seen: dict[str, str], name: str, where: str, fix: str) -> None:
    if name in seen:
        raise WorldError(f"{where}: {name} is there twice", why=f"it is also in {seen[name]}", fix=fix)
    seen[name] = where


def plain_judgement(judgement: ImageVerdict) -> dict[str, Any]:
    """Return the public JSON form of a verdict."""
    name = {"digest": judgement.digest} if judgement.tag is None else {"tag": judgement.tag}
    return {
        "repository": judgement.repository,
        **name,
        "decision": str(judgement.decision),
        "policy": judgement.policy,
        "deadline": None if judgement.deadline is None else format_instant(judgement.deadline),
        "held_by": list(judgement.held_by),
        **({"unmatched": True} if judgement.unmatched else {}),
    }


def _tag(data: Any, where: str) -> Tag:
    fields = {"name": data} if isinstance(data, str) else data
    _check_fields(where, fields, TAG_FIELDS)
    name = _text(where, "name", fields.get("name"))
    if not is_tag(name):
        fix = "use letters, digits, '_', '.' and '-', 128 at most, and no '.' or '-' at the beginning"
        raise WorldError(f"{where}: {name!r} is not a tag", fix=fix)
    moved = moment_field(where, "moved_at", fields.get("moved_at"))
    asked = bool(flag_field(where, "delete_requested", fields.get("delete_requested")))
    seen = moment_field(where, "seen_at", fields.get("seen_at"))
    return Tag(name, moved, _assigned(where, fields), asked, seen)


def _assigned(where: str, data: dict[str, Any]) -> Assigned:
    date = data.get("expires_at")
    never = isinstance(date, str) and date.strip().casefold() == _NEVER
    return Assigned(
        None if data.get("policy") is None else _text(where, "policy", data["policy"]),
        NEVER if never else moment_field(where, "expires_at", date),
        flag_field(where, "can_delete_prior", data.get("can_delete_prior")),
        flag_field(where, "recycle", data.get("recycle")),
    )


def _quarantine(where: str, value: Any) -> Quarantine | None:
    if value is None:
        return None
    states = [str(state) for state in QuarantineState]
    if isinstance(value, str):
        value = {"state": value}
    if isinstance(value, dict) and len(value) == 1 and {*value} <= {*states}:
        value = {"state": next(iter(value)), "since": next(iter(value.values()))}
    _check_fields(f"{where}: quarantine", value, (*_STATE, *_SINCE))
    found = [value[name] for name in _STATE if value.get(name) is not None]
    times = [value[name] for name in _SINCE if value.get(name) is not None]
    if len(found) != 1 or len(times) > 1 or found[0] not in states:
        fix = 'write null, "pending", or {"state": "failed", "since": "2026-01-01T00:00:00Z"}'
        raise WorldError(f"{where}: quarantine is {value!r}", fix=fix)
    return Quarantine(
        QuarantineState(found[0]), moment_field(where, "quarantine", times[0] if times else None)
    )


def _check_fields(where: str, data: Any, known: tuple[str, ...]) -> None:
    if not isinstance(data, dict):
        raise WorldError(f"{where} is {data!r}, not a table", fix='write {"repository": ..., "digest": ...}')
    check_fields(where, data, known)


def _list(where: str, name: str, data: dict[str, Any]) -> list[Any]:
    value = data.get(name)
    if value is not None and not isinstance(value, list):
        raise WorldError(f"{where}: {name} is {value!r}", fix="write a list")
    return value or []


def _text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise WorldError(f"{where}: {name} is {value!r}", fix="write text")
    return value


def _digest(where: str, name: str, value: Any) -> str:
    """Parse a digest, or the digest of a descriptor."""
    found = value.get("digest") if isinstance(value, dict) else value
    if not isinstance(found, str) or not is_any_digest(found):
        raise WorldError(f"{where}: {name} is {found!r}", fix="write a digest such as sha256:0a1b...")
    return found
