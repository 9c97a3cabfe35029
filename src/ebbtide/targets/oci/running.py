"""
Running images, which a purge must not delete: from a file, or from the API of a Kubernetes cluster.

A file is a Kubernetes pod list, a JSON list of images, an object around one, or a line for each. Of a pod
both the image of its specification and the digest of its status count, whatever its phase: a pod that has
ended may be started again. What creates pods (deployments, cron jobs and the like) may be in the list too, so
that images count that do not run at the moment.

An object may contain when the scan was made (`scanned_at`) and that it failed (`failed`: true, or why). A pod
list that ends in the middle (`continue`) is a failed scan, and so is one that names no image at all: every
cluster runs something, and kubectl prints an empty list if it lacks the right to look. An empty file is
refused: a scan that wrote nothing is not a scan that found nothing, which is written ``[]``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.core.documents import moment_field, nearest, unique_pairs
from ebbtide.core.errors import PolicyError, SafetyStop, WorldError
from ebbtide.core.instant import Clock, format_instant, system_clock
from ebbtide.targets.oci.client.names import is_tag
from ebbtide.targets.oci.model import RunningImages, RunningReference

if TYPE_CHECKING:
    import httpx

# ruff: noqa: PLC0415 - httpx takes a while to load, and only clusters need it

_SCHEME = re.compile(r"[a-z][a-z0-9.+-]*://")
_DIGEST = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[A-Za-z0-9=_-]+")
_BARE_DIGEST = re.compile(r"(?:sha256|sha384|sha512|blake3):[A-Za-z0-9=_-]+")
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)(?::[0-9]+)?"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")
"""Only a port may follow a colon here: ``app:v1:v2`` would otherwise be a repository that cannot exist."""
_LATEST = "latest"
_HUB = "library/"


def is_any_digest(text: str) -> bool:
    """Return True for a digest of any algorithm: its name, a colon and a value."""
    return _DIGEST.fullmatch(text) is not None


def read_reference(text: str, where: str) -> RunningReference:
    """Parse the name of an image; without tag and digest it means ``latest``, as for every runtime."""
    name = _SCHEME.sub("", text.strip(), count=1)
    if _BARE_DIGEST.fullmatch(name):
        return RunningReference(None, None, name)
    name, at, digest = name.partition("@")
    # A colon before a slash belongs to the port of a host.
    repository, colon, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
    whole = (
        _REPOSITORY.fullmatch(repository) and (not colon or is_tag(tag)) and (not at or is_any_digest(digest))
    )
    if not whole:
        raise WorldError(
            f"{where}: {text!r} is not an image",
            why="an image that runs and is not understood would not be protected",
            fix="write it as team/app:v1, team/app@sha256:... or with a host before it",
        )
    return RunningReference(repository, tag or (None if digest else _LATEST), digest or None)


def without_host(repository: str) -> str:
    """Remove the host of a registry, and the folder that Docker Hub leaves out: mirrors have other hosts."""
    first, slash, rest = repository.partition("/")
    path = rest if slash and ("." in first or ":" in first or first == "localhost") else repository
    return path.removeprefix(_HUB)


_LISTS = ("images", "running", "references", "items", "pods")
_FIELDS = (*_LISTS, "scanned_at", "failed", "error", "kind", "apiVersion", "metadata")
_ENTRY = ("image", "imageID", "image_id", "reference", "repository", "tag", "digest")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_TEMPLATES = ("template", "jobTemplate")
_KUBERNETES = "items"
"""Only lists of Kubernetes use this name."""
_FIX = 'write ["team/app:v1", ...], a line for each image, or what kubectl get pods -A -o json prints'


def read_running(text: str, name: str) -> RunningImages:
    """Parse a file of running images."""
    if not text.strip():
        why = "a scan that found nothing writes []"
        raise WorldError(f"{name} is empty", why=why, fix="scan again, or write [] if nothing runs")
    if text.lstrip()[0] not in "[{":
        return RunningImages(tuple(_of_lines(text, name)))
    try:
        return running_of(json.loads(text, object_pairs_hook=unique_pairs), name)
    except PolicyError as twice:
        raise WorldError(f"{name}: {twice.what}", why=twice.why, fix=twice.fix) from None
    except (ValueError, RecursionError) as broken:
        raise WorldError(f"{name} is not JSON: {broken}", fix=_FIX) from None


def running_of(data: Any, name: str) -> RunningImages:
    """Parse plain data, as JSON gives it."""
    if isinstance(data, str):
        return read_running(data, name)
    if isinstance(data, list):
        return RunningImages(tuple(_of_list(data, name)))
    if not isinstance(data, dict):
        raise WorldError(f"{name} is {data!r}", fix=_FIX)
    for field in data:
        if field not in _FIELDS:
            raise WorldError(f"{name}: unknown field {field!r}", fix=nearest(str(field), _FIELDS))
    failed = _reported_failure(data, name)
    lists = [field for field in _LISTS if data.get(field) is not None]
    if len(lists) != 1 and not failed:
        raise WorldError(f"{name} has no list of what runs, or several", fix=_FIX)
    found = [one for field in lists for one in _of_list(data[field], f"{name}: {field}")]
    if not found and not failed and lists == [_KUBERNETES]:
        failed = "its pod list names no image"
    return RunningImages(tuple(found), moment_field(name, "scanned_at", data.get("scanned_at")), failed)


def _reported_failure(data: dict[str, Any], name: str) -> str:
    """Return why a scan cannot be trusted; empty if it can."""
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


def _of_lines(text: str, name: str) -> Iterator[RunningReference]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words:
            yield read_reference(words, f"{name}, line {number}")


def _of_list(data: Any, name: str) -> Iterator[RunningReference]:
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


def _of_pod(pod: dict[str, Any], where: str) -> Iterator[RunningReference]:
    """
    Yield the images of a pod, or of what creates pods: from its specification and its container statuses.

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
    """Yield the specification of a pod, and those of pod templates at any depth."""
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


def _of_entry(entry: Any, where: str) -> Iterator[RunningReference]:
    """Parse an image that is written as an object: by its names, or by its parts."""
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
    elif digest and is_any_digest(digest):
        yield RunningReference(None, None, digest)
    elif not names:
        raise WorldError(f"{where} names no image", fix=_FIX)


TOKEN, CERTIFICATE = "EBBTIDE_KUBERNETES_TOKEN", "EBBTIDE_KUBERNETES_CA"
_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE, _MOST_PAGES = 500, 100_000
_SECONDS = 30.0


def running_from(source: str, clock: Clock) -> RunningImages:
    """Read running images from a file, or from the API at ``https://HOST[:PORT]``; any failure raises."""
    if source.startswith(("http://", "https://")):
        return live_running(source, clock)
    try:
        text = Path(source).read_text(encoding="utf-8-sig")
        age = _age(Path(source))
    except (OSError, UnicodeDecodeError) as broken:
        raise _scan_failed(f"{source} cannot be read: {broken}") from None
    found = read_running(text, source)
    # kubectl writes no time. A scan is at least as old as its file: without this, a file that no job has
    # updated for weeks would count as today's.
    return found if found.scanned_at else replace(found, scanned_at=clock() - age)


def _age(file: Path) -> timedelta:
    """Return how long ago a file was written, by the machine's clock and to the minute."""
    age = system_clock() - datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return timedelta(minutes=max(age // timedelta(minutes=1), 0))


def live_running(url: str, clock: Clock, environment: Mapping[str, str] | None = None) -> RunningImages:
    """Ask the cluster for all its pods; the time of the scan is that before the first answer."""
    import httpx

    variables = os.environ if environment is None else environment
    begun = clock()
    token = variables.get(TOKEN) or _in_cluster("token")
    certificate = variables.get(CERTIFICATE) or (
        str(_IN_CLUSTER / "ca.crt") if (_IN_CLUSTER / "ca.crt").exists() else ""
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(
            base_url=url, headers=headers, verify=_trust(certificate), timeout=_SECONDS, trust_env=False
        ) as client:
            pods = _pods(client)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as broken:
        raise _scan_failed(f"{_host_name(url)}: {type(broken).__name__}: {broken}") from None
    return running_of({"items": pods, "scanned_at": format_instant(begun)}, _host_name(url))


def _pods(client: httpx.Client) -> list[Any]:
    """Read all pages; a page of an unknown form stops the scan."""
    found: list[Any] = []
    more = ""
    for _ in range(_MOST_PAGES):
        answer = client.get("/api/v1/pods", params={"limit": _PAGE, **({"continue": more} if more else {})})
        answer.raise_for_status()
        page = answer.json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise _scan_failed("the answer of the API is not a list of pods")
        found += page["items"]
        more = (page.get("metadata") or {}).get("continue") or ""
        if not more:
            return found
    raise _scan_failed("the list of pods does not come to an end")


def _trust(certificate: str) -> Any:
    import ssl

    return ssl.create_default_context(cafile=certificate) if certificate else True


def _in_cluster(name: str) -> str:
    """Read what Kubernetes puts into every pod, if this is one."""
    try:
        return (_IN_CLUSTER / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _host_name(url: str) -> str:
    """Return the host of the cluster, without what may be a secret in its address."""
    import httpx

    return httpx.URL(url).host or "the cluster"


def _scan_failed(what: str) -> SafetyStop:
    return SafetyStop(
        f"the running scan failed: {what}",
        why="the list of running images could not be read, so no image can be proven unused",
        fix="fix the cause, or give a file that 'kubectl get pods -A -o json' wrote",
    )


def scan_doubt(running: RunningImages | None, now: datetime, oldest: timedelta) -> str:
    """Return why the list of running images cannot be trusted: it failed or is too old. Empty if it can."""
    if running is None:
        return ""
    if running.failed:
        return f"the running scan failed: {running.failed}"
    is_old = running.scanned_at is not None and now - running.scanned_at > oldest
    return "the running scan is too old" if is_old else ""
