"""A registry that fails in the middle of a scan or a purge, as a user meets it."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from tests.services.bin_kit import tags_of
from tests.services.ebb import ebb
from tests.services.flaky_proxy import Response, flaky_proxy
from tests.services.image_kit import fresh_repository, push_image
from tests.services.image_place import adopt

from ebbtide.targets.oci.bin.contents import entries
from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry

__all__ = ["ebb"]

pytestmark = pytest.mark.spark

FIRST = "2026-01-01T00:00:00Z"
LATER = "2026-01-06T00:00:00Z"
IMAGES = 24
TROUBLES = ("401", "429", "500", "hang")
CONFIG = """
[registry]
retries = {retries}
timeout = {timeout}
patience = 60
[deletes]
tasks = 1
"""


class Scene:
    """A repository behind a proxy that makes trouble."""

    def __init__(self, ebb, proxy, client):
        self.ebb, self.proxy, self.client = ebb, proxy, client
        self.repository = fresh_repository()
        host = proxy.endpoint.removeprefix("http://")
        self.target = f"oci://{host}/{self.repository}"
        self.digests = set()
        self._waiting = threading.Event()
        self.wait_for(60)

    def wait_for(self, seconds, retries=2):
        """Give the registry so long to answer; only who meets one that hangs is not patient."""
        (self.ebb.folder / "ebbtide.toml").write_text(CONFIG.format(timeout=seconds, retries=retries))

    def fill(self):
        """Push images that differ."""
        for number in range(IMAGES):
            pushed = push_image(self.client, self.repository, [f"b{number:02d}"], name=f"image {number}")
            self.digests.add(pushed.digest)

    def trouble(self, kind, when, after=0):
        """Fail at the requests of a kind, once so many of them have passed."""
        # One long wait and not two short ones: what is only slow must get through, and just once.
        self.wait_for(*((10, 1) if kind == "hang" else (60,)))
        passed = []

        def answer(_request, forward):
            passed.append(1)
            if len(passed) <= after:
                return forward()
            if kind == "hang":
                self._waiting.wait(300)
                return Response(0, sent=None)
            headers = {"WWW-Authenticate": 'Basic realm="x"'} if kind == "401" else {"Retry-After": "0"}
            return Response(int(kind), headers, b"{}")

        self.proxy.inject(when, answer)

    def settle(self):
        """Make no more trouble."""
        self.wait_for(60)
        self._waiting.set()
        self.proxy.clear()
        self._waiting = threading.Event()

    def deletes(self, request):
        """Tell whether a request deletes one of the images; probes delete what cannot be there."""
        return request.method == "DELETE" and request.path.rpartition("/")[2] in self.digests

    def left(self):
        """Name the tags that are still there, asked for past the proxy."""
        return set(tags_of(self.client, self.repository))


@pytest.fixture
def scene(ebb, registry):
    """Give an empty repository of the shared registry."""
    with (
        flaky_proxy(registry.endpoint) as proxy,
        closing(open_registry(RegistrySpec(registry.url))) as client,
    ):
        found = Scene(ebb, proxy, client)
        adopt(found.target)
        yield found
        found.settle()


def reads(request):
    """Tell whether a request reads what a tag or digest stands for."""
    return request.method in ("GET", "HEAD") and "/manifests/" in request.path


def troubled(scene, troubles):
    """Purge while one trouble after the other comes, and then without any."""
    scene.fill()
    everything = scene.left()
    scene.ebb("image", "scan", scene.target, now=FIRST)
    scene.ebb("plan", scene.target, now=LATER)
    for number, kind in enumerate(troubles, 1):
        scene.trouble(kind, scene.deletes, after=2)
        _, said = scene.ebb("apply", "latest", "--yes", "--override-breaker", now=LATER, code=4)
        scene.settle()

        assert IMAGES - 2 * number == len(scene.left()), kind
        assert "failed" == scene.ebb.json("runs")[-1]["state"]
        assert "could not be deleted" in said
        assert f"{4 * number} recycled" in said
        assert "not reached" in said

    applied = scene.ebb.json("apply", "latest", "--yes", "--override-breaker", now=LATER)

    assert {"recycled": 2 * IMAGES} == {name: one["objects"] for name, one in applied["outcomes"].items()}
    assert set() == scene.left()
    binned = [tag.name for entry in entries(scene.client, scene.repository) for tag in entry.tags]
    assert everything == set(binned)


def test_trouble_in_the_middle_of_a_purge(scene):
    """What is done, failed and not reached is said, nothing more is gone, and a later run does the rest."""
    troubled(scene, ["hang"])


@pytest.mark.long
def test_every_trouble_in_the_middle_of_a_purge(scene):
    """Whatever the trouble, the same holds, and every later run goes on from there."""
    troubled(scene, TROUBLES)


@pytest.mark.parametrize("kind", TROUBLES)
def test_trouble_in_the_middle_of_a_scan(scene, kind):
    """A scan that cannot be finished makes no plan, changes nothing, and the next one does."""
    scene.fill()
    scene.trouble(kind, reads, after=IMAGES // 2)
    _, said = scene.ebb("plan", scene.target, now=LATER, code=1)
    scene.settle()

    assert "error:" in said
    assert IMAGES == len(scene.left())
    assert ["abandoned"] == [one["state"] for one in scene.ebb.json("runs")]
    assert "was never scanned" in scene.ebb("image", "ls", scene.target, code=2)[1]
