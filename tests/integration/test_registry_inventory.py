"""Scans of real registries: what the tables say is what was pushed, and what happened since."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.contract.registry.conftest import connected
from tests.property.changing_registries import write_odd
from tests.services.flaky_proxy import FlakyProxy, Request, Response, flaky_proxy
from tests.services.image_kit import Pushed, fresh_repository, push_image, push_index, push_signature
from tests.services.registry import RegistryServer, registry_server

from ebbtide.core.errors import Denied, EbbtideError, MetadataError, NotFound, SafetyStop, StoreError
from ebbtide.core.instant import NEVER, parse_instant, to_micros
from ebbtide.engine.tables.counted import write_rows
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.manifest import OCI_INDEX
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec
from ebbtide.targets.oci.inventory.events import DELETE, PUSH, Event, listener_thread
from ebbtide.targets.oci.inventory.scan import CompletedScan, scan
from ebbtide.targets.oci.inventory.scanner import Limits
from ebbtide.targets.oci.inventory.snapshots import Snapshot, read_snapshot
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.tables import EVENTS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAR = parse_instant("2100-01-01")
"""Later than any push that a test makes, so that events are older than their scan."""
DAY = timedelta(days=1)
ON_DRIVER = Limits(driver_threads=4)
ON_SPARK = Limits(tasks_a_core=1, threads=4, few=-1)
POLICIES = read_policies({"assign": [{"repository": "team/*", "tag": "v.*", "policy": "Released"}]})
OTHERS = read_policies({"policies": [{"name": "Default", "days": 99}, {"name": "Untagged", "days": 7}]})
SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"


@dataclass
class Scans:
    """Scans one registry again and again into folders of their own."""

    spark: SparkSession
    folder: Path
    number: int = 0

    def __call__(
        self, url: str, now: datetime = FAR, policies: Policies = POLICIES, **options: Any
    ) -> CompletedScan:
        """Scan at a time."""
        self.number += 1
        words = options.pop("options", {"retries": "2", "timeout": "120"} if url.startswith("oci:") else {})
        spec, folder = RegistrySpec(url, words), self.folder / f"{self.number:03d}"
        options = {"limits": ON_DRIVER, **options}
        return scan(self.spark, spec, folder, policies=policies, clock=lambda: now, **options)

    @property
    def folders(self) -> list[str]:
        """What is left of all scans so far."""
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def scans(spark: SparkSession, tmp_path: Path) -> Scans:
    """Begin with a folder without scans."""
    (tmp_path / "scans").mkdir()
    return Scans(spark, tmp_path / "scans")


def rows(table: DataFrame, key: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Give a table by repository and digest or tag; times are in microseconds."""
    found = [
        row.asDict(recursive=True) for row in table.select(*map(_micros(table), table.columns)).collect()
    ]
    assert len(found) == len({(row["repository"], row[key]) for row in found})
    return {(row["repository"], row[key]): row for row in found}


def _micros(table: DataFrame) -> Callable[[str], str | Any]:
    kinds = dict(table.dtypes)
    return lambda name: f.unix_micros(name).alias(name) if kinds[name] == "timestamp" else f.col(name)


def assigned(row: dict[str, Any]) -> tuple[Any, ...]:
    """Give the values that were copied."""
    return row["policy"], row["expires_at"], row["can_delete_prior"], row["recycle"]


def asked(proxy: FlakyProxy, method: str, part: str) -> list[str]:
    """Give the last parts of the paths of all requests of a kind."""
    paths = [request.path for request in proxy.requests if request.method == method and part in request.path]
    return sorted(path.rsplit("/", 1)[1] for path in paths)


def answering(status: int, body: object, **headers: str) -> Callable[..., Response]:
    """Answer in place of the registry."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request, _forward: Response(status, named, json.dumps(body).encode())


def asking(method: str, part: str) -> Callable[[Request], bool]:
    """Recognise requests."""
    return lambda request: request.method == method and part in request.path


@dataclass
class Rig:
    """A registry of its own that tells what happens, behind a proxy."""

    server: RegistryServer
    proxy: FlakyProxy
    client: Registry
    told: list[Event]

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return self.proxy.endpoint.replace("http:", "oci:")

    def wait_for(self, digest: str, action: str = PUSH) -> Event:
        """Wait until the push of a digest, or what else happened to it, has been told."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            found = [one for one in list(self.told) if (one.digest, one.action) == (digest, action)]
            if found:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError(f"nobody told of {digest}")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Run an empty registry that sends notifications to a listener of ours."""
    told: list[Event] = []
    with (
        listener_thread(told.extend) as listener,
        registry_server(tmp_path / "registry", notify=listener.url) as server,
        flaky_proxy(server.endpoint) as proxy,
        connected(server.endpoint) as client,
    ):
        yield Rig(server, proxy, client, told)


@dataclass(frozen=True)
class World:
    """What stands in the registry of the story below."""

    app: Pushed
    multi: Pushed
    children: tuple[Pushed, Pushed]
    signature: Pushed
    cosign: Pushed
    base: Pushed
    binned: Pushed
    """The last one."""


def push_world(client: Registry) -> World:
    """Push an image with two tags, one for two platforms, signatures, and a second repository."""
    app = push_image(client, "team/app", ["v1", "v2"], layers=[b"shared", b"own"])
    children = tuple(push_image(client, "team/app", name=name) for name in ("amd64", "arm64"))
    multi = push_index(client, "team/app", ["multi"], children)
    signature = push_signature(client, "team/app", app)
    cosign = push_image(client, "team/app", [f"{app.digest.replace(':', '-')}.sig"], name="cosign")
    base = push_image(client, "lib/base", ["base"], layers=[b"shared"])
    binned = push_image(client, "ebbtide-recycle/team/app", ["old"], name="in the bin")
    return World(app, multi, (children[0], children[1]), signature, cosign, base, binned)


def check_first(world: World, first: CompletedScan) -> None:
    """Look at every row of the first scan."""
    images, tags = rows(first.snapshot.images, "digest"), rows(first.snapshot.tags, "tag")
    stem = world.app.digest.replace(":", "-")
    app = images["team/app", world.app.digest]

    assert {
        ("team/app", "v1"): world.app.digest,
        ("team/app", "v2"): world.app.digest,
        ("team/app", "multi"): world.multi.digest,
        ("team/app", stem): tags["team/app", stem]["digest"],
        ("team/app", f"{stem}.sig"): world.cosign.digest,
        ("lib/base", "base"): world.base.digest,
    } == {key: row["digest"] for key, row in tags.items()}
    pushed = (world.app, world.multi, *world.children, world.signature, world.cosign)
    assert {
        ("lib/base", world.base.digest),
        ("team/app", tags["team/app", stem]["digest"]),
        *(("team/app", one.digest) for one in pushed),
    } == images.keys()
    assert list(world.app.blobs) == [blob["digest"] for blob in app["blobs"]]
    assert (len(world.app.manifest.body), None, []) == (app["size"], app["subject"], app["children"])
    assert [one.digest for one in world.children] == images["team/app", world.multi.digest]["children"]
    assert world.app.digest == images["team/app", world.signature.digest]["subject"]
    assert {None} == {row["moved_at"] for row in tags.values()}
    assert {(None, to_micros(FAR))} == {(row["untagged_since"], row["seen_at"]) for row in images.values()}
    released = ("Released", to_micros(FAR + 180 * DAY), False, True)
    usual = ("Default", to_micros(FAR + 5 * DAY), True, True)
    assert [released, usual, (None,) * 4] == [
        assigned(tags["team/app", name]) for name in ("v1", "multi", f"{stem}.sig")
    ]
    assert (2, 6, 8, 8, 0, ()) == counts(first)


def counts(done: CompletedScan) -> tuple[Any, ...]:
    """Give the numbers of a scan."""
    return done.repositories, done.tags, done.images, done.read, done.gone, done.warnings


def check_doubts(rig: Rig, scans: Scans, earlier: Snapshot) -> None:
    """Let lists lose what is there, and see that no scan believes them."""
    before = scans.folders
    rig.proxy.inject(asking("GET", "/_catalog"), answering(200, {"repositories": []}), times=1)
    with pytest.raises(SafetyStop, match="lists no repository"):
        scans(rig.url, earlier=earlier)
    cut = {"name": "team/app", "tags": ["v2", "multi"]}
    rig.proxy.inject(asking("GET", "team/app/tags/list"), answering(200, cut), times=1)
    with pytest.raises(MetadataError, match=r"team/app is not whole.*which is there"):
        scans(rig.url, earlier=earlier)

    assert before == scans.folders


@dataclass(frozen=True)
class Changes:
    """What was pushed between the first scan and the second, and what was told of it."""

    newer: Pushed
    third: Pushed
    other: Pushed
    lone: Pushed
    events: Sequence[Event]


def change(rig: Rig, world: World) -> Changes:
    """Overwrite tags, push by digest, and delete a child under its index; one push is not told."""
    rig.wait_for(world.binned.digest)  # all is told in its order, so what is told from now on is new
    told_before = len(rig.told)
    newer = push_image(rig.client, "team/app", ["v2"], name="newer")
    third = push_image(rig.client, "team/app", name="third child")
    other = push_index(rig.client, "team/app", ["multi"], [world.children[0], third])
    lone = push_image(rig.client, "team/app", name="by its digest alone")
    rig.client.delete_manifest("team/app", world.children[1].digest)
    first = rig.wait_for(newer.digest)
    rig.wait_for(lone.digest)
    rig.wait_for(world.children[1].digest, DELETE)
    # The first scan was made in the far future; events are dated after it so that they can be believed.
    later = FAR - first.at + timedelta(hours=1)
    events = [replace(event, at=event.at + later) for event in rig.told[told_before:]]
    told = [event for event in events if event.digest != other.digest]
    return Changes(newer, third, other, lone, told)


def told(events: Sequence[Event], folder: Path) -> Path:
    """Write events as a scan takes them."""
    write_rows(EVENTS, map(vars, events), folder)
    return folder


def check_second(world: World, changes: Changes, first: CompletedScan, second: CompletedScan) -> None:
    """Look at what has changed."""
    images, tags = rows(second.snapshot.images, "digest"), rows(second.snapshot.tags, "tag")
    now = to_micros(second.at)
    (lone_push,) = [event for event in changes.events if event.digest == changes.lone.digest]

    assert (2, 6, 11, 4, 1, ()) == counts(second)
    assert ("team/app", world.children[1].digest) not in images
    assert rows(first.snapshot.tags, "tag")["team/app", "v1"] == tags["team/app", "v1"]
    assert to_micros(FAR + timedelta(hours=1)) == tags["team/app", "v2"]["moved_at"]
    assert (now, now) == (tags["team/app", "multi"]["moved_at"], tags["team/app", "multi"]["seen_at"])
    assert ("Default", to_micros(second.at + 99 * DAY), True, True) == assigned(tags["team/app", "multi"])
    for digest in (world.multi.digest, changes.lone.digest):
        row = images["team/app", digest]
        assert (now, *untagged(second)) == (row["untagged_since"], *assigned(row))
    for digest in (changes.third.digest, world.app.digest, world.children[0].digest):
        assert images["team/app", digest]["untagged_since"] is None
    assert to_micros(lone_push.at) == images["team/app", changes.lone.digest]["pushed_at"]


def untagged(done: CompletedScan) -> tuple[Any, ...]:
    """Give the values that a manifest gets which has lost its tag at a scan."""
    return "Untagged", to_micros(done.at + 7 * DAY), True, True


def check_last(world: World, changes: Changes, second: CompletedScan, last: CompletedScan) -> None:
    """Look at what was tagged again, what was not, and at the repository that was not scanned."""
    images, tags = rows(last.snapshot.images, "digest"), rows(last.snapshot.tags, "tag")
    again, lone = images["team/app", world.multi.digest], images["team/app", changes.lone.digest]

    assert (None, None, None, None, None) == (again["untagged_since"], *assigned(again))
    assert to_micros(last.at) == tags["team/app", "again"]["moved_at"]
    assert (to_micros(second.at), *untagged(second)) == (lone["untagged_since"], *assigned(lone))
    assert (1, 6, 11, 1, 0, ()) == counts(last)
    assert images["team/app", world.children[1].digest]["untagged_since"] is None
    assert ("lib/base", world.base.digest) in images
    assert ("lib/base", "base") in tags
    assert {"lib/base": second.at, "team/app": last.at} == last.snapshot.scanned


def test_the_story_of_a_registry(rig: Rig, scans: Scans):
    """Three scans find what was pushed, moved, lost and tagged again, date it, and read nothing twice."""
    world = push_world(rig.client)
    rig.proxy.inject(asking("HEAD", "/manifests/v1"), answering(429, {}, Retry_After="1"), times=1)
    rig.proxy.inject(asking("GET", "lib/base/tags/list"), answering(500, {}), times=1)
    first = scans(rig.url)
    check_first(world, first)
    check_doubts(rig, scans, first.snapshot)

    changes = change(rig, world)
    rig.proxy.clear()
    second = scans(
        rig.url,
        FAR + DAY,
        OTHERS,
        earlier=read_snapshot(scans.spark, first.folder),
        events=told(changes.events, scans.folder.parent / "events"),
    )
    fresh = (changes.newer, changes.third, changes.other, changes.lone)
    assert sorted(one.digest for one in fresh) == asked(rig.proxy, "GET", "/manifests/")
    check_second(world, changes, first, second)

    rig.client.put_manifest("team/app", world.children[1].digest, world.children[1].manifest)
    rig.client.put_manifest("team/app", "again", world.multi.manifest)
    rig.client.delete_manifest("lib/base", world.base.digest)
    rig.proxy.clear()
    last = scans(f"{rig.url}/team/app", FAR + 2 * DAY, earlier=second.snapshot)
    # The child that its index still lists has come back; nothing was known of it any more.
    assert [world.children[1].digest] == asked(rig.proxy, "GET", "/manifests/")
    check_last(world, changes, second, last)


def test_layouts_and_kinds_that_nobody_knows(scans: Scans, tmp_path: Path):
    """A folder lists its untagged manifests; what is not understood stays, with all that it may need."""
    (tmp_path / "layouts").mkdir()
    layout = ImageLayout(RegistrySpec(f"oci-layout:{tmp_path / 'layouts'}"))
    kept = {}
    for repository in ("plain", "index", "old"):
        tagged = push_image(layout, repository, ["v1"], name=repository)
        lone = push_image(layout, repository, name=f"lone {repository}", subject=tagged)
        bare = push_image(layout, repository, name=f"bare {repository}")
        kept[repository] = (tagged.digest, lone.digest, bare.digest)
    unknown = write_odd(layout, "index", "application/vnd.example.bundle+json")
    schema_1 = write_odd(layout, "old", SCHEMA_1)
    done = scans(f"oci-layout:{tmp_path / 'layouts'}")
    images = rows(done.snapshot.images, "digest")

    never = (None, to_micros(NEVER), False, None)
    untagged = ("Untagged", to_micros(FAR + 5 * DAY), True, True)
    nothing = (None,) * 4
    expected = {("index", digest): never for digest in (*kept["index"], unknown)}
    expected |= {("old", schema_1): never}
    for repository in ("plain", "old"):
        values = zip(kept[repository], (nothing, nothing, untagged), strict=True)
        expected |= {(repository, digest): value for digest, value in values}
    assert expected == {key: assigned(row) for key, row in images.items()}
    assert SCHEMA_1 == images["old", schema_1]["media_type"]
    assert 2 == len(done.warnings)
    assert "no manifest of this repository is deleted" in done.warnings[0]
    assert "they are not deleted" in done.warnings[1]

    layout.delete_manifest("index", unknown)
    later = scans(f"oci-layout:{tmp_path / 'layouts'}", FAR + DAY, earlier=done.snapshot)
    images = rows(later.snapshot.images, "digest")
    anew = ("Untagged", to_micros(FAR + 6 * DAY), True, True)
    del expected["index", unknown]
    expected |= {
        ("index", digest): value
        for digest, value in zip(kept["index"], (nothing, nothing, anew), strict=True)
    }
    assert expected == {key: assigned(row) for key, row in images.items()}
    assert (3, 4, 10, 0, 1) == counts(later)[:5]
    assert done.warnings[1:] == later.warnings


def test_referrers_that_no_tag_shows(registry: RegistryServer, scans: Scans):
    """Where the registry says what refers to an image, a signature without a tag is found and read."""
    repository = fresh_repository()
    with flaky_proxy(registry.endpoint) as proxy, connected(registry.endpoint) as client:
        image = push_image(client, repository, ["v1"])
        signature = push_image(client, repository, name="signature", subject=image)
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
        proxy.inject(
            lambda asked: asked.path.endswith(f"/referrers/{image.digest}"),
            answering(200, {**index, "manifests": [signature.row]}),
        )
        proxy.inject(asking("GET", "/referrers/"), answering(200, index))
        done = scans(f"{proxy.endpoint.replace('http:', 'oci:')}/{repository}")
        missing = f"{proxy.endpoint.replace('http:', 'oci:')}/{fresh_repository()}"
        with pytest.raises(NotFound, match="has no"):
            scans(missing)

    found = rows(done.snapshot.images, "digest")
    assert {image.digest: None, signature.digest: image.digest} == {
        digest: row["subject"] for (_, digest), row in found.items()
    }
    assert {None} == {row["untagged_since"] for row in found.values()}
    assert ["001"] == scans.folders


@contextmanager
def hanging() -> Iterator[Callable[..., Response]]:
    """Take a request and say nothing until the block ends."""
    release = threading.Event()

    def hang(_request: Request, _forward: Callable[[], Response]) -> Response:
        release.wait(300)
        return Response(0, sent=None)

    try:
        yield hang
    finally:
        release.set()


TROUBLE: Sequence[tuple[str, str, int, type[EbbtideError], str]] = [
    ("GET", "/_catalog", 403, Denied, "list repositories.*403"),
    ("GET", "/tags/list", 401, Denied, "list the tags of .*401"),
    ("HEAD", "/manifests/", 500, StoreError, r"read .* v\d.*500"),
    ("GET", "/manifests/", 200, MetadataError, "not what it should be"),
    ("GET", "/manifests/", 404, MetadataError, "stands for a manifest that is not there"),
    ("GET", "/manifests/", 0, StoreError, "read .* sha256:.*ReadTimeout"),
]


@pytest.mark.parametrize(
    ("method", "part", "status", "error", "words", "limits"),
    [*((*trouble, ON_DRIVER) for trouble in TROUBLE), *((*TROUBLE[n], ON_SPARK) for n in (3, 5))],
)
def test_trouble_in_the_middle(
    registry: RegistryServer,
    scans: Scans,
    method: str,
    part: str,
    status: int,
    error,
    words: str,
    limits: Limits,
):
    """A scan that cannot read something ends with an error that says what, and leaves no snapshot."""
    repository = fresh_repository()
    with (
        flaky_proxy(registry.endpoint) as proxy,
        connected(registry.endpoint) as client,
        hanging() as hang,
    ):
        push_image(client, repository, ["v1", "v2"])
        proxy.inject(asking(method, part), hang if status == 0 else _answer_to(status))
        address = "" if part == "/_catalog" else f"/{repository}"
        # Brief only where the registry hangs: elsewhere a busy machine would be taken for one that does.
        options = {"retries": "1", "timeout": "120" if status else "8"}
        with pytest.raises(error, match=words):
            scans(f"{proxy.endpoint.replace('http:', 'oci:')}{address}", options=options, limits=limits)

    assert [] == scans.folders


def _answer_to(status: int) -> Callable[..., Response]:
    """Answer with a status; with 200 the registry's own answer is changed on the way."""

    def answer(_request: Request, forward: Callable[[], Response]) -> Response:
        if status != 200:
            return Response(status, {}, b"{}")
        found = forward()
        return replace(found, body=found.body.replace(b"layer", b"lAyer", 1))

    return answer


def test_a_snapshot_that_lost_a_file(scans: Scans, tmp_path: Path):
    """A snapshot with fewer rows than were written, or without a table, is an error when it is read."""
    steps = set[str]()
    (tmp_path / "layouts").mkdir()
    push_image(ImageLayout(RegistrySpec(f"oci-layout:{tmp_path / 'layouts'}")), "app", ["v1"])
    # The only tag is one too many for the driver, so that it is Spark that writes the snapshot.
    limits = replace(ON_SPARK, few=0)
    done = scans(
        f"oci-layout:{tmp_path / 'layouts'}", limits=limits, on_progress=lambda step, *_: steps.add(step)
    )
    assert {"listing tags", "writing the snapshot"} <= steps
    (part,) = [file for file in (done.folder / "tags").glob("*.parquet") if b"v1" in file.read_bytes()]
    part.unlink()
    with pytest.raises(MetadataError, match="'tags' is not whole"):
        read_snapshot(scans.spark, done.folder)
    for file in (done.folder / "tags").iterdir():
        file.unlink()
    (done.folder / "tags").rmdir()
    with pytest.raises(MetadataError, match="not there"):
        read_snapshot(scans.spark, done.folder)
