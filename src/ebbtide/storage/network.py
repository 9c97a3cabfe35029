"""
Network addresses: which hosts are this machine, and whether a server answers at all.

A rehearsal may reach nothing but this machine (:func:`check_loopback`).

Requests are retried for up to minutes, because a server that restarts during a run must not end it. A user
should not wait that long for a server that the command never reached. So inside :func:`quick_first_contact`,
in the process of the command and not on executors, the first connection to an address is a plain TCP
connection that is tried once.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ebbtide.core.errors import EbbtideError, SafetyStop, StoreError

LOCAL_ONLY = "local_only"
"""The option of a StoreSpec or RegistrySpec that allows servers on this machine only."""


def check_loopback(host: str, what: str) -> None:
    """Raise SafetyStop unless a host has addresses and all of them belong to this machine."""
    if not is_loopback(host):
        raise SafetyStop(
            f"{what} is not on this machine",
            why="this is a rehearsal: its clock can be advanced, so it reaches only local folders and"
            " servers on loopback addresses",
            fix="use a folder or a server at 127.0.0.1, or a root made by 'ebb init' without --rehearsal",
        )


def check_endpoint(endpoint: str) -> None:
    """Raise SafetyStop unless an S3 server is on this machine; without an endpoint it is AWS."""
    host = urlsplit(endpoint).hostname or ""
    check_loopback(host, f"the S3 server at {host}" if host else "S3 without an endpoint, which is AWS,")


def names_loopback(host: str) -> bool:
    """
    Return True if a host is "localhost" or a loopback address. No name is looked up.

    >>> names_loopback("localhost"), names_loopback("[::1]"), names_loopback("registry.example")
    (True, True, False)
    """
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_loopback(host: str) -> bool:
    """
    Return True if a host name or address means this machine and nothing else.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("192.0.2.7"), is_loopback("")
    (True, True, False, False)
    """
    name = host.strip("[]")
    if not name:
        return False
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
        return bool(found) and all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False


CONNECT_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_reached: set[tuple[str, int]] | None = None
"""Addresses that have answered; None if no check was asked for."""


@contextmanager
def quick_first_contact() -> Iterator[None]:
    """Check every address when it is first used inside this block."""
    global _reached  # noqa: PLW0603 - of the process, as its connections are
    before, _reached = _reached, set()
    try:
        yield
    finally:
        _reached = before


def check_answers(url: str, what: str, kind: type[EbbtideError] = StoreError) -> None:
    """Raise an error of this kind if no server accepts a connection at the address."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    if _reached is None or (host, port) in _reached or _goes_through_proxy(parts.scheme, host):
        return
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as broken:
        raise kind(
            f"{what} does not answer at {host}:{port}",
            why=_reason(broken),
            fix="check the address, and that the server is up",
        ) from None
    _reached.add((host, port))


def _goes_through_proxy(scheme: str, host: str) -> bool:
    """Return True if requests go to a proxy, so that the address need not be reachable from here."""
    return scheme in getproxies() and not proxy_bypass(host) and not names_loopback(host)


def _reason(broken: OSError) -> str:
    if isinstance(broken, TimeoutError):
        return f"no connection within {CONNECT_SECONDS:.0f} seconds"
    return (broken.strerror or str(broken) or type(broken).__name__).lower()
