"""
The canonical name of a registry: every spelling of one address gives the same text.

Hosts are lower case, without the dot at their end, international ones in their ASCII form, and IPv6
addresses in their short form. Ports are numbers, and the default one is left out: 443, or 80 where plain http
is spoken. ``localhost``, ``127.0.0.1`` and ``[::1]`` are one host, as are the names of Docker Hub. Other
addresses of the loopback network (127.0.0.2) stay apart, because people run different servers on them.
Folders are followed through links.

A name says nothing of a second DNS name, a proxy or a forwarded port: for those registries carry a marker
(`ebbtide.targets.oci.marker`).
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator

from ebbtide.targets.oci.client.address import (
    LayoutPath,
    RegistryUrl,
    host_and_port,
    parse_address,
    registry_address,
)

_LOCAL = "localhost"
_LOOPBACKS = frozenset({_LOCAL, "127.0.0.1", "::1"})
_HUB = "docker.io"
_HUB_HOSTS = frozenset({_HUB, "index.docker.io", "registry-1.docker.io"})
_HTTP, _HTTPS = 80, 443
_LONGEST_PORT = 5


def canonical_name(text: str, *, allow_http: bool = False) -> str:
    """
    Give the canonical name of the registry at an address; a repository in it does not count.

    >>> canonical_name("oci://127.0.0.1:05000/team/app"), canonical_name("oci://Hub.Example.:0443")
    ('oci://localhost:5000', 'oci://hub.example')
    """
    found = parse_address(text)
    if isinstance(found, LayoutPath):
        return registry_address(text)
    host, port = host_and_port(found.host)
    default = _HTTP if allow_http or found.is_loopback else _HTTPS
    name = _canonical_host(host)
    return f"oci://{name}" if port in (None, default) else f"oci://{name}:{port}"


def _canonical_host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host
    else:
        mapped = getattr(address, "ipv4_mapped", None)
        name = str(mapped or address)
    if name in _LOOPBACKS:
        return _LOCAL
    if name in _HUB_HOSTS:
        return _HUB
    return f"[{name}]" if ":" in name else name


def registry_uid(text: str, *, allow_http: bool = False) -> str:
    """Give the uid of a registry that is known by its name alone."""
    return name_uid(canonical_name(text, allow_http=allow_http))


def name_uid(name: str) -> str:
    """Give the uid that is made of a canonical name."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def spelled_uid(text: str) -> str:
    """Give the uid under which earlier versions kept the records of an address as it is written."""
    found = parse_address(text)
    if isinstance(found, LayoutPath):
        return name_uid(registry_address(text))
    host = text.removeprefix("oci://").partition("/")[0].lower()
    return name_uid(f"oci://{host.removesuffix(f':{_HTTP if found.is_loopback else _HTTPS}')}")


def earlier_uids(name: str) -> dict[str, str]:
    """
    Give the uids under which earlier versions kept the records of a registry, and their spellings.

    They took every spelling of a host and a port for a registry of its own.
    """
    found = parse_address(name)
    if isinstance(found, LayoutPath):
        return {name_uid(name): name}
    host, port = host_and_port(found.host)
    spelled = (f"oci://{one}{end}" for one in _hosts(host) for end in _ports(found, port))
    return {name_uid(one): one for one in spelled}


def _hosts(host: str) -> Iterator[str]:
    if host == _LOCAL:
        yield from (_LOCAL, "127.0.0.1", "[::1]", "[0:0:0:0:0:0:0:1]")
    elif host == _HUB:
        yield from sorted(_HUB_HOSTS)
    elif ":" in host:
        yield from (f"[{host}]", f"[{ipaddress.ip_address(host).exploded}]")
    else:
        yield host


def _ports(found: RegistryUrl, port: int | None) -> Iterator[str]:
    """Give the spellings of a port, padded with zeros; without one also those of the default port."""
    default = _HTTP if found.is_loopback else _HTTPS
    if port is None:
        yield ""
    for number in [default] if port is None else [port]:
        yield from (f":{number:0{width}}" for width in range(len(str(number)), _LONGEST_PORT + 1))
