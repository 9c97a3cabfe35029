"""What runs, from the API of a Kubernetes cluster: all its pods, page by page, and nothing less."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from ebbtide.core.errors import SafetyStop
from ebbtide.core.instant import Clock, format_instant, system_clock
from ebbtide.targets.oci.model import Running
from ebbtide.targets.oci.running import read_running, running_of

TOKEN, CERTIFICATE = "EBBTIDE_KUBERNETES_TOKEN", "EBBTIDE_KUBERNETES_CA"
_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE, _MOST_PAGES = 500, 100_000
_SECONDS = 30.0


def running_from(source: str, clock: Clock) -> Running:
    """Read what runs from a file, or from the API at ``https://HOST[:PORT]``; any failure stops the purge."""
    if source.startswith(("http://", "https://")):
        return live_running(source, clock)
    try:
        text = Path(source).read_text(encoding="utf-8-sig")
        age = _age(Path(source))
    except (OSError, UnicodeDecodeError) as broken:
        raise _failed(f"{source} cannot be read: {broken}") from None
    found = read_running(text, source)
    # kubectl writes no time. A scan is at least as old as its file: without this, a file that nobody has
    # renewed for weeks would pass for what runs today.
    return found if found.scanned_at else replace(found, scanned_at=clock() - age)


def _age(file: Path) -> timedelta:
    """Give how long ago a file was written, by the machine's clock and to the minute."""
    age = system_clock() - datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return timedelta(minutes=max(age // timedelta(minutes=1), 0))


def live_running(url: str, clock: Clock, environment: Mapping[str, str] | None = None) -> Running:
    """Ask the cluster for all its pods; the time of the scan is that before the first answer."""
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
        raise _failed(f"{_host(url)}: {type(broken).__name__}: {broken}") from None
    return running_of({"items": pods, "scanned_at": format_instant(begun)}, _host(url))


def _pods(client: httpx.Client) -> list[Any]:
    """Read all pages; a page that says nothing of what it is stops the scan."""
    found: list[Any] = []
    more = ""
    for _ in range(_MOST_PAGES):
        answer = client.get("/api/v1/pods", params={"limit": _PAGE, **({"continue": more} if more else {})})
        answer.raise_for_status()
        page = answer.json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise _failed("the answer of the API is no list of pods")
        found += page["items"]
        more = (page.get("metadata") or {}).get("continue") or ""
        if not more:
            return found
    raise _failed("the list of pods does not come to an end")


def _trust(certificate: str) -> Any:
    import ssl  # noqa: PLC0415 (only who asks a cluster needs it)

    return ssl.create_default_context(cafile=certificate) if certificate else True


def _in_cluster(name: str) -> str:
    """Read what Kubernetes puts into every pod, if this is one."""
    try:
        return (_IN_CLUSTER / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _host(url: str) -> str:
    """Name the cluster without what may be a secret in its address."""
    return httpx.URL(url).host or "the cluster"


def _failed(what: str) -> SafetyStop:
    return SafetyStop(
        f"the running scan failed: {what}",
        why="not to know what runs is not to know that nothing does",
        fix="put that right, or give a file that 'kubectl get pods -A -o json' wrote",
    )
