"""
Configuration: ``ebbtide.toml``, then environment variables, checked as a whole before anything happens.

``EBBTIDE_SPARK__MASTER=spark://host:7077`` sets ``master`` in ``[spark]``. An unknown key is an error, in the
file and in the environment, because a misspelt limit is no limit.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from ebbtide.errors import ConfigError
from ebbtide.rules.documents import nearest
from ebbtide.rules.s3.storage_classes import CHEAPEST_FIRST, STANDARD
from ebbtide.store.base import StoreSpec

FILE = "ebbtide.toml"
PREFIX = "EBBTIDE_"
NOT_SETTINGS = (
    "EBBTIDE_CONFIG",
    "EBBTIDE_NOW",
    "EBBTIDE_TRACEBACK",
    "EBBTIDE_USER",
    "EBBTIDE_REGISTRY_HOST",
    "EBBTIDE_REGISTRY_USERNAME",
    "EBBTIDE_REGISTRY_PASSWORD",
    "EBBTIDE_REGISTRY_TOKEN",
    "EBBTIDE_REGISTRY_LISTEN_TOKEN",
    "EBBTIDE_KUBERNETES_TOKEN",
    "EBBTIDE_KUBERNETES_CA",
)
"""Variables that are about the call, not about the configuration."""
_S3_CLASSES = frozenset(
    {*CHEAPEST_FIRST, STANDARD, "REDUCED_REDUNDANCY", "EXPRESS_ONEZONE", "OUTPOSTS", "SNOW", "FSX_OPENZFS"}
)
_LOCATION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _as_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Write settings as texts, which is how stores and registries take them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }


class CatalogSettings(_Section):
    """The embedded catalog."""

    url: str | None = None
    """SQLAlchemy URL; SQLite under the root if not given."""


class LedgerSettings(_Section):
    """The run ledger."""

    url: str | None = None


class SparkSettings(_Section):
    """Spark."""

    master: str = "local[*]"
    driver_memory: str = "2g"
    java: str = "auto"
    java_options: str = ""
    shuffle_partitions: int = Field(0, ge=0)
    conf: dict[str, str] = Field(default_factory=dict)


class BreakerSettings(_Section):
    """How much one plan may delete before somebody must say so."""

    max_delete_fraction: float = Field(0.5, ge=0, le=1)
    max_delete_bytes: int | None = Field(None, ge=0)
    min_objects: int = Field(100, ge=0)


class DeleteSettings(_Section):
    """How hard deletes press on the store."""

    rate_per_prefix: float | None = Field(None, gt=0)
    page: int = Field(250, ge=1, le=1000)
    tasks: int = Field(0, ge=0)
    wave_size: int = Field(50_000, ge=1)


class PlanSettings(_Section):
    """How long a plan may wait."""

    max_age_days: float = Field(7, gt=0)


class UncommittedSettings(_Section):
    """How uncommitted garbage is looked for."""

    grace_hours: float = Field(24, ge=1)
    """How old an unreferenced object must be: every upload is one until it is staged."""
    clean_every: int = Field(7, ge=1)
    """One run in so many lists everything."""


class ReaperSettings(_Section):
    """How what lost its last reference is deleted online."""

    grace_hours: float = Field(1, ge=0)
    """How long an address waits in the queue: readers in flight and mistaken resets are safe for so long."""
    batch: int = Field(1000, ge=1)
    remember_days: float = Field(7, ge=0)
    """For how long it is known what became of an object."""


class StoreSettings(_Section):
    """How to reach S3. Credentials come from the environment or the usual AWS files, never from here."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    allow_http: bool | None = None
    ordered: bool | None = None
    retries: int | None = Field(None, ge=1, le=50)

    def options(self) -> dict[str, str]:
        """Give the settings in the form in which stores take them."""
        return _as_options(self.model_dump(exclude_none=True, exclude={"url"}))


class LocationSettings(StoreSettings):
    """A place to which rules may move objects, and how to reach it."""

    url: str
    """s3://BUCKET/PREFIX or file:///FOLDER."""
    profile: str | None = None
    """Whose credentials to use: a name in the usual AWS files."""

    @property
    def is_s3(self) -> bool:
        """Tell whether it is a bucket and no folder."""
        return self.url.startswith("s3:")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if not url.startswith(("s3://", "file:///")):
            raise ValueError("a location is s3://bucket/prefix or file:///folder")
        return url


class BucketSettings(_Section):
    """Buckets under S3 lifecycle rules."""

    locations: dict[str, LocationSettings] = Field(default_factory=dict)
    """What a rule may name as StorageClass besides the classes of S3."""

    @field_validator("locations")
    @classmethod
    def _check_names(cls, locations: dict[str, LocationSettings]) -> dict[str, LocationSettings]:
        for name in locations:
            if name.upper() in _S3_CLASSES:
                raise ValueError(f"{name} is a storage class of s3 and cannot name a location")
            if not _LOCATION_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name: use a letter, then letters, digits, '-' and '_'")
        return locations


class RegistrySettings(_Section):
    """Container registries. Credentials come from the environment, never from here."""

    allow_http: bool | None = None
    timeout: int | None = Field(None, ge=1, le=600)
    patience: int | None = Field(None, ge=1, le=3600)
    retries: int | None = Field(None, ge=1, le=50)
    page: int | None = Field(None, ge=1, le=10_000)
    running: str | None = None
    """Where every purge learns what runs: a file, or the address of a Kubernetes API. It must be there."""
    oldest_scan_hours: float = Field(24, gt=0)
    """What ran longer ago than this says nothing about what runs now."""

    def options(self) -> dict[str, str]:
        """Give the settings in the form in which registries take them."""
        return _as_options(self.model_dump(exclude_none=True, exclude={"running", "oldest_scan_hours"}))


class Settings(_Section):
    """Everything that can be configured."""

    root: Path = Path(".ebbtide")
    """Where plans, outcomes and the default databases live; on a cluster a path that all nodes share."""
    catalog: CatalogSettings = CatalogSettings()
    ledger: LedgerSettings = LedgerSettings()
    spark: SparkSettings = SparkSettings()
    breaker: BreakerSettings = BreakerSettings()
    deletes: DeleteSettings = DeleteSettings()
    plans: PlanSettings = PlanSettings()
    store: StoreSettings = StoreSettings()
    uncommitted: UncommittedSettings = UncommittedSettings()
    reaper: ReaperSettings = ReaperSettings()
    bucket: BucketSettings = BucketSettings()
    registry: RegistrySettings = RegistrySettings()

    def database(self, which: str) -> str:
        """Give the URL of the catalog's or the ledger's database."""
        given: str | None = getattr(self, which).url
        return given or f"sqlite:///{self.root.absolute() / which}.db"

    def locations(self) -> dict[str, StoreSpec]:
        """Give the locations as stores are opened; one without options is reached as [store] says."""
        return {
            name: StoreSpec(one.url, one.options() or (self.store.options() if one.is_s3 else {}))
            for name, one in self.bucket.locations.items()
        }


def load_settings(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file (the named one, or ebbtide.toml here or in a folder above) and the environment."""
    variables = os.environ if environ is None else environ
    named = file or (Path(variables["EBBTIDE_CONFIG"]) if variables.get("EBBTIDE_CONFIG") else None)
    found = named or _find_file()
    data = _read(found) if found else {}
    origin = str(found) if found else "the environment"
    _overlay(data, variables)
    try:
        settings = Settings.model_validate(data)
    except ValidationError as wrong:
        raise _explain(wrong.errors()[0], origin) from None
    base = found.absolute().parent if found and "EBBTIDE_ROOT" not in variables else Path.cwd()
    return settings.model_copy(update={"root": base / settings.root})


def _find_file() -> Path | None:
    here = Path.cwd()
    return next((folder / FILE for folder in (here, *here.parents) if (folder / FILE).is_file()), None)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as broken:
        raise ConfigError(
            f"{file} cannot be read: {broken.strerror}", fix="check the path given with --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise ConfigError(f"{file} is not TOML: {broken}", fix="correct the syntax") from None


def _overlay(data: dict[str, Any], variables: Mapping[str, str]) -> None:
    for name, text in sorted(variables.items()):
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        *sections, key = name.removeprefix(PREFIX).lower().split("__")
        place = data
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: {section!r} is a value, not a section")
        place[key] = _value(text)


def _value(text: str) -> Any:
    """Read numbers, booleans and tables as such; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _explain(error: ErrorDetails, origin: str) -> ConfigError:
    where = [str(part) for part in error["loc"]]
    name = ".".join(where)
    if error["type"] == "extra_forbidden":
        section: Any = Settings
        for part in where[:-1]:
            section = _inside(section, part)
        return ConfigError(
            f"{origin}: unknown setting {name!r}", fix=nearest(where[-1], list(section.model_fields))
        )
    why = error["msg"].lower().removeprefix("value error, ")
    return ConfigError(f"{origin}: {name} is {error['input']!r}", why=why, fix="correct it")


def _inside(section: Any, part: str) -> Any:
    """Go one step into a section; in a table of sections every name has the same kind."""
    if not hasattr(section, "model_fields"):
        return get_args(section)[1]
    return section.model_fields[part].annotation
