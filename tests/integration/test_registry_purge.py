"""The purge of a real registry from end to end: scan, plan, apply, the registry's own collector, restore."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from tests.services.bin_kit import tags_of, whole
from tests.services.ebb import ebb
from tests.services.image_kit import push_image, push_index, push_signature
from tests.services.registry import registry_server, skopeo

from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry

__all__ = ["ebb"]

pytestmark = pytest.mark.spark

FIRST = "2026-01-01T00:00:00Z"
LATER = "2026-01-06T00:00:00Z"
"""Five days after the first scan: what has the policy Default expires at this very moment."""
POLICIES = {"assign": [{"repository": "team/*", "tag": "v[0-9.]+", "policy": "Released"}]}


@pytest.fixture
def server(tmp_path):
    """Run a registry for this test alone, because its collector is going to run."""
    with registry_server(tmp_path / "registry") as found:
        yield found


@pytest.fixture
def client(server):
    """Open the registry."""
    with closing(open_registry(RegistrySpec(server.url))) as found:
        yield found


def outcomes(applied):
    """Count the outcomes that an apply printed."""
    return {name: tally["objects"] for name, tally in applied["outcomes"].items()}


def fill(client):
    """Push an index, two tags on a digest, an overwritten tag, a signature, and shared layers."""
    shared = b"a layer that both repositories have"
    arms = [push_image(client, "team/app", name=f"arm{n}", layers=[shared, b"%d" % n]) for n in range(2)]
    images = {
        "multi": push_index(client, "team/app", ["build-1"], arms),
        "released": push_image(client, "team/app", ["v1.0", "candidate"], name="released", layers=[shared]),
        "overwritten": push_image(client, "team/app", ["latest"], name="one"),
        "newer": push_image(client, "team/app", ["latest"], name="two"),
        "other": push_image(client, "other", ["v1.0", "dev"], name="other", layers=[shared]),
    }
    images["signature"] = push_signature(client, "team/app", images["multi"])
    return images


def where(name):
    """Name the repository of one of the images."""
    return "other" if name == "other" else "team/app"


def test_scenario_1_0_default_purge_recycle_collect_restore(ebb, server, client, tmp_path):
    """What has expired goes into the bin, survives the registry's collector, and comes back byte for byte."""
    images = fill(client)
    before = {name: whole(client, where(name), image.digest) for name, image in images.items()}
    (ebb.folder / "policies.json").write_text(json.dumps(POLICIES))
    ebb("image", "policy", "load", server.url, "policies.json")
    ebb("image", "scan", server.url, now=FIRST)
    planned = ebb.json("plan", server.url, "--adopt", now=LATER)
    applied = ebb.json("apply", "latest", "--yes", now=LATER)

    due = planned["summary"]["due"]["objects"]
    assert ({"recycled": due}, due, 0) == (
        outcomes(applied),
        applied["set_aside"]["objects"],
        applied["freed"]["objects"],
    )
    # The released image keeps its other name too, for this registry deletes no tag by itself.
    released = images["released"].digest
    assert {"v1.0": released, "candidate": released} == tags_of(client, "team/app")
    assert {} == tags_of(client, "other")

    server.garbage_collect("--delete-untagged")
    binned = ebb.json("image", "recycle", "list", server.url)

    assert {"build-1", "latest", "v1.0", "dev"} <= {tag["name"] for entry in binned for tag in entry["tags"]}

    for image in ("team/app:build-1", "team/app:latest", "other:dev"):
        ebb("image", "recycle", "restore", f"{server.url}/{image}")
    host = server.url.removeprefix("oci://")
    copied = f"dir:{tmp_path / 'out'}"
    skopeo("copy", "--all", "--src-tls-verify=false", f"docker://{host}/team/app:build-1", copied)

    for name in ("multi", "newer", "other", "released", "signature"):
        assert before[name] == whole(client, where(name), images[name].digest), name
