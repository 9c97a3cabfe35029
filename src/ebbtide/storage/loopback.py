"""What is on this machine: a rehearsal may reach nothing else."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from ebbtide.core.errors import SafetyStop

LOCAL_ONLY = "local_only"
"""The option of a StoreSpec or RegistrySpec that lets it be opened on this machine alone."""


def check_loopback(host: str, what: str) -> None:
    """Stop unless every address of a host is this machine's own; a host that has none is not."""
    if not is_loopback(host):
        raise SafetyStop(
            f"{what} is not on this machine",
            why="this is a rehearsal: its clock can be advanced, so it reaches only local folders and"
            " servers on loopback addresses",
            fix="use a folder or a server at 127.0.0.1, or a root made by 'ebb init' without --rehearsal",
        )


def check_endpoint(endpoint: str) -> None:
    """Stop unless an S3 server is on this machine; without an endpoint it is AWS."""
    host = urlsplit(endpoint).hostname or ""
    check_loopback(host, f"the S3 server at {host}" if host else "S3 without an endpoint, which is AWS,")


def names_loopback(host: str) -> bool:
    """
    Return True if a host is written as this machine: localhost or a loopback address. No name is looked up.

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
    Tell whether a host name or address means this machine and nothing else.

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
