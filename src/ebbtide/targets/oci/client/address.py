"""Addresses of registries: ``oci://HOST[:PORT][/REPOSITORY]`` and folders of image layouts."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ebbtide.core.errors import BadInput
from ebbtide.storage.address import locate
from ebbtide.storage.network import names_loopback
from ebbtide.targets.oci.client.layout_index import MARKER
from ebbtide.targets.oci.names import is_repository

_HOST = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?P<dot>\.?)(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
_LONGEST_HOST = 253
_LAYOUT = "oci-layout:"
_FORMS = "oci://HOST[:PORT][/REPOSITORY], oci-layout:FOLDER or file:///FOLDER"


@dataclass(frozen=True)
class RegistryUrl:
    """A server, and one of its repositories or, if that is empty, all."""

    host: str
    """The host in lower case and without a dot at its end, with its port as a number if one was given."""
    repository: str = ""

    @property
    def name(self) -> str:
        """The host without its port and brackets."""
        return host_and_port(self.host)[0]

    @property
    def is_loopback(self) -> bool:
        """Tell whether the server is this machine, to which plain http tells nobody anything."""
        return names_loopback(self.name)

    def origin(self, *, allow_http: bool = False) -> str:
        """Give the start of all URLs: https, except on this machine or where plain http is allowed."""
        scheme = "http" if allow_http or self.is_loopback else "https"
        return f"{scheme}://{self.host}"

    def __str__(self) -> str:
        """Give the address in its one form."""
        return f"oci://{self.host}/{self.repository}".rstrip("/")


@dataclass(frozen=True)
class LayoutPath:
    """A folder that is an image layout, or that holds layouts, each a repository named by its path."""

    folder: Path

    def __str__(self) -> str:
        """Give the address in its one form."""
        return f"{_LAYOUT}{self.folder}"


def parse_address(text: str) -> RegistryUrl | LayoutPath:
    """
    Read the address of a registry, or raise BadInput.

    >>> parse_address("oci://Registry.example:5000/team/app")
    RegistryUrl(host='registry.example:5000', repository='team/app')
    """
    if text.startswith(_LAYOUT):
        return _layout(text.removeprefix(_LAYOUT), text)
    if text.startswith("file:"):
        return _layout(f"/{locate(text).path}", text)
    if not text.startswith("oci://"):
        _refuse(text, "it does not say what kind of registry it is")
    host, _, repository = text.removeprefix("oci://").partition("/")
    if "@" in host:
        # The text itself may hold a password, so it is not shown.
        raise BadInput(
            "the address of a registry has a user name in it",
            why="addresses are written into plans and logs",
            fix="give credentials by EBBTIDE_REGISTRY_USERNAME and EBBTIDE_REGISTRY_PASSWORD",
        )
    place = _host(host)
    if place is None:
        _refuse(text, f"{host!r} is no host with or without a port")
    repository = repository.removesuffix("/")
    if repository and not is_repository(repository):
        _refuse(text, f"{repository!r} is no name of a repository; it takes neither tag nor digest")
    return RegistryUrl(place, repository)


def host_and_port(host: str) -> tuple[str, int | None]:
    """
    Divide the host of a RegistryUrl; an IPv6 address loses its brackets.

    >>> host_and_port("[::1]:5000"), host_and_port("r.example")
    (('::1', 5000), ('r.example', None))
    """
    name, colon, port = ("", "", "") if host.endswith("]") else host.rpartition(":")
    return (name if colon else host).strip("[]"), int(port) if colon else None


def _host(text: str) -> str | None:
    """Read a host with or without a port, None if it is none; the port is written as a number."""
    found = _HOST.fullmatch(text if text.isascii() else _ascii(text))
    if not found or int(found["port"] or 1) not in range(1, 65536):
        return None
    host = found["host"].lower()
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host.strip("[]"))
        except ValueError:
            return None
        if found["dot"]:
            return None
    if len(host) > _LONGEST_HOST or ".." in host:
        return None
    return host if found["port"] is None else f"{host}:{int(found['port'])}"


def _ascii(text: str) -> str:
    """Give an international host name as DNS has it; what cannot be one stays as it is and is refused."""
    import httpx  # noqa: PLC0415 (it takes a while to load)

    name, colon, port = text.partition(":")
    try:
        return httpx.URL(f"https://{name.rstrip('.')}").raw_host.decode("ascii") + colon + port
    except (httpx.InvalidURL, UnicodeError):
        return text


def registry_address(text: str) -> str:
    """
    Give the address at which a whole registry is reached, without the repository and the default port.

    What names the registry in records is its canonical name (see `canonical`).

    >>> registry_address("oci://Registry.example:443/team/app")
    'oci://registry.example'
    """
    found = parse_address(text)
    if isinstance(found, RegistryUrl):
        usual = ":80" if found.is_loopback else ":443"
        return str(RegistryUrl(found.host.removesuffix(usual)))
    # Links are followed and dots taken out: one folder under two names would have two sets of pins.
    try:
        folder = found.folder.resolve()
    except (OSError, RuntimeError) as broken:
        _refuse(text, f"its folder cannot be followed: {broken}")
    return str(LayoutPath(folder.parent if (folder / MARKER).exists() else folder))


def repository_of(text: str) -> str:
    """Name the one repository that an address means, empty if it means a whole registry."""
    found = parse_address(text)
    if isinstance(found, RegistryUrl):
        return found.repository
    return found.folder.resolve().name if (found.folder / MARKER).exists() else ""


def _layout(path: str, text: str) -> LayoutPath:
    """Make the path whole, so that it means the same on every machine and in every folder."""
    if not path or "\0" in path:
        _refuse(text, "it names no folder")
    return LayoutPath(Path(path).absolute())


def _refuse(text: str, why: str) -> NoReturn:
    raise BadInput(f"{text!r} is no address of a registry", why=why, fix=f"use {_FORMS}")
