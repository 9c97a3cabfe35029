"""Addresses of registries: ``oci://HOST[:PORT][/REPOSITORY]`` and folders of image layouts."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ebbtide.errors import BadInput
from ebbtide.registry.client.layout_index import MARKER
from ebbtide.registry.names import is_repository
from ebbtide.store.address import locate

_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII
)
_LAYOUT = "oci-layout:"
_FORMS = "oci://HOST[:PORT][/REPOSITORY], oci-layout:FOLDER or file:///FOLDER"


@dataclass(frozen=True)
class RegistryUrl:
    """A server, and one of its repositories or, if that is empty, all."""

    host: str
    """The host in lower case, with its port if one was given."""
    repository: str = ""

    @property
    def is_loopback(self) -> bool:
        """Tell whether the server is this machine, to which plain http tells nobody anything."""
        name = self.host if self.host.endswith("]") else self.host.rsplit(":", 1)[0]
        name = name.strip("[]")
        if name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

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
    found = _HOST.fullmatch(host)
    if not found or int(found[1] or 1) not in range(1, 65536):
        _refuse(text, f"{host!r} is no host with or without a port")
    repository = repository.removesuffix("/")
    if repository and not is_repository(repository):
        _refuse(text, f"{repository!r} is no name of a repository; it takes neither tag nor digest")
    return RegistryUrl(host.lower(), repository)


def registry_address(text: str) -> str:
    """
    Give the one address of a whole registry; of what is given the repository and the spelling do not count.

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


def registry_uid(text: str) -> str:
    """Name a whole registry, by whatever address of it or of one of its repositories."""
    return hashlib.sha256(registry_address(text).encode()).hexdigest()[:32]


def _layout(path: str, text: str) -> LayoutPath:
    """Make the path whole, so that it means the same on every machine and in every folder."""
    if not path or "\0" in path:
        _refuse(text, "it names no folder")
    return LayoutPath(Path(path).absolute())


def _refuse(text: str, why: str) -> NoReturn:
    raise BadInput(f"{text!r} is no address of a registry", why=why, fix=f"use {_FORMS}")
