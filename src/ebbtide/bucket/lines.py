"""Versions and uploads written by hand, one a line: each field is what it must be, or an error says where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ebbtide.bucket.model import Upload, Verdict, Version
from ebbtide.errors import BadInput, WorldError
from ebbtide.rules.documents import nearest
from ebbtide.rules.instant import format_instant, parse_instant
from ebbtide.rules.s3.storage_classes import STANDARD

VERSION_FIELDS = (
    "kind",
    "key",
    "version_id",
    "last_modified",
    "is_latest",
    "is_delete_marker",
    "size",
    "storage_class",
    "tags",
    "etag",
    "legal_hold",
    "retain_until",
    "replication_status",
    "restoring",
)
UPLOAD_FIELDS = ("kind", "key", "upload_id", "initiated")
_NULL = "null"
_HOLD_WORDS = {"ON": True, "OFF": False}


def read_lines(text: str, name: str) -> list[Version | Upload]:
    """Read JSON lines; empty ones are passed over."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{name}, line {number}"
            try:
                data = json.loads(line)
            except ValueError as broken:
                raise WorldError(
                    f"{where} is not JSON: {broken}", fix="write one JSON object a line"
                ) from None
            found.append(read_item(data, where))
    check_items(found, name)
    return found


def read_item(data: Any, where: str) -> Version | Upload:
    """Read one version, delete marker or upload."""
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not an object", fix='write {"key": ..., "last_modified": ...}')
    kind = data.get("kind", "version")
    if kind not in ("version", "upload"):
        raise WorldError(f"{where}: kind is {kind!r}", fix="write version or upload, or leave it out")
    fields = UPLOAD_FIELDS if kind == "upload" else VERSION_FIELDS
    for name in data:
        if name not in fields:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(str(name), fields))
    return _upload(data, where) if kind == "upload" else _version(data, where)


def check_items(items: Iterable[Version | Upload], where: str) -> None:
    """Refuse an item that is given twice: the two could not be told apart."""
    seen = set[tuple[str, ...]]()
    for item in items:
        name = item.upload_id if isinstance(item, Upload) else item.version_id
        kind = "upload" if isinstance(item, Upload) else "version"
        identity = kind, item.key, name
        if identity in seen:
            raise WorldError(f"{where}: {kind} {name!r} of {item.key!r} is given twice", fix="give each once")
        seen.add(identity)


def plain_verdict(item: Version | Upload, verdict: Verdict) -> dict[str, Any]:
    """Give the public form of what is to be done with one item."""
    name = {"upload_id": item.upload_id} if isinstance(item, Upload) else {"version_id": item.version_id}
    return {
        "key": item.key,
        **name,
        "action": str(verdict.action),
        "storage_class": verdict.storage_class,
        "rule_id": verdict.rule_id,
        "due": None if verdict.due is None else format_instant(verdict.due),
        "held_by": None if verdict.held_by is None else str(verdict.held_by),
    }


def _version(data: Mapping[str, Any], where: str) -> Version:
    return Version(
        key=_text(where, "key", data.get("key")),
        version_id=_text(where, "version_id", data.get("version_id") or _NULL),
        last_modified=_moment(where, "last_modified", data.get("last_modified")),
        is_latest=_flag(where, "is_latest", data.get("is_latest")),
        is_delete_marker=bool(_flag(where, "is_delete_marker", data.get("is_delete_marker"))),
        size=_size(where, data.get("size")),
        storage_class=_text(where, "storage_class", data.get("storage_class") or STANDARD),
        tags=_tags(where, data.get("tags")),
        etag=None if data.get("etag") is None else _text(where, "etag", data["etag"]),
        legal_hold=bool(_flag(where, "legal_hold", data.get("legal_hold"))),
        retain_until=_moment(where, "retain_until", data.get("retain_until")),
        replication_status=data.get("replication_status")
        and _text(where, "replication_status", data["replication_status"]),
        restoring=bool(_flag(where, "restoring", data.get("restoring"))),
    )


def _upload(data: Mapping[str, Any], where: str) -> Upload:
    return Upload(
        _text(where, "key", data.get("key")),
        _text(where, "upload_id", data.get("upload_id")),
        _moment(where, "initiated", data.get("initiated")),
    )


def _text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise WorldError(f"{where}: {name} is {value!r}", fix="write text")
    return value


def _flag(where: str, name: str, value: Any) -> bool | None:
    value = _HOLD_WORDS.get(value, value) if isinstance(value, str) else value
    if value is not None and not isinstance(value, bool):
        raise WorldError(f"{where}: {name} is {value!r}", fix="write true or false")
    return value


def _size(where: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise WorldError(f"{where}: size is {value!r}", fix="write a whole number of bytes")
    return value


def _moment(where: str, name: str, value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        return parse_instant(value)
    except BadInput as wrong:
        raise WorldError(f"{where}: {name}: {wrong.what}", fix=wrong.fix) from None


def _tags(where: str, value: Any) -> dict[str, str] | None:
    """Read tags as a table, or as S3 writes them: a list of Key and Value."""
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(tag, dict) and {*tag} == {"Key", "Value"} for tag in value):
        value = {tag["Key"]: tag["Value"] for tag in value}
    if not isinstance(value, dict) or not all(
        isinstance(key, str) and isinstance(text, str) for key, text in value.items()
    ):
        raise WorldError(f"{where}: tags are {value!r}", fix='write {"project": "blue"}')
    return value
