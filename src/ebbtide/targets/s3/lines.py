"""Versions and uploads written by hand, one a line: each field is what it must be, or an error says where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ebbtide.core.documents import nearest
from ebbtide.core.errors import WorldError
from ebbtide.core.instant import format_instant
from ebbtide.core.lines import flag_field, json_lines, moment_field, size_field, text_field
from ebbtide.targets.s3.model import Upload, Verdict, Version
from ebbtide.targets.s3.rules.storage_classes import STANDARD

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
    "restored_until",
)
UPLOAD_FIELDS = ("kind", "key", "upload_id", "initiated")
_NULL = "null"
_HOLD_WORDS = {"ON": True, "OFF": False}


def read_lines(text: str, name: str) -> list[Version | Upload]:
    """Read JSON lines; empty ones are passed over."""
    found = [read_item(data, where) for where, data in json_lines(text, name)]
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
        key=text_field(where, "key", data.get("key")),
        version_id=text_field(where, "version_id", data.get("version_id") or _NULL),
        last_modified=moment_field(where, "last_modified", data.get("last_modified")),
        is_latest=_flag(where, "is_latest", data.get("is_latest")),
        is_delete_marker=bool(_flag(where, "is_delete_marker", data.get("is_delete_marker"))),
        size=size_field(where, "size", data.get("size")),
        storage_class=text_field(where, "storage_class", data.get("storage_class") or STANDARD),
        tags=_tags(where, data.get("tags")),
        etag=None if data.get("etag") is None else text_field(where, "etag", data["etag"]),
        legal_hold=bool(_flag(where, "legal_hold", data.get("legal_hold"))),
        retain_until=moment_field(where, "retain_until", data.get("retain_until")),
        replication_status=data.get("replication_status")
        and text_field(where, "replication_status", data["replication_status"]),
        restoring=bool(_flag(where, "restoring", data.get("restoring"))),
        restored_until=moment_field(where, "restored_until", data.get("restored_until")),
    )


def _upload(data: Mapping[str, Any], where: str) -> Upload:
    return Upload(
        text_field(where, "key", data.get("key")),
        text_field(where, "upload_id", data.get("upload_id")),
        moment_field(where, "initiated", data.get("initiated")),
    )


def _flag(where: str, name: str, value: Any) -> bool | None:
    """Expect a flag, or the word that S3 has for one."""
    return flag_field(where, name, _HOLD_WORDS.get(value, value) if isinstance(value, str) else value)


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
