"""
First contact: a command finds out within seconds that nobody answers at an address.

Requests are tried again for up to minutes, because a server that restarts during a run must not end it. That
would only make a user wait for a server that the command has not reached at all. So inside
:func:`quick_first_contact`, in the process of the command and not on executors, the first connection to an
address is a plain TCP connection that is tried once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ebbtide.core.errors import EbbtideError, StoreError
from ebbtide.storage.loopback import names_loopback

CONNECT_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_reached: set[tuple[str, int]] | None = None
"""Addresses that have answered; None where requests find out for themselves."""


@contextmanager
def quick_first_contact() -> Iterator[None]:
    """Check addresses when they are first used in the block."""
    global _reached  # noqa: PLW0603 - of the process, as its connections are
    before, _reached = _reached, set()
    try:
        yield
    finally:
        _reached = before


def check_answers(url: str, what: str, kind: type[EbbtideError] = StoreError) -> None:
    """Raise an error of this kind if nobody accepts a connection at the address of a server."""
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
    """Tell whether requests go to a proxy, so that the address need not be reachable from here."""
    return scheme in getproxies() and not proxy_bypass(host) and not names_loopback(host)


def _reason(broken: OSError) -> str:
    if isinstance(broken, TimeoutError):
        return f"no connection within {CONNECT_SECONDS:.0f} seconds"
    return (broken.strerror or str(broken) or type(broken).__name__).lower()
