"""A bucket in each state of versioning with locations around it, and a mover between them."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from tests.services.bucket_plan import ROWS
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.core.decision import Outcome
from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.storage.s3_copy import Sizes
from ebbtide.storage.store import DeleteResult, StoreSpec
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.transition.mover import TransitionActor
from ebbtide.targets.s3.transition.moves import MoveLog, MoveRecord

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ABOUT: dict[str, Any] = {
    "ContentType": "text/x-log",
    "CacheControl": "no-store",
    "ContentDisposition": "inline",
    "ContentLanguage": "de",
    "ContentEncoding": "identity",
    "Metadata": {"owner": "me"},
}
"""What a client may write beside the bytes of an object."""
SMALL_PARTS = Sizes(one_copy=1024, part=5 * 1024**2, server_part=5 * 1024**2)
RUN = 7
COLD, NEAR, FAR, FOLDER = "COLD", "NEAR", "FAR", "FOLDER"
"""Another bucket, a prefix of the same one, another server (by its name), a folder."""


@dataclass(frozen=True)
class Planned:
    """A version as the plan names it."""

    key: str
    version: str
    etag: str
    latest: bool
    body: bytes
    kept_because: str | None = None
    created: datetime | None = None

    def row(self, goal: str) -> dict[str, Any]:
        """Give the plan's row that sends it somewhere."""
        return {
            "hash": 1,
            "address": self.key,
            "rules": ["old"],
            "size": len(self.body),
            "created": self.created,
            "batch": 0,
            "version": self.version,
            "action": "transition",
            "destination": goal,
            "condition": {"etag": self.etag, "is_latest": self.latest, "newer_versions": 0},
            "kept_because": self.kept_because,
        }


@dataclass(frozen=True)
class Yard:
    """One bucket, the locations that its objects may go to, and a state root."""

    server: S3Server
    bucket: str
    cold: str
    versioning: Versioning
    root: Path
    folder: Path

    @property
    def client(self) -> S3Client:
        """A client that looks at the server behind the mover's back."""
        return self.server.client()

    @property
    def locations(self) -> dict[str, StoreSpec]:
        """The locations, by name."""
        here = self.server.options
        there = {**here, "endpoint": here["endpoint"].replace("127.0.0.1", "localhost")}
        return {
            COLD: StoreSpec(f"s3://{self.cold}/archive/", here),
            NEAR: StoreSpec(f"s3://{self.bucket}/archive/", here),
            FAR: StoreSpec(f"s3://{self.cold}/far", there),
            FOLDER: StoreSpec(self.folder.as_uri()),
        }

    def put(self, body: bytes = b"some bytes", key: str = "", **about: Any) -> Planned:
        """Write an object of a fresh key and give it as a plan would name it."""
        name = key or f"{uuid.uuid4().hex}/a b+ü.txt"
        answer = self.client.put_object(Bucket=self.bucket, Key=name, Body=body, **about)
        version = answer.get("VersionId", "null")
        return Planned(name, version, answer["ETag"].strip('"'), latest=True, body=body)

    def mover(self, **options: Any) -> TransitionActor:
        """Make a mover, as an executor gets it."""
        resumed = options.pop("resumed", False)
        attempt = Attempt(DeleteOptions(), 1, 0, resumed)
        spec = StoreSpec(f"s3://{self.bucket}", self.server.options)
        made = TransitionActor(spec, attempt, self.versioning, self.locations, self.root, RUN, **options)
        return made if "on_step" in options else pickle.loads(pickle.dumps(made))  # noqa: S301 (our own)

    def move(self, planned: Planned, goal: str, **options: Any) -> DeleteResult:
        """Move one version."""
        [result] = self.mover(**options).move(batch([planned.row(goal)]))
        return result

    def original(self, planned: Planned) -> bytes | None:
        """Read the planned version from its bucket, if it is there with these bytes."""
        named = {"Bucket": self.bucket, "Key": planned.key}
        if self.versioning is not Versioning.DISABLED:
            named["VersionId"] = planned.version
        try:
            found = self.client.get_object(**named)
        except ClientError:
            return None
        return found["Body"].read() if found["ETag"].strip('"') == planned.etag else None

    def current(self, key: str) -> bytes | None:
        """Read what a client reads under a key."""
        try:
            return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError:
            return None

    def where(self, key: str) -> list[MoveRecord]:
        """Ask the manifest."""
        return MoveLog(self.root).where(self.bucket, key)

    def copies(self, planned: Planned, goal: str) -> list[bytes]:
        """Read all that a location has under the key, behind everybody's back."""
        if goal == FOLDER:
            below = self.folder / planned.key
            return [file.read_bytes() for file in below.rglob("*") if file.is_file()]
        bucket, prefix = place_of(self.locations[goal].url)
        found = self.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}{planned.key}/")
        keys = [one["Key"] for one in found.get("Contents", [])]
        return [self.client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]

    def read(self, url: str) -> bytes:
        """Read an address that the manifest gives."""
        if url.startswith("file://"):
            return Path(unquote(url.removeprefix("file://"))).read_bytes()
        bucket, key = place_of(url)
        return self.client.get_object(Bucket=bucket, Key=key.rstrip("/"))["Body"].read()


def place_of(url: str) -> tuple[str, str]:
    """Take an address apart into bucket and key; that of a location ends with a slash."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, unquote(key).rstrip("/") + "/"


def batch(rows: list[dict[str, Any]]) -> Any:
    """Make a batch of plan rows."""
    return pa.RecordBatch.from_pylist(rows, ROWS)


@dataclass(frozen=True)
class Buckets:
    """A bucket in each state of versioning, and one to move to."""

    server: S3Server
    names: dict[Versioning, str]
    cold: str

    def yard(self, versioning: Versioning, folder: Path) -> Yard:
        """Lay out one test's places."""
        (folder / "cold").mkdir()
        return Yard(
            self.server, self.names[versioning], self.cold, versioning, folder / "state", folder / "cold"
        )


@pytest.fixture(scope="module")
def buckets(s3_server: S3Server) -> Iterator[Buckets]:
    """Make the buckets once; every test has keys of its own."""
    with ExitStack() as stack:
        names = {state: stack.enter_context(fresh_bucket(s3_server)) for state in Versioning}
        for state, name in names.items():
            if state is not Versioning.DISABLED:
                s3_server.client().put_bucket_versioning(
                    Bucket=name, VersioningConfiguration={"Status": state.value}
                )
        yield Buckets(s3_server, names, stack.enter_context(fresh_bucket(s3_server)))


def gone_well(result: DeleteResult) -> bool:
    """Tell whether a result says that the version was moved."""
    return result.outcome is Outcome.DELETED and result.reason.startswith("moved to ")
