"""The driver's scan of few images and the one on Spark find, count and say the same, whatever happened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.contract.registry.conftest import connected
from tests.property.changing_registries import ChangingRepository
from tests.services.flaky_proxy import FlakyProxy, Request, Response, flaky_proxy
from tests.services.image_kit import push_image
from tests.services.registry import RegistryServer, registry_server

from ebbtide.core.errors import EbbtideError
from ebbtide.core.instant import parse_instant
from ebbtide.engine.tables.counted import write_rows
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.manifest import OCI_INDEX
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.inventory.events import Event
from ebbtide.targets.oci.inventory.scan import CompletedScan, scan
from ebbtide.targets.oci.inventory.scanner import Limits
from ebbtide.targets.oci.inventory.snapshots import Snapshot
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.tables import EVENTS, IMAGES, TAGS

pytestmark = pytest.mark.spark

START = parse_instant("2100-01-01")
HOUR = timedelta(hours=1)
POLICIES = [
    read_policies({"assign": [{"repository": "r*", "tag": "v.*", "policy": "Released"}]}),
    read_policies({"policies": [{"name": "Default", "days": 99}, {"name": "Untagged", "days": 7}]}),
]
ENGINES = {"driver": Limits(driver_threads=4), "spark": Limits(tasks_a_core=1, threads=4, few=-1)}


@dataclass
class Both:
    """Scans with both engines, each on top of what the other one wrote."""

    spark: SparkSession
    folder: Path
    number: int = 0
    known: dict[str, Snapshot | None] = field(default_factory=lambda: dict.fromkeys(ENGINES))

    def __call__(self, url: str, events: Iterable[Event] = (), **options: Any) -> CompletedScan:
        """Scan twice, see that all is the same, and give the driver's."""
        self.number += 1
        told = self._told(events)
        done = {name: self.scan(name, url, events=told, **options) for name in ENGINES}

        assert _said(done["spark"]) == _said(done["driver"])
        self.known = {"driver": done["spark"].snapshot, "spark": done["driver"].snapshot}
        return done["driver"]

    def alone(self, url: str, events: Iterable[Event] = (), **options: Any) -> CompletedScan:
        """Scan by the driver alone, so that there is something that both know."""
        self.number += 1
        done = self.scan("driver", url, events=self._told(events), **options)
        self.known = dict.fromkeys(ENGINES, done.snapshot)
        return done

    def scan(self, engine: str, url: str, **options: Any) -> CompletedScan:
        """Scan with one engine."""
        folder = self.folder / f"{self.number}-{engine}"
        words = {"retries": "1", "timeout": "120"} if url.startswith("oci:") else {}
        spec, earlier = RegistrySpec(url, words), self.known[engine]
        options |= {"policies": POLICIES[self.number % 2], "limits": ENGINES[engine]}
        return scan(self.spark, spec, folder, earlier=earlier, clock=lambda: self.now, **options)

    def _told(self, events: Iterable[Event]) -> Path:
        folder = self.folder / f"{self.number}-events"
        write_rows(EVENTS, map(vars, events), folder)
        return folder

    @property
    def now(self) -> datetime:
        """The time of the scans: an hour after those before."""
        return START + self.number * HOUR

    def stops(self, url: str, **options: Any) -> EbbtideError:
        """See that both stop with the same words, and leave nothing."""
        self.number += 1
        found = []
        for name in ENGINES:
            with pytest.raises(EbbtideError) as raised:
                self.scan(name, url, **options)
            found.append(raised.value)

        assert not list(self.folder.glob(f"{self.number}-*"))
        assert _words(found[1]) == _words(found[0])
        return found[0]


def _words(error: EbbtideError) -> tuple[Any, ...]:
    return type(error), error.what, error.why, error.fix


def _said(done: CompletedScan) -> dict[str, Any]:
    """Give all that a scan found, counted and said."""
    images, tags = done.snapshot.rows()
    return {
        "images": _by_name(images, "digest"),
        "tags": _by_name(tags, "tag"),
        "scanned": done.snapshot.scanned,
        "numbers": (done.repositories, done.tags, done.images, done.read, done.gone, done.at),
        "recorded": (done.snapshot.image_count, done.snapshot.tag_count),
        "warnings": done.warnings,
    }


def _by_name(rows: Iterable[Any], key: str) -> dict[Any, Any]:
    found = {(row["repository"], row[key]): dict(row) for row in rows}
    assert len(found) == len(list(rows))
    return found


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> Both:
    """Begin without a snapshot."""
    (tmp_path / "scans").mkdir()
    return Both(spark, tmp_path / "scans")


def kinds(done: CompletedScan) -> set[str]:
    """Name what there was in a scan, so that a test cannot pass for lack of it."""
    images, tags = done.snapshot.rows()
    names = {(row["repository"], row["digest"]) for row in images}
    children = {(row["repository"], child) for row in images for child in row["children"]}
    there = {
        "untagged": any(row["untagged_since"] for row in images),
        "pushed": any(row["pushed_at"] for row in images),
        "moved at a time that was told": any(row["moved_at"] not in (None, row["seen_at"]) for row in tags),
        "moved at a scan": any(row["moved_at"] == row["seen_at"] for row in tags),
        "missing child": bool(children - names),
        "referrer": any((row["repository"], row["subject"]) in names for row in images),
        "fallback tag": any(row["tag"].startswith("sha256-") for row in tags),
        "known": done.images > done.read > 0,
        "gone": done.gone > 0,
    }
    words = {"is gone", "does not understand: no manifest", "they are not deleted", "has none now"}
    said = {word for word in words for warning in done.warnings if word in warning}
    return said | {name for name, is_there in there.items() if is_there}


def test_folders(both: Both, tmp_path: Path):
    """A scan of changing layouts is the same, after scans of all and of some repositories."""
    root = tmp_path / "layouts"
    root.mkdir()
    url = f"oci-layout:{root}"
    layout = ImageLayout(RegistrySpec(url))
    worlds = [ChangingRepository(layout, f"r{n}/app", Random(n), root / f"r{n}") for n in range(30)]
    both.alone(url, changed(worlds, both.now))
    both.alone(url, changed(worlds, both.now), repositories=[world.name for world in worlds[:20]])
    told = changed(worlds, both.now)
    for world in worlds[:3]:
        world.vanish()
    done = both(url, told)
    snapshot = done.snapshot

    assert {
        *("untagged", "pushed", "moved at a time that was told", "moved at a scan", "referrer", "gone"),
        *("fallback tag", "known", "is gone", "has none now"),
        *("does not understand: no manifest", "they are not deleted"),
    } <= kinds(done)
    # Spark reads what the driver wrote as the driver does.
    images, tags = snapshot.rows()
    assert _by_name(images, "digest") == _by_name(_read(snapshot.images), "digest")
    assert _by_name(tags, "tag") == _by_name(_read(snapshot.tags), "tag")
    assert (IMAGES.columns, TAGS.columns) == ([*images[0]], [*tags[0]])
    shutil.rmtree(root)
    root.mkdir()
    assert "lists no repository at all" in both.stops(url).what


def changed(worlds: Iterable[ChangingRepository], now: datetime) -> list[Event]:
    """Change repositories, and give what is told of it."""
    for world in worlds:
        for _ in range(6):
            world.change()
    return [event for world in worlds for event in world.events(now)]


def _read(table: Any) -> list[Any]:
    return list(table.toArrow().to_pylist())


@dataclass
class Rig:
    """A registry of its own behind a proxy that can say what refers to a manifest."""

    server: RegistryServer
    proxy: FlakyProxy
    worlds: list[ChangingRepository]

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return self.proxy.endpoint.replace("http:", "oci:")

    def answer_referrers(self) -> None:
        """Be a registry that has the referrers API, which Debian's has not."""
        self.proxy.inject(lambda asked: "/referrers/" in asked.path, self._referrers)

    def _referrers(self, asked: Request, _forward: Callable[[], Response]) -> Response:
        name, _, digest = asked.path.removeprefix("/v2/").partition("/referrers/")
        found = [one.row for w in self.worlds if w.name == name for one in w.referrers.get(digest, ())]
        return said({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found}, OCI_INDEX)


def said(document: object, kind: str = "application/json") -> Response:
    """Answer with a document."""
    return Response(200, {"Content-Type": kind}, json.dumps(document).encode())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Run an empty registry."""
    with (
        registry_server(tmp_path / "registry") as server,
        flaky_proxy(server.endpoint) as proxy,
        connected(server.endpoint) as client,
    ):
        homes = server.folder / "data" / "docker" / "registry" / "v2" / "repositories"
        names = [(n, f"r{n}/app") for n in range(6)]
        yield Rig(
            server, proxy, [ChangingRepository(client, name, Random(n), homes / name) for n, name in names]
        )


@pytest.mark.long
def test_servers(both: Both, rig: Rig):
    """A server is scanned alike with the referrers API and without, in parts, and where children are lost."""
    rig.answer_referrers()
    first = both(rig.url, changed(rig.worlds, both.now))
    rig.proxy.clear()
    told = changed(rig.worlds, both.now)
    rig.worlds[0].vanish()
    push_image(rig.worlds[1].registry, rig.worlds[1].name, ["v1", "v2"], name="at last")
    second = both(rig.url, told, repositories=[world.name for world in rig.worlds[:4]])

    assert {"untagged", "pushed", "referrer", "fallback tag", "missing child"} <= kinds(first)
    assert {
        *("moved at a time that was told", "moved at a scan", "missing child", "referrer"),
        *("fallback tag", "known", "gone", "has none now"),
    } <= kinds(second)
    assert 6 == len(second.snapshot.scanned)
    check_stops(both, rig)


def check_stops(both: Both, rig: Rig) -> None:
    """Let the registry lie of one repository in every way that a scan notices."""
    name = rig.worlds[1].name
    one, gone = f"{rig.url}/{name}", Response(404, {}, b"{}")

    def lie(part: str, answer: Response, method: str = "GET") -> None:
        rig.proxy.clear()
        rig.proxy.inject(lambda asked: asked.method == method and part in asked.path, lambda *_: answer)

    lie("/_catalog", said({"repositories": []}))
    assert "lists no repository" in both.stops(rig.url).what
    lie("/tags/list", said({"name": name, "tags": ["v1"]}))
    assert "is not whole" in both.stops(one).what
    lie("/manifests/", gone, "HEAD")
    assert "every tag that the registry lists" in both.stops(one).what
    rig.proxy.inject(lambda asked: "/tags/list" in asked.path, lambda *_: gone)
    assert "does not know" in both.stops(one).what
    lie("/manifests/", gone)
    both.known = dict.fromkeys(ENGINES)
    assert "stands for a manifest that is not there" in both.stops(one).what
