"""
Addresses of registries and images, and the canonical name of a registry.

``oci://HOST[:PORT][/REPOSITORY]`` is a server, ``oci-layout:FOLDER`` a folder of image layouts. One image is
``oci://HOST/REPO:TAG``, ``oci://HOST/REPO@DIGEST``, ``oci-layout:FOLDER//REPO:TAG`` or
``oci-layout:FOLDER//REPO@DIGEST``; the path of the folder ends at the last two slashes.

Every spelling of a registry's address has one canonical name. Hosts are lower case, without a final dot,
international ones in ASCII form, IPv6 addresses in short form. Ports are numbers, and the default one is left
out: 443, or 80 for plain http. ``localhost``, ``127.0.0.1`` and ``[::1]`` are one host, as are the names of
Docker Hub. Other loopback addresses (127.0.0.2) stay separate, because people run different servers on them.
Links to folders are resolved. A name cannot show that a second DNS name, a proxy or a forwarded port leads to
the same registry: for that, registries carry a marker (`ebbtide.targets.oci.purge.identity`).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ebbtide.core.errors import BadInput
from ebbtide.storage.address import locate
from ebbtide.storage.network import names_loopback
from ebbtide.targets.oci.client.layout_folder import MARKER
from ebbtide.targets.oci.client.names import is_digest, is_repository, is_tag

_HOST = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?P<dot>\.?)(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
_LONGEST_HOST = 253
_LAYOUT = "oci-layout:"
_REGISTRY_FORMS = "oci://HOST[:PORT][/REPOSITORY], oci-layout:FOLDER or file:///FOLDER"


@dataclass(frozen=True)
class RegistryUrl:
    """A server, and one of its repositories or, if that is empty, all of them."""

    host: str
    """The host in lower case without a final dot, with its port as a number if one was given."""
    repository: str = ""

    @property
    def name(self) -> str:
        """The host without its port and brackets."""
        return host_and_port(self.host)[0]

    @property
    def is_loopback(self) -> bool:
        """Return True if the server is this machine, so that plain http is safe."""
        return names_loopback(self.name)

    def origin(self, *, allow_http: bool = False) -> str:
        """Return the start of all URLs: https, except on this machine or if plain http is allowed."""
        scheme = "http" if allow_http or self.is_loopback else "https"
        return f"{scheme}://{self.host}"

    def __str__(self) -> str:
        """Return the address in normal form."""
        return f"oci://{self.host}/{self.repository}".rstrip("/")


@dataclass(frozen=True)
class LayoutPath:
    """A folder that is an image layout, or that contains layouts, each a repository named by its path."""

    folder: Path

    def __str__(self) -> str:
        """Return the address in normal form."""
        return f"{_LAYOUT}{self.folder}"


def parse_address(text: str) -> RegistryUrl | LayoutPath:
    """
    Read the address of a registry, or raise BadInput.

    >>> parse_address("oci://Registry.example:5000/team/app")
    RegistryUrl(host='registry.example:5000', repository='team/app')
    """
    if text.startswith(_LAYOUT):
        return _parse_layout(text.removeprefix(_LAYOUT), text)
    if text.startswith("file:"):
        return _parse_layout(f"/{locate(text).path}", text)
    if not text.startswith("oci://"):
        _not_a_registry(text, "it has no scheme that names the kind of registry")
    host, _, repository = text.removeprefix("oci://").partition("/")
    if "@" in host:
        # The text may contain a password, so it is not shown.
        raise BadInput(
            "the address of a registry has a user name in it",
            why="addresses are written into plans and logs",
            fix="give credentials by EBBTIDE_REGISTRY_USERNAME and EBBTIDE_REGISTRY_PASSWORD",
        )
    place = _parse_host(host)
    if place is None:
        _not_a_registry(text, f"{host!r} is not a host with an optional port")
    repository = repository.removesuffix("/")
    if repository and not is_repository(repository):
        _not_a_registry(text, f"{repository!r} is not a repository; an address has neither tag nor digest")
    return RegistryUrl(place, repository)


def host_and_port(host: str) -> tuple[str, int | None]:
    """
    Split the host of a RegistryUrl; an IPv6 address loses its brackets.

    >>> host_and_port("[::1]:5000"), host_and_port("r.example")
    (('::1', 5000), ('r.example', None))
    """
    name, colon, port = ("", "", "") if host.endswith("]") else host.rpartition(":")
    return (name if colon else host).strip("[]"), int(port) if colon else None


def _parse_host(text: str) -> str | None:
    """Parse a host with or without a port; return None if it is not valid."""
    found = _HOST.fullmatch(text if text.isascii() else _ascii_host(text))
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


def _ascii_host(text: str) -> str:
    """Return an international host name as DNS writes it; an invalid one unchanged, to be refused."""
    import httpx  # noqa: PLC0415 (it takes a while to load)

    name, colon, port = text.partition(":")
    try:
        return httpx.URL(f"https://{name.rstrip('.')}").raw_host.decode("ascii") + colon + port
    except (httpx.InvalidURL, UnicodeError):
        return text


def registry_address(text: str) -> str:
    """
    Return the address of a whole registry, without the repository and the default port.

    Records use the canonical name instead (`canonical_name`).

    >>> registry_address("oci://Registry.example:443/team/app")
    'oci://registry.example'
    """
    found = parse_address(text)
    if isinstance(found, RegistryUrl):
        usual = ":80" if found.is_loopback else ":443"
        return str(RegistryUrl(found.host.removesuffix(usual)))
    # Links are resolved: one folder under two names would have two sets of pins.
    try:
        folder = found.folder.resolve()
    except (OSError, RuntimeError) as broken:
        _not_a_registry(text, f"its folder cannot be followed: {broken}")
    return str(LayoutPath(folder.parent if (folder / MARKER).exists() else folder))


def repository_of(text: str) -> str:
    """Return the one repository that an address names; empty if it names a whole registry."""
    found = parse_address(text)
    if isinstance(found, RegistryUrl):
        return found.repository
    return found.folder.resolve().name if (found.folder / MARKER).exists() else ""


def _parse_layout(path: str, text: str) -> LayoutPath:
    """Make the path absolute, so that it has one meaning on every machine and in every folder."""
    if not path or "\0" in path:
        _not_a_registry(text, "it names no folder")
    return LayoutPath(Path(path).absolute())


def _not_a_registry(text: str, why: str) -> NoReturn:
    raise BadInput(f"{text!r} is not the address of a registry", why=why, fix=f"use {_REGISTRY_FORMS}")


_LOCAL = "localhost"
_LOOPBACKS = frozenset({_LOCAL, "127.0.0.1", "::1"})
_HUB = "docker.io"
_HUB_HOSTS = frozenset({_HUB, "index.docker.io", "registry-1.docker.io"})
_HTTP, _HTTPS = 80, 443
_LONGEST_PORT = 5


def canonical_name(text: str, *, allow_http: bool = False) -> str:
    """
    Return the canonical name of the registry at an address, ignoring the repository.

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
    """Return the uid of a registry that is known by its name only."""
    return name_uid(canonical_name(text, allow_http=allow_http))


def name_uid(name: str) -> str:
    """Return the uid derived from a canonical name."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def spelled_uid(text: str) -> str:
    """Return the uid under which earlier versions recorded an address as it is written."""
    found = parse_address(text)
    if isinstance(found, LayoutPath):
        return name_uid(registry_address(text))
    host = text.removeprefix("oci://").partition("/")[0].lower()
    return name_uid(f"oci://{host.removesuffix(f':{_HTTP if found.is_loopback else _HTTPS}')}")


def earlier_uids(name: str) -> dict[str, str]:
    """
    Return the uids under which earlier versions recorded a registry, and their spellings.

    Earlier versions treated every spelling of host and port as a registry of its own.
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
    """Yield the spellings of a port, padded with zeros; without one also those of the default port."""
    default = _HTTP if found.is_loopback else _HTTPS
    if port is None:
        yield ""
    for number in [default] if port is None else [port]:
        yield from (f":{number:0{width}}" for width in range(len(str(number)), _LONGEST_PORT + 1))


_IMAGE_FORMS = "oci://HOST/REPO:TAG, oci://HOST/REPO@DIGEST or oci-layout:FOLDER//REPO:TAG"


@dataclass(frozen=True)
class ImageRef:
    """A tag, or a manifest by its digest; exactly one of the two is empty."""

    registry: str
    """The address of the whole registry."""
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def reference(self) -> str:
        """The tag or digest to ask a registry for."""
        return self.tag or self.digest

    @property
    def name(self) -> str:
        """The name inside the registry: ``team/app:v1`` or ``team/app@sha256:...``."""
        return f"{self.repository}:{self.tag}" if self.tag else f"{self.repository}@{self.digest}"

    def __str__(self) -> str:
        """Return the whole name in normal form."""
        return place_in(self.registry, self.name)


def place_in(registry: str, name: str) -> str:
    """Return the whole name of an image or repository in a registry; without one, that of the registry."""
    return f"{registry}{'/' if registry.startswith('oci://') else '//'}{name}" if name else registry


def repository_url(registry: str, repository: str) -> str:
    """Return the URL of one repository; a folder of image layouts has only one of its own."""
    return f"{registry}/{repository}" if registry.startswith("oci://") else registry


def image_in(name: str) -> tuple[str, str, str]:
    """
    Split the name of an image inside a registry: repository, tag and digest, of which one is empty.

    >>> image_in("team/app:v1")
    ('team/app', 'v1', '')
    """
    return _parse_name(name, name)


def is_image(text: str) -> bool:
    """
    Return True if a reference names an image and not only a registry or a repository.

    >>> is_image("oci://registry.example:5000/team/app"), is_image("oci-layout:images//app:v1")
    (False, True)
    """
    if text.startswith("oci://"):
        _, slash, inside = text.removeprefix("oci://").partition("/")
    else:
        _, slash, inside = text.rpartition("//")
    return bool(slash) and (":" in inside or "@" in inside)


def image_ref(text: str) -> ImageRef:
    """
    Parse the name of an image, or raise BadInput.

    >>> image_ref("oci://registry.example:5000/team/app:v1").name
    'team/app:v1'
    """
    if text.startswith("oci://"):
        host, slash, image = text.removeprefix("oci://").partition("/")
        where = f"oci://{host}"
    else:
        # The slashes of file:// itself do not end the path.
        kind = "file://" if text.startswith("file://") else ""
        folder, slash, image = text.removeprefix(kind).rpartition("//")
        where = f"{kind}{folder}"
    if not slash or not image or where in ("", "file://"):
        _not_an_image(text, "it names no image in a registry")
    repository, tag, digest = _parse_name(text, image)
    return ImageRef(registry_address(where), repository, tag, digest)


def repository_ref(text: str) -> tuple[str, str]:
    """
    Split an address into the registry and one repository, which is empty if all are meant.

    >>> repository_ref("oci://registry.example:5000/team/app")
    ('oci://registry.example:5000', 'team/app')
    """
    if text.startswith("oci://"):
        found = parse_address(text)
        return registry_address(text), found.repository if isinstance(found, RegistryUrl) else ""
    where, slashes, repository = text.rpartition("//")
    if not slashes or where == "file:":
        return registry_address(text), ""
    if not is_repository(repository):
        _not_an_image(text, f"{repository!r} is not the name of a repository")
    return registry_address(where), repository


def _parse_name(text: str, image: str) -> tuple[str, str, str]:
    """Split the name inside a registry; no repository contains a colon or an at sign."""
    name, at, digest = image.partition("@")
    repository, colon, tag = name.partition(":")
    if not is_repository(repository):
        _not_an_image(text, f"{repository!r} is not the name of a repository")
    if at and colon:
        _not_an_image(text, "it has a tag and a digest, which are two different items")
    if not at and not colon:
        _not_an_image(text, "it has neither tag nor digest")
    if colon and not is_tag(tag):
        _not_an_image(text, f"{tag!r} is not a tag")
    if at and not is_digest(digest):
        _not_an_image(text, f"{digest!r} is not a digest")
    return repository, tag, digest


def _not_an_image(text: str, why: str) -> NoReturn:
    # A user name and password may precede the host; registry_address refuses them without showing them.
    if text.startswith("oci://") and "@" in text.removeprefix("oci://").partition("/")[0]:
        registry_address(f"oci://{text.removeprefix('oci://').partition('/')[0]}")
    raise BadInput(f"{text!r} is not an image", why=why, fix=f"use {_IMAGE_FORMS}")
