"""How to reach a registry: settings that are no secret, and credentials, which are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ebbtide.core.errors import ConfigError
from ebbtide.storage.rate_limit import Backoff

_NUMBERS = {"timeout": 600, "patience": 3600, "retries": 50, "page": 10_000}


@dataclass(frozen=True)
class RegistryOptions:
    """The settings of a registry; each is an option of the RegistrySpec."""

    allow_http: bool = False
    """Whether to speak plain http to another machine, where the network is your own."""
    timeout: int = 30
    """Seconds without a single byte after which a request has failed."""
    patience: int = 120
    """Seconds that a whole small answer may take, so that a server cannot trickle for ever."""
    retries: int = 6
    page: int = 1000
    """Names on a page of a listing; a server may give fewer."""
    local_only: bool = False
    """Whether the server must be on this machine, as in a rehearsal."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> RegistryOptions:
        """Read the options of a RegistrySpec; an unknown name or a wrong value raises ConfigError."""
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                raise ConfigError(f"option {name!r} is unknown to registries", fix=f"use {', '.join(known)}")
        return cls(**{name: _value(name, text) for name, text in options.items()})  # type: ignore[arg-type]

    @property
    def backoff(self) -> Backoff:
        """Give the waits between tries."""
        return Backoff(tries=self.retries)


def _value(name: str, text: str) -> bool | int:
    """Read one option as the kind that it is."""
    if name in _NUMBERS:
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= _NUMBERS[name]:
            raise ConfigError(f"{name} is {text!r}", fix=f"use a whole number from 1 to {_NUMBERS[name]}")
        return int(text)
    if text.lower() not in ("yes", "no", "true", "false"):
        raise ConfigError(f"{name} is {text!r}", fix="use yes or no")
    return text.lower() in ("yes", "true")


@dataclass(frozen=True)
class Credentials:
    """A user's name and password, or a token; never shown, not even by repr."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.username or self.token)

    @classmethod
    def from_environment(cls, host: str, environment: Mapping[str, str] | None = None) -> Credentials:
        """
        Take credentials from EBBTIDE_REGISTRY_USERNAME and _PASSWORD, or _TOKEN.

        If EBBTIDE_REGISTRY_HOST names a host they are for that one alone, and others are asked without.
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
