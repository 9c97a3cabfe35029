"""
One image in one registry, as people name it.

``oci://HOST/REPO:TAG`` and ``oci://HOST/REPO@DIGEST`` are in a server, ``oci-layout:FOLDER//REPO:TAG`` and
``oci-layout:FOLDER//REPO@DIGEST`` in a folder of image layouts, whose path ends at the last two slashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ebbtide.core.errors import BadInput
from ebbtide.targets.oci.client.address import RegistryUrl, parse_address, registry_address
from ebbtide.targets.oci.names import is_digest, is_repository, is_tag

_FORMS = "oci://HOST/REPO:TAG, oci://HOST/REPO@DIGEST or oci-layout:FOLDER//REPO:TAG"


@dataclass(frozen=True)
class ImageRef:
    """A tag, or a manifest by its digest; of the two one is empty."""

    registry: str
    """The address of the whole registry."""
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def reference(self) -> str:
        """Give the tag or digest by which a registry is asked."""
        return self.tag or self.digest

    @property
    def name(self) -> str:
        """Give the name inside the registry: ``team/app:v1`` or ``team/app@sha256:...``."""
        return f"{self.repository}:{self.tag}" if self.tag else f"{self.repository}@{self.digest}"

    def __str__(self) -> str:
        """Give the whole name in its one form."""
        return place_in(self.registry, self.name)


def image_ref(text: str) -> ImageRef:
    """
    Take the name of an image apart, or raise BadInput.

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
        _refuse(text, "it names no image in a registry")
    repository, tag, digest = _apart(text, image)
    return ImageRef(registry_address(where), repository, tag, digest)


def place_in(registry: str, name: str) -> str:
    """Return the whole name of an image or repository in a registry; without one, that of the registry."""
    return f"{registry}{'/' if registry.startswith('oci://') else '//'}{name}" if name else registry


def repository_url(registry: str, repository: str) -> str:
    """Return the URL of one repository; a folder of image layouts has only one of its own."""
    return f"{registry}/{repository}" if registry.startswith("oci://") else registry


def image_in(name: str) -> tuple[str, str, str]:
    """
    Take the name of an image inside a registry apart: repository, tag and digest, of which one is empty.

    >>> image_in("team/app:v1")
    ('team/app', 'v1', '')
    """
    return _apart(name, name)


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


def repository_ref(text: str) -> tuple[str, str]:
    """
    Take apart the address of a registry and one of its repositories, which is empty if all are meant.

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
        _refuse(text, f"{repository!r} is no name of a repository")
    return registry_address(where), repository


def _apart(text: str, image: str) -> tuple[str, str, str]:
    """Divide the name inside a registry; no repository has a colon or an at sign."""
    name, at, digest = image.partition("@")
    repository, colon, tag = name.partition(":")
    if not is_repository(repository):
        _refuse(text, f"{repository!r} is no name of a repository")
    if at and colon:
        _refuse(text, "it has a tag and a digest, which are two things that can be marked")
    if not at and not colon:
        _refuse(text, "it has neither tag nor digest")
    if colon and not is_tag(tag):
        _refuse(text, f"{tag!r} is no tag")
    if at and not is_digest(digest):
        _refuse(text, f"{digest!r} is no digest")
    return repository, tag, digest


def _refuse(text: str, why: str) -> NoReturn:
    # A user name may stand before the host, and a password with it; registry_address refuses those unseen.
    if text.startswith("oci://") and "@" in text.removeprefix("oci://").partition("/")[0]:
        registry_address(f"oci://{text.removeprefix('oci://').partition('/')[0]}")
    raise BadInput(f"{text!r} is no image", why=why, fix=f"use {_FORMS}")
