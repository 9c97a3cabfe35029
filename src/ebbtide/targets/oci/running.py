"""
What runs, from a file: a Kubernetes pod list, a JSON list of images, a table around one, or a line for each.

Of a pod both the image of its specification and the digest of its status count, whatever its phase: a pod
that has ended may be started again. What makes pods (deployments, cron jobs and the like) may be in the list
too, so that images count of which nothing runs at the moment.

A table may say when the scan was made (`scanned_at`) and that it failed (`failed`: true, or why). A pod list
that ends in the middle (`continue`) is a scan that failed, and so is one that names no image at all: every
cluster runs something, and kubectl prints an empty list where it was not allowed to look. An empty file is
refused: a scan that wrote nothing is not one that found nothing, which is written ``[]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ebbtide.core.documents import nearest, unique_pairs
from ebbtide.core.errors import PolicyError, WorldError
from ebbtide.core.lines import moment_field
from ebbtide.targets.oci.model import Reference, Running
from ebbtide.targets.oci.references import is_digest, read_reference

_LISTS = ("images", "running", "references", "items", "pods")
_FIELDS = (*_LISTS, "scanned_at", "failed", "error", "kind", "apiVersion", "metadata")
_ENTRY = ("image", "imageID", "image_id", "reference", "repository", "tag", "digest")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_TEMPLATES = ("template", "jobTemplate")
_KUBERNETES = "items"
"""Only lists of Kubernetes call what they hold so."""
_FIX = 'write ["team/app:v1", ...], a line for each image, or what kubectl get pods -A -o json prints'


def read_running(text: str, name: str) -> Running:
    """Read a file of what runs."""
    if not text.strip():
        why = "a scan that found nothing says so"
        raise WorldError(f"{name} is empty", why=why, fix="scan again, or write [] if nothing runs")
    if text.lstrip()[0] not in "[{":
        return Running(tuple(_of_lines(text, name)))
    try:
        return running_of(json.loads(text, object_pairs_hook=unique_pairs), name)
    except PolicyError as twice:
        raise WorldError(f"{name}: {twice.what}", why=twice.why, fix=twice.fix) from None
    except (ValueError, RecursionError) as broken:
        raise WorldError(f"{name} is not JSON: {broken}", fix=_FIX) from None


def running_of(data: Any, name: str) -> Running:
    """Read plain data, as JSON gives it."""
    if isinstance(data, str):
        return read_running(data, name)
    if isinstance(data, list):
        return Running(tuple(_of_list(data, name)))
    if not isinstance(data, dict):
        raise WorldError(f"{name} is {data!r}", fix=_FIX)
    for field in data:
        if field not in _FIELDS:
            raise WorldError(f"{name}: unknown field {field!r}", fix=nearest(str(field), _FIELDS))
    failed = _failure(data, name)
    lists = [field for field in _LISTS if data.get(field) is not None]
    if len(lists) != 1 and not failed:
        raise WorldError(f"{name} has no list of what runs, or several", fix=_FIX)
    found = [one for field in lists for one in _of_list(data[field], f"{name}: {field}")]
    if not found and not failed and lists == [_KUBERNETES]:
        failed = "its pod list names no image"
    return Running(tuple(found), moment_field(name, "scanned_at", data.get("scanned_at")), failed)


def _failure(data: dict[str, Any], name: str) -> str:
    """Say why a scan is not to be trusted."""
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and metadata.get("continue"):
        return "its pod list is not complete"
    for field in ("failed", "error"):
        value = data.get(field)
        if value is not None and not isinstance(value, bool | str):
            raise WorldError(f"{name}: {field} is {value!r}", fix="write true, false or why it failed")
        if value:
            return "it says so" if value is True else value
    return ""


def _of_lines(text: str, name: str) -> Iterator[Reference]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words:
            yield read_reference(words, f"{name}, line {number}")


def _of_list(data: Any, name: str) -> Iterator[Reference]:
    if not isinstance(data, list):
        raise WorldError(f"{name} is not a list", fix=_FIX)
    for number, entry in enumerate(data, 1):
        where = f"{name}, entry {number}"
        if isinstance(entry, str):
            yield read_reference(entry, where)
        elif isinstance(entry, dict) and ("spec" in entry or "status" in entry):
            yield from _of_pod(entry, where)
        else:
            yield from _of_entry(entry, where)


def _of_pod(pod: dict[str, Any], where: str) -> Iterator[Reference]:
    """
    Name what a pod runs, or what makes pods: by its specification, and by the status of its containers.

    An image may also be mounted as a volume, which no container names.
    """
    bodies = [(body, _CONTAINERS, "spec") for body in _specifications(pod)]
    for body, names, part in (*bodies, (pod.get("status") or {}, _STATUSES, "status")):
        for container in [one for name in names for one in _tables(body, name, f"{where}: {part}")]:
            for field in ("image", "imageID"):
                # A container that has not started has no imageID yet.
                if container.get(field):
                    yield read_reference(str(container[field]), f"{where}: {field}")
    for body, _, part in bodies:
        for volume in _tables(body, "volumes", f"{where}: {part}"):
            image = volume.get("image")
            if isinstance(image, dict) and image.get("reference"):
                yield read_reference(str(image["reference"]), f"{where}: volume")


def _specifications(item: dict[str, Any]) -> Iterator[Any]:
    """Give the specification of a pod, and those that are templates of pods, however deep they lie."""
    spec = item.get("spec") or {}
    yield spec
    for name in _TEMPLATES:
        inner = spec.get(name) if isinstance(spec, dict) else None
        if isinstance(inner, dict):
            yield from _specifications(inner)


def _tables(body: Any, name: str, where: str) -> list[dict[str, Any]]:
    found = (body.get(name) if isinstance(body, dict) else body) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise WorldError(f"{where}: {name} is not a list of tables", fix=_FIX)
    return found


def _of_entry(entry: Any, where: str) -> Iterator[Reference]:
    """Read an image that is written as a table: by its names, or by its parts."""
    if not isinstance(entry, dict) or not entry:
        raise WorldError(f"{where} is {entry!r}", fix=_FIX)
    for field, value in entry.items():
        if field not in _ENTRY or not isinstance(value, str | None):
            raise WorldError(f"{where}: {field!r} is {value!r}", fix=nearest(str(field), _ENTRY))
    names = [entry[field] for field in _ENTRY[:4] if entry.get(field)]
    for name in names:
        yield read_reference(name, where)
    repository, tag, digest = (entry.get(field) for field in _ENTRY[4:])
    if repository:
        name = repository + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
        yield read_reference(name, where)
    elif digest and is_digest(digest):
        yield Reference(None, None, digest)
    elif not names:
        raise WorldError(f"{where} names no image", fix=_FIX)
