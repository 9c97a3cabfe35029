"""
Small worlds for the target contract: a target of each kind, with items that are due and items that are held.

A world is made as users make it, and looked at past Ebbtide. It says what a plan must find, so that nothing
that is under test is its own judge.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.contract.targets.operations import SETTINGS, Workplace, apply_plan, make_plan
from tests.services.bin_kit import tags_of
from tests.services.image_kit import push_image
from tests.services.lake import FIRST_DAY, RAW_30_DAYS, SettableClock
from tests.services.registry import RegistryServer
from tests.services.seaweed import S3Server
from tests.services.versions import next_second, put_all

from ebbtide.core.display import Explanation
from ebbtide.core.errors import NotFound
from ebbtide.core.instant import format_instant, system_clock
from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.plan import PlanOptions, plan
from ebbtide.engine.run_folder import OnStep, no_step, run_folder
from ebbtide.engine.run_tables import Row, stream_decisions
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.oci.client.credentials import Credentials
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec
from ebbtide.targets.oci.kind import registry_context
from ebbtide.targets.oci.policies.document import parse_policies
from ebbtide.targets.s3.demo import list_versions
from ebbtide.targets.s3.kind import bucket_rules
from ebbtide.targets.s3.model import BIN_ROOT
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.target import Options, Target, bin_of

Said = tuple[str, str]
"""What is said of an item: the decision, and when its time is over."""


class World(ABC):
    """One target and all that plans and applies on it."""

    url: str
    due: frozenset[str]
    """The names of the items that a plan must find due."""
    held: frozenset[str]
    """The names of all other items that a rule touches."""
    options: Options = {}  # noqa: RUF012 (never changed)

    def __init__(self, spark: Any, folder: Path, settings: str = "", start: datetime = FIRST_DAY) -> None:
        folder.mkdir()
        self.spark, self.folder, self.clock = spark, folder, SettableClock(start)
        (folder / SETTINGS).write_text(f'root = "{folder}/state"\n{settings}', encoding="utf-8")
        self.place = Workplace(folder, self.clock)

    @abstractmethod
    def contents(self) -> Mapping[str, str]:
        """Return what the target holds by name, as somebody sees it who does not use Ebbtide."""

    @abstractmethod
    def change_policy(self) -> None:
        """Make another policy that touches the same items."""

    @abstractmethod
    def need(self) -> frozenset[str]:
        """Let users come to need something that is due; return the names of the items that must stay now."""

    def need_meanwhile(self) -> frozenset[str]:
        """Need something while a batch is removed; raise Busy where the target keeps its users waiting."""
        return self.need()

    def name(self, row: Row) -> str:
        """Return the name of the item of a plan's row."""
        return str(row["address"])

    @abstractmethod
    def said(self, row: Row, explained: Explanation) -> Said:
        """Return what an explanation says of the item of a plan's row."""

    def recycle(self, days: int) -> None:
        """Let runs set aside what they would delete."""
        identity = self.target.identity
        self.place.ledger.set_recycling(identity.url, identity.uid, days)

    def days_later(self, days: float) -> None:
        """Let days pass."""
        self.clock.now += timedelta(days=days)

    @property
    def target(self) -> Target:
        """The target, opened again each time, as each command does."""
        return self.place.target(self.url)

    def plan(self, *, batch_size: int = 50_000, on_step: OnStep = no_step) -> Manifest:
        """Make a plan at the clock's time."""
        return make_plan(self.spark, self.target, self.options, self.clock(), batch_size, on_step)

    def order(self, what: str, **details: Any) -> dict[str, Any]:
        """Order another process to do something with the target."""
        place = {"folder": str(self.folder), "url": self.url, "now": self.clock().isoformat()}
        return {"what": what, "options": self.options, **place, **details}

    def plan_bin(self) -> Manifest:
        """Make a plan of the recycle bin at the clock's time."""
        target, now = self.target, self.clock()
        expired = ExpiredItems(bin_of(target))
        return plan(self.spark, target.context, expired, now=now, options=PlanOptions())

    def apply(
        self, manifest: Manifest, *, override_breaker: bool = True, on_step: OnStep = no_step
    ) -> Applied:
        """Apply a plan, however large it is unless the breaker shall look."""
        return apply_plan(self.spark, self.target, manifest, on_step, override_breaker=override_breaker)

    def last_manifest(self) -> Manifest:
        """Return the manifest of the newest run."""
        return run_folder(self.place.root, self.place.ledger.runs()[-1].run_id).read_manifest()

    def rows(self, manifest: Manifest) -> list[Row]:
        """Return what a plan says of each item."""
        return list(stream_decisions(run_folder(self.place.root, manifest.run_id)))

    def explain(self, row: Row) -> Said:
        """Explain the item of a plan's row."""
        return self.said(row, self.target.explain(row["names"][0], {}, self.clock()))

    def close(self) -> None:
        """Let go of the databases."""
        self.place.close()


class FilesWorld(World):
    """The toy target: files in a folder, of which three are older than 30 days."""

    due, held = frozenset({"a/1", "a/2", "b"}), frozenset({"new"})

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(spark, folder)
        self.files = folder / "files"
        self.url = f"files:{self.files}"
        self._write(self.due)
        self.days_later(35)
        self._write(self.held)
        self._policy(30)
        self.days_later(5)

    def _write(self, names: frozenset[str]) -> None:
        for name in names:
            file, seconds = self.files / name, self.clock().timestamp()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name, encoding="utf-8")
            os.utime(file, (seconds, seconds))

    def _policy(self, days: int) -> None:
        (self.files / ".ebbtide-files.json").write_text(json.dumps({"days": days}), encoding="utf-8")

    def contents(self) -> Mapping[str, str]:
        """Read the files."""
        found = {str(file.relative_to(self.files)): file for file in self.files.rglob("*") if file.is_file()}
        return {name: file.read_text() for name, file in found.items() if not name.startswith(".ebbtide")}

    def change_policy(self) -> None:
        """Keep files for a day less."""
        self._policy(29)

    def need(self) -> frozenset[str]:
        """Write a file again."""
        (self.files / "b").write_text("new content", encoding="utf-8")
        return frozenset({"b"})

    def said(self, row: Row, explained: Explanation) -> Said:
        """Read the only verdict."""
        return explained.plain["decision"], format_instant(explained.plain["deadline"])


class LakeWorld(World):
    """A repository in a folder: three keys are older than 30 days, one is new, one has a second name."""

    url = "lake:sales"

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(spark, folder)
        catalog = shared_catalog(self.place)
        catalog.create_repository("sales", str(folder / "objects"))
        old = self._upload("raw/1", "raw/2", "raw/3", "raw/shared", "keep")
        catalog.copy("sales", "main", "raw/shared", "kept/shared")
        catalog.commit("sales", "main", "old")
        self.days_later(35)
        new = self._upload("raw/new")
        catalog.commit("sales", "main", "new")
        self._policy(RAW_30_DAYS)
        self.days_later(5)
        self.due = frozenset(old[key] for key in ("raw/1", "raw/2", "raw/3"))
        self.held = frozenset({old["raw/shared"], new["raw/new"]})

    def _upload(self, *keys: str) -> dict[str, str]:
        catalog = shared_catalog(self.place)
        return {key: catalog.upload("sales", "main", key, key.encode()).address for key in keys}

    def _policy(self, rules: Mapping[str, Any]) -> None:
        shared_catalog(self.place).set_policy("sales", json.dumps(rules), "json")

    def contents(self) -> Mapping[str, str]:
        """Read the data objects."""
        root = self.folder / "objects"
        found = {str(file.relative_to(root)): file for file in root.rglob("*") if file.is_file()}
        data = {name: file for name, file in found.items() if not name.startswith(("_lakefs/", ".ebbtide"))}
        return {name: file.read_text() for name, file in data.items()}

    def change_policy(self) -> None:
        """Keep keys for a day less."""
        self._policy({"old-raw": {"prefix": "raw/", "days": 29}})

    def need(self) -> frozenset[str]:
        """Give an object a second name."""
        copied = shared_catalog(self.place).copy("sales", "main", "raw/1", "kept/1")
        return frozenset({copied.address})

    def need_meanwhile(self) -> frozenset[str]:
        """Give an object a second name, as a user who does not wait for a run."""
        hasty = Catalog(self.place.settings.database("catalog"), clock=self.clock, fence_wait=timedelta(0))
        try:
            return frozenset({hasty.copy("sales", "main", "raw/1", "kept/1").address})
        finally:
            hasty.close()

    def said(self, row: Row, explained: Explanation) -> Said:
        """Read the verdict of the lifecycle policy on the row's address."""
        (one,) = (one for one in explained.plain if one.address == row["address"])
        (verdict,) = (verdict for verdict in one.verdicts if verdict.collector == row["collector"])
        return verdict.decision, format_instant(verdict.deadline)


def store_settings(server: S3Server) -> str:
    """Return the settings with which stores on a server are opened."""
    reached = f'[store]\nendpoint = "{server.endpoint}"\n'
    return reached + "allow_http = true\npath_style = true\nordered = false\n"


class BucketWorld(World):
    """A bucket without versions: three objects expire after 3 days, one after 300."""

    due, held = frozenset({"logs/1", "logs/2", "logs/3"}), frozenset({"data/1"})

    def __init__(self, spark: Any, folder: Path, server: S3Server, bucket: str) -> None:
        # The server writes by its own clock, so the clock of the runs is put forward.
        super().__init__(spark, folder, store_settings(server), system_clock())
        self.client, self.bucket, self.url = server.client(), bucket, f"s3://{bucket}"
        put_all(self.client, bucket, [*self.due, *self.held, "free"])
        self._policy(3)
        self.days_later(10)

    def _policy(self, days: int) -> None:
        rules = [
            {"ID": prefix, "Status": "Enabled", "Filter": {"Prefix": prefix}, "Expiration": {"Days": after}}
            for prefix, after in {"logs/": days, "data/": 300}.items()
        ]
        bucket_rules(self.place).put(self.bucket, read_configuration({"Rules": rules}))

    def contents(self) -> Mapping[str, str]:
        """List the objects that users see."""
        listed = self._everything()
        return {key: etag for key, etag in listed.items() if not key.startswith(BIN_ROOT)}

    def _everything(self) -> Mapping[str, str]:
        listed = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {one["Key"]: one["ETag"] for one in listed}

    def change_policy(self) -> None:
        """Keep logs for a day less."""
        self._policy(2)

    def need(self) -> frozenset[str]:
        """Write an object again."""
        self.client.put_object(Bucket=self.bucket, Key="logs/1", Body=b"new content")
        return frozenset({"logs/1"})

    def said(self, row: Row, explained: Explanation) -> Said:
        """Read the verdict on the only version."""
        (one,) = explained.plain
        return one["decision"], one["deadline"]

    def close(self) -> None:
        """Empty the bucket, so that it can be removed."""
        super().close()
        for key in self._everything():
            self.client.delete_object(Bucket=self.bucket, Key=key)


class VersionsWorld(World):
    """A bucket with versions: three replaced versions expire after 3 days, one after 300."""

    def __init__(self, spark: Any, folder: Path, server: S3Server, bucket: str) -> None:
        super().__init__(spark, folder, store_settings(server), system_clock())
        self.client, self.bucket, self.url = server.client(), bucket, f"s3://{bucket}"
        enabled: Any = {"Status": "Enabled"}
        self.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=enabled)
        keys = ["logs/1", "logs/2", "logs/3", "data/1"]
        put_all(self.client, bucket, keys)
        first = self._versions()
        next_second(self.client, bucket)
        put_all(self.client, bucket, [*keys, "free"])
        self.due = frozenset(version for version, key in first.items() if key.startswith("logs/"))
        self.held = frozenset(first) - self.due
        self._policy(3)
        self.days_later(10)

    def _versions(self) -> dict[str, str]:
        return {version: key for key, version in list_versions(self.client, self.bucket)}

    def _policy(self, days: int) -> None:
        rules = [
            {
                "ID": prefix,
                "Status": "Enabled",
                "Filter": {"Prefix": prefix},
                "NoncurrentVersionExpiration": {"NoncurrentDays": after},
            }
            for prefix, after in {"logs/": days, "data/": 300}.items()
        ]
        bucket_rules(self.place).put(self.bucket, read_configuration({"Rules": rules}))

    def contents(self) -> Mapping[str, str]:
        """List the versions; the recycle bin is not part of the contents."""
        return {version: key for version, key in self._versions().items() if not key.startswith(BIN_ROOT)}

    def change_policy(self) -> None:
        """Keep logs for a day less."""
        self._policy(2)

    def need(self) -> frozenset[str]:
        """Delete a current version, so that the one before it is current again."""
        versions = list_versions(self.client, self.bucket)
        (current,) = (
            version for (key, version), one in versions.items() if key == "logs/1" and one.is_latest
        )
        self.client.delete_object(Bucket=self.bucket, Key="logs/1", VersionId=current)
        return frozenset(version for version in self.due if self._versions()[version] == "logs/1")

    def name(self, row: Row) -> str:
        """Return the id of the version."""
        return str(row["version"])

    def said(self, row: Row, explained: Explanation) -> Said:
        """Read the verdict on the row's version."""
        (one,) = (one for one in explained.plain if one.get("version_id") == self.name(row))
        return one["decision"], one["deadline"]

    def close(self) -> None:
        """Empty the bucket, so that it can be removed."""
        super().close()
        for version, key in self._versions().items():
            self.client.delete_object(Bucket=self.bucket, Key=key, VersionId=version)


class LayoutWorld(World):
    """A folder of image layouts: the policy of two images has ended, and not that of a third one."""

    options: Options = {"adopt": True}  # noqa: RUF012 (never changed)

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(spark, folder)
        self.url, self.client = self._open()
        self.digests = {name: push_image(self.client, "app", [name], name=name).digest for name in "abv"}
        self.due, self.held = self._names("a", "b"), self._names("v")
        self._policy(5)
        self.plan()  # the days of an image begin when a plan first sees it
        self.days_later(6)

    def recycle(self, days: int) -> None:
        """Do nothing: policies of images recycle unless they say else."""

    def _open(self) -> tuple[str, Registry]:
        (self.folder / "images").mkdir()
        url = f"oci-layout:{self.folder}/images"
        return url, ImageLayout(RegistrySpec(url))

    def _names(self, *tags: str) -> frozenset[str]:
        return frozenset({*(f"app:{tag}" for tag in tags), *(f"app@{self.digests[tag]}" for tag in tags)})

    def _policy(self, days: int) -> None:
        document = {
            "policies": [{"name": "Short", "days": days}, {"name": "Long", "days": 500}],
            "assign": [
                {"repository": "app", "tag": "[ab]", "policy": "Short"},
                {"repository": "app", "tag": "v", "policy": "Long"},
            ],
        }
        context = registry_context(self.place, self.url)
        context.records.save_policies(context.uid, parse_policies(json.dumps(document), "json"), "tests")

    def contents(self) -> Mapping[str, str]:
        """Resolve the tags and the manifests that were pushed."""
        tags = {f"app:{tag}": digest for tag, digest in tags_of(self.client, "app").items()}
        found = {digest for digest in self.digests.values() if self._has(digest)}
        return tags | {f"app@{digest}": digest for digest in found}

    def _has(self, digest: str) -> bool:
        try:
            return bool(self.client.resolve("app", digest))
        except NotFound:
            return False

    def change_policy(self) -> None:
        """Keep images for a day less."""
        self._policy(4)

    def need(self) -> frozenset[str]:
        """Push another image with a tag; the image that had it is kept for a while without one."""
        push_image(self.client, "app", ["a"], name="new content")
        return self._names("a")

    def need_meanwhile(self) -> frozenset[str]:
        """Put a new tag on a planned image, which no scan sees any more; only the actor can."""
        self.client.put_manifest("app", "keep", self.client.manifest("app", self.digests["a"]))
        return self._names("a")

    def name(self, row: Row) -> str:
        """Return the tag or digest that the row shows."""
        return str(row["names"][0])

    def said(self, row: Row, explained: Explanation) -> Said:
        """Read what is said of the row's tag or manifest."""
        tag = row["names"][0].removeprefix("app:") if "@" not in row["names"][0] else None
        (one,) = (one for one in explained.plain["judgements"] if one.get("tag") == tag)
        return one["decision"], one["deadline"]


class RegistryWorld(LayoutWorld):
    """The same images in a registry server, which deletes digests but no tags."""

    def __init__(self, spark: Any, folder: Path, server: RegistryServer) -> None:
        self.server = server
        super().__init__(spark, folder)

    def _open(self) -> tuple[str, Registry]:
        return self.server.url, RegistryClient(RegistrySpec(self.server.url), Credentials())
