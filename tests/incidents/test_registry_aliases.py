"""
One registry under several names: its pins, roles, log and lock count, however it is spelled or reached.

Found by outside testing: `localhost:5000`, `127.0.0.1:5000`, `:05000` and `:0443` were different registries.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.services.bin_kit import entry_of, recycle
from tests.services.ebb import ebb as spark_ebb
from tests.services.flaky_proxy import flaky_proxy
from tests.services.image_kit import fresh_repository, push_image
from tests.services.machine_clock import set_machine_clock
from tests.services.registry import registry_server

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.errors import Busy
from ebbtide.state.locks import target_lock
from ebbtide.targets.oci.bin.entry import MARKER_REPOSITORY
from ebbtide.targets.oci.client.registry import open_registry
from ebbtide.targets.oci.kind import registry_context
from ebbtide.targets.oci.purge.identity import read_marker

__all__ = ["spark_ebb"]

WRITER, IMAGES = "purge-policy-writer", "image-purge-writer"


@pytest.fixture
def ebb(tmp_path, monkeypatch, capsys):
    """Run `ebb image` as some user in a folder of its own; give exit code, output and errors."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    set_machine_clock(monkeypatch, "2026-01-01")

    def call(*words: str, by: str = "teja", code: int = 0) -> tuple[str, str]:
        monkeypatch.setenv("EBBTIDE_USER", by)
        capsys.readouterr()
        found = run(["image", *words])
        printed = capsys.readouterr()
        assert code == found, printed.out + printed.err
        assert "Traceback" not in printed.err
        return printed.out, printed.err

    return call


@pytest.fixture
def folder(tmp_path) -> Path:
    """Make a folder of layouts with one image."""
    return make_folder(tmp_path / "images")


def make_folder(place: Path) -> Path:
    """Make a folder of layouts with one image."""
    place.mkdir()
    with closing(open_registry(f"oci-layout:{place}")) as opened:
        push_image(opened, "app", ["v1"])
    return place


def pinned(out: str) -> set[str]:
    """Name the images that a log says were pinned."""
    return {row["subject"] for row in map(json.loads, out.splitlines()) if row["what"].startswith("pin")}


def marker_of(url: str) -> str:
    """Read the id of a registry's marker, empty if it has none."""
    with closing(open_registry(url)) as opened:
        found = read_marker(opened)
    return "" if found is None else found.id


def test_spellings_of_one_registry_share_pins_roles_log_and_lock(ebb, registry, tmp_path):
    """What is pinned, granted, logged or locked under one spelling is so under all."""
    repository = fresh_repository()
    with closing(open_registry(registry.url)) as opened:
        push_image(opened, repository, ["v1"])
    port = registry.port
    others = [
        f"oci://localhost:{port}",
        f"oci://LOCALHOST.:{port:05}",
        f"oci://[::1]:{port}",
        f"{registry.url}/x",
    ]
    ebb("pin", f"{registry.url}/{repository}:v1")
    ebb("role", "grant", f"oci://localhost:{port}", "ines", IMAGES)
    logs = {one: pinned(ebb("log", one, "--json")[0]) for one in (registry.url, *others)}
    for one in (registry.url, f"oci://127.0.0.1:{port:05}"):
        _, said = ebb("unpin", f"{one}/{repository}:v1", by="mallory", code=2)
        assert "needs the role image-purge-writer" in said
    uids = {registry_context(State(), one).uid for one in (registry.url, *others)}

    assert {one: {f"{repository}:v1"} for one in (registry.url, *others)} == logs
    assert 1 == len(uids)
    first, second = (registry_context(State(), one).uid for one in (registry.url, others[0]))
    with target_lock(tmp_path, first, "one"), pytest.raises(Busy), target_lock(tmp_path, second, "another"):
        pass


def test_another_name_is_recognised_by_the_marker(ebb, registry):
    """Through a proxy on another port, as through a second DNS name, the same pins and roles count."""
    repository = fresh_repository()
    with closing(open_registry(registry.url)) as opened:
        push_image(opened, repository, ["v1"])
    ebb("pin", f"{registry.url}/{repository}:v1")
    ebb("role", "grant", registry.url, "ines", IMAGES)
    with flaky_proxy(registry.endpoint) as proxy:
        alias = proxy.endpoint.replace("http://", "oci://")
        before = pinned(ebb("log", alias, "--json")[0])
        _, refused = ebb("unpin", f"{alias}/{repository}:v1", by="mallory", code=2)
        _, warned = ebb("unpin", f"{alias}/{repository}:v1", by="ines")
    log = [json.loads(line) for line in ebb("log", registry.url, "--json")[0].splitlines()]

    assert {f"{repository}:v1"} == before
    assert "mallory may not" in refused
    assert (
        f"oci://localhost:{proxy.server.server_port} is another name of oci://localhost:{registry.port}"
        in (refused + warned)
    )
    assert {"unpin"} <= {row["what"] for row in log if row["by"] == "ines"}
    assert any("recognise another name of" in row["what"] for row in log)


def test_an_unknown_registry_is_adopted_first_where_others_have_roles(ebb, folder, tmp_path):
    """Nothing is changed at a registry that nobody knows while another one has roles, until it is adopted."""
    known, unknown = f"oci-layout:{folder}", f"oci-layout:{make_folder(tmp_path / 'other')}"
    ebb("role", "grant", known, "ines", IMAGES)
    refused = [
        ebb(*words, code=2)[1]
        for words in (
            ("pin", f"{unknown}//app:v1"),
            ("policy", "set", unknown, "Mine", "--days", "3"),
            ("role", "grant", unknown, "mallory", WRITER),
            ("recycle", "empty", unknown, "--yes"),
        )
    ]
    marked = marker_of(unknown)
    ebb("adopt", unknown)
    ebb("pin", f"{unknown}//app:v1")
    log = [json.loads(line) for line in ebb("log", unknown, "--json")[0].splitlines()]

    assert all(f"ebb image adopt {unknown}" in said for said in refused)
    assert "" == marked
    assert marker_of(unknown)
    assert [("teja", "adopt the registry")] == [
        (row["by"], row["what"]) for row in log if row["kind"] == "role" and not row["refused"]
    ]
    assert 4 == sum(bool(row["refused"]) for row in log)


def test_without_roles_anywhere_nothing_needs_to_be_adopted(ebb, folder):
    """As long as nobody has a role, a new registry is known from the first change on."""
    ebb("pin", f"oci-layout:{folder}//app:v1")

    assert marker_of(f"oci-layout:{folder}")


def test_a_folder_that_was_moved_keeps_its_records(ebb, folder, tmp_path):
    """Its marker went with it, and the old address is empty."""
    ebb("pin", f"oci-layout:{folder}//app:v1")
    folder.rename(tmp_path / "moved")
    _, warned = ebb("assign", f"oci-layout:{tmp_path}/moved//app:v1", "Default")

    assert f"is another name of oci-layout:{folder}" in warned
    assert {"app:v1"} == pinned(ebb("log", f"oci-layout:{tmp_path}/moved", "--json")[0])


def test_a_copy_of_a_registry_is_not_taken_for_another_name(ebb, folder, tmp_path):
    """Two registries with one marker stop; the copy gets an identity of its own on request."""
    ebb("pin", f"oci-layout:{folder}//app:v1")
    shutil.copytree(folder, tmp_path / "copy")
    copy = f"oci-layout:{tmp_path}/copy"
    _, stopped = ebb("unpin", f"{copy}//app:v1", code=3)
    ebb("adopt", copy, "--as-new")
    ebb("pin", f"{copy}//app:v1", "--until", "2027-01-01")

    assert "is a copy of" in stopped
    assert marker_of(copy) not in ("", marker_of(f"oci-layout:{folder}"))
    assert 1 == len([row for row in ebb("log", copy, "--json")[0].splitlines() if '"what": "pin' in row])


def test_another_name_gets_no_identity_of_its_own(ebb, registry):
    """Whoever could give the alias of a registry new records would be rid of its pins and roles."""
    repository = fresh_repository()
    with closing(open_registry(registry.url)) as opened:
        push_image(opened, repository, ["v1"])
    ebb("pin", f"{registry.url}/{repository}:v1")
    with flaky_proxy(registry.endpoint) as proxy:
        _, refused = ebb("adopt", proxy.endpoint.replace("http://", "oci://"), "--as-new", code=2)

    assert "it is the same registry as" in refused


def test_an_unchanged_registry_keeps_its_identity(ebb, folder):
    """To adopt the registry that was recorded as a new one would drop its pins, so it is refused."""
    ebb("pin", f"oci-layout:{folder}//app:v1")
    _, refused = ebb("adopt", f"oci-layout:{folder}", "--as-new", code=2)

    assert "is the registry that was recorded under this name" in refused
    assert {"app:v1"} == pinned(ebb("log", f"oci-layout:{folder}", "--json")[0])


def test_another_registry_at_a_known_address_stops(ebb, folder, tmp_path):
    """The pins and roles of the one that was there are not those of the one that is."""
    other = make_folder(tmp_path / "other")
    ebb("pin", f"oci-layout:{folder}//app:v1")
    ebb("pin", f"oci-layout:{other}//app:v1")
    shutil.rmtree(folder)
    other.rename(folder)
    _, stopped = ebb("unpin", f"oci-layout:{folder}//app:v1", code=3)

    assert "is not the registry that was recorded under this name" in stopped


def test_a_lost_marker_is_written_again(ebb, folder):
    """A registry that lost its marker gets the same one, with a warning."""
    url = f"oci-layout:{folder}"
    ebb("pin", f"{url}//app:v1")
    before = marker_of(url)
    shutil.rmtree(folder / MARKER_REPOSITORY)
    _, warned = ebb("unpin", f"{url}//app:v1")

    assert before == marker_of(url)
    assert "had lost its marker" in warned


def test_a_registry_that_takes_no_marker_is_known_by_its_name(ebb, registry):
    """Everything works, and a warning says that another name would not be recognised."""
    repository = fresh_repository()
    with closing(open_registry(registry.url)) as opened:
        push_image(opened, repository, ["v1"])
    with flaky_proxy(registry.endpoint) as proxy:
        denied = json.dumps({"errors": [{"code": "DENIED"}]}).encode()
        proxy.inject(
            lambda request: MARKER_REPOSITORY in request.path,
            lambda request, forward: type(forward())(403, {"Content-Type": "application/json"}, denied),
        )
        alias = proxy.endpoint.replace("http://", "oci://")
        _, warned = ebb("pin", f"{alias}/{repository}:v1")
        _, again = ebb("unpin", f"{alias}/{repository}:v1")

    assert "is known by its name alone" in warned
    assert "is known by its name alone" in again


def test_the_marker_is_no_image_and_is_not_emptied_with_the_bin(ebb, folder):
    """It is in no list of the bin, and emptying the bin leaves it where it is."""
    url = f"oci-layout:{folder}"
    ebb("pin", f"{url}//app:v1")
    with closing(open_registry(url)) as opened:
        pushed = push_image(opened, "app", ["v2"], name="v2")
        recycle(opened, entry_of("app", pushed, ["v2"]))
    before = marker_of(url)
    listed, warned = ebb("recycle", "list", url, "--json")
    ebb("recycle", "empty", url, "--yes")

    assert ["app"] == [row["repository"] for row in json.loads(listed)]
    assert "" == warned
    assert before == marker_of(url)


@pytest.mark.spark
def test_a_plan_under_another_name_keeps_what_is_pinned(spark_ebb, tmp_path):
    """A plan and an apply through an alias respect the pins of the registry, and its marker stays."""
    with registry_server(tmp_path / "registry") as server, flaky_proxy(server.endpoint) as proxy:
        with closing(open_registry(server.url)) as opened:
            for name in ("kept", "gone"):
                push_image(opened, "app", [name], name=name)
        spark_ebb("image", "scan", server.url, now="2026-01-01T00:00:00Z")
        spark_ebb("image", "pin", f"{server.url}/app:kept", now="2026-01-01T00:00:00Z")
        alias = proxy.endpoint.replace("http://", "oci://")
        spark_ebb("plan", alias, "--adopt", now="2026-01-08T00:00:00Z")
        spark_ebb("apply", "latest", "--yes", "--override-breaker", now="2026-01-08T00:00:00Z")
        with closing(open_registry(server.url)) as opened:
            left = set(opened.tags("app"))
            marker = read_marker(opened)

    assert {"kept"} == left
    assert marker is not None
