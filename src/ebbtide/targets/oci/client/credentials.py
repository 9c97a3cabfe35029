"""
Credentials: from the environment, or from the login files and helpers of Docker and Podman.

Files are read only when a registry answers 401. No error quotes a file or the output of a helper, which may
contain secrets.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebbtide.core.errors import ConfigError


@dataclass(frozen=True)
class Credentials:
    """A user name and password, or a token; never shown, not even by repr."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        """Return True if there are any."""
        return bool(self.username or self.token)

    @classmethod
    def from_environment(cls, host: str, environment: Mapping[str, str] | None = None) -> Credentials:
        """
        Read credentials from EBBTIDE_REGISTRY_USERNAME and _PASSWORD, or _TOKEN.

        If EBBTIDE_REGISTRY_HOST names a host they are for that host only, and others get none.
        """
        values = os.environ if environment is None else environment
        meant = values.get("EBBTIDE_REGISTRY_HOST", "")
        if meant and meant.lower() != host:
            return cls()
        found = cls(
            values.get("EBBTIDE_REGISTRY_USERNAME", ""),
            values.get("EBBTIDE_REGISTRY_PASSWORD", ""),
            values.get("EBBTIDE_REGISTRY_TOKEN", ""),
        )
        if found.password and not found.username:
            raise ConfigError(
                "EBBTIDE_REGISTRY_PASSWORD is set without EBBTIDE_REGISTRY_USERNAME",
                fix="set both or neither",
            )
        return found.checked("EBBTIDE_REGISTRY_USERNAME, _PASSWORD and _TOKEN")

    def checked(self, source: str) -> Credentials:
        """Refuse credentials that would be sent as something else."""
        if ":" in self.username or any(ord(c) < 32 for c in f"{self.username}{self.password}{self.token}"):
            raise ConfigError(
                "the registry's user name, password or token has a character that cannot be sent",
                fix=f"check {source} for colons and line ends",
            )
        return self


_HELPER_SECONDS = 30
_HUB = "index.docker.io"
_NAMES_OF_HUB = frozenset({_HUB, "docker.io", "registry-1.docker.io"})
_HUB_SERVER = "https://index.docker.io/v1/"
"""The name of Docker's own registry in files and for helpers."""
_TOKEN_USER = "<token>"  # noqa: S105 - the user name that goes with an identity token
_OURS = "EBBTIDE_REGISTRY_USERNAME and EBBTIDE_REGISTRY_PASSWORD"
_NOT_THERE = "credentials not found"


def find_credentials(host: str, environment: Mapping[str, str] | None = None) -> Credentials:
    """Return the first credentials for a host (HOST[:PORT]) in the files of Docker and Podman."""
    values = os.environ if environment is None else environment
    for file in _files(values):
        if found := _from_file(file, host, values):
            return found.checked(f"the login for {host} in {file}")
    return Credentials()


def _files(values: Mapping[str, str]) -> Iterator[Path]:
    """Yield the login files: those named by a variable first, then Podman's, then Docker's."""
    home = Path(values.get("HOME") or Path.home())
    if named := values.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    if folder := values.get("DOCKER_CONFIG"):
        yield Path(folder) / "config.json"
    if runtime := values.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield Path(values.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"
    yield home / ".docker" / "config.json"


def _from_file(file: Path, host: str, values: Mapping[str, str]) -> Credentials:
    content = _read(file)
    helpers = _table(content, "credHelpers")
    logins = {_host_of(server): login for server, login in _table(content, "auths").items()}
    wanted = _HUB if host in _NAMES_OF_HUB else host
    helper = next((name for server, name in helpers.items() if _host_of(server) == wanted), None)
    if helper is None and isinstance(content.get("credsStore"), str):
        helper = content["credsStore"]
    if helper and (found := _from_helper(str(helper), wanted, file, values)):
        return found
    login = logins.get(wanted)
    return _from_login(login, host, file) if isinstance(login, dict) else Credentials()


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as broken:
        raise _unusable(file, type(broken).__name__) from None
    if not isinstance(content, dict):
        raise _unusable(file, "it is not a JSON object")
    return content


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _host_of(server: str) -> str:
    """Return the host of a server name, which old files write as a URL."""
    return server.removeprefix("https://").removeprefix("http://").partition("/")[0].lower()


def _from_login(login: dict[str, Any], host: str, file: Path) -> Credentials:
    if token := login.get("registrytoken"):
        return Credentials(token=str(token))
    if login.get("identitytoken"):
        raise _identity_token(host, file)
    try:
        pair = base64.b64decode(str(login.get("auth") or ""), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise _unusable(file, f"the login for {host} is not base64") from None
    username, _, password = pair.partition(":")
    return Credentials(username, password.rstrip("\0"))


def _from_helper(helper: str, wanted: str, file: Path, values: Mapping[str, str]) -> Credentials:
    """Ask a credential helper, as Docker does; one without a login for the host says so."""
    server = _HUB_SERVER if wanted == _HUB else wanted
    program = f"docker-credential-{helper}"
    if "/" in helper:
        raise _unusable(file, f"{program!r} is not the name of a helper")
    try:
        done = subprocess.run(
            [program, "get"],
            input=server,
            capture_output=True,
            text=True,
            timeout=_HELPER_SECONDS,
            check=False,
            env=dict(values),
        )
        if done.returncode and _NOT_THERE in done.stdout + done.stderr:
            return Credentials()
        found = json.loads(done.stdout)
        username, secret = str(found.get("Username", "")), str(found.get("Secret", ""))
    except (OSError, subprocess.SubprocessError, ValueError, AttributeError) as broken:
        raise ConfigError(
            f"{program}, which {file} names, gave no credentials for {server} ({type(broken).__name__})",
            fix=f"see why 'echo {server} | {program} get' fails, or set {_OURS}",
        ) from None
    if username == _TOKEN_USER:
        raise _identity_token(server, file)
    return Credentials(username, secret)


def _identity_token(host: str, file: Path) -> ConfigError:
    return ConfigError(
        f"the login for {host} in {file} is an identity token",
        why="Ebbtide sends passwords and access tokens only",
        fix=f"set {_OURS}, or EBBTIDE_REGISTRY_TOKEN",
    )


def _unusable(file: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the login file {file} cannot be used",
        why=why,
        fix=f"log in again with 'docker login' or 'podman login', or set {_OURS}",
    )
