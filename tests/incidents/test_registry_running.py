"""Running images that anybody could talk away with another list (issue 15, A7)."""

from __future__ import annotations

import json

import pytest
from tests.services.ebb import Ebb, ebb
from tests.services.image_kit import push_image
from tests.services.image_place import APP, ImagePlace

from ebbtide.cli.state import State
from ebbtide.core.errors import EnvironmentProblem
from ebbtide.targets.oci.kind import registry_context
from ebbtide.targets.oci.records.model import Role
from ebbtide.targets.oci.running_source import applied_source

__all__ = ["ebb"]

OTHER = ("--running", "none.json")


def configure(folder):
    """Configure a source that names the image, and write another one that names nothing."""
    (folder / "ebbtide.toml").write_text('[registry]\nrunning = "pods.json"\n')
    (folder / "pods.json").write_text(json.dumps([f"{APP}:a"]))
    (folder / "none.json").write_text("[]")


@pytest.fixture
def no_spark(tmp_path, monkeypatch, capsys):
    """Give a folder of images and commands that end, with exit code 1, where Spark would start."""

    def start(*_):
        raise EnvironmentProblem("Spark would start")

    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(State, "spark", start)
    configure(folder)
    place = ImagePlace(Ebb(folder, capsys), tmp_path / "images")
    push_image(place.client, APP, ["a"])
    return place


@pytest.mark.parametrize(
    "words", [("plan", "{}"), ("image", "purge", "{}"), ("image", "delete", "{}", "--older-than", "1d")]
)
def test_another_source_of_running_images_needs_the_role(no_spark, monkeypatch, words):
    """Where a source is configured, only who was given image-purge-writer may plan with another one."""
    place = no_spark
    command = [*(word.format(place.target) for word in words), *OTHER]
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    _, alone = place.ebb(*command, code=2)
    monkeypatch.setenv("EBBTIDE_USER", "ines")
    for role in ("purge-policy-writer", "image-purge-writer"):
        place.ebb("image", "role", "grant", place.target, "ines", role)
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    _, refused = place.ebb(*command, code=2)
    log = place.ebb.lines("image", "log", place.target)
    monkeypatch.setenv("EBBTIDE_USER", "ines")
    _, allowed = place.ebb(*command, code=1)

    assert "image-purge-writer" in alone
    assert "mallory may not" in refused
    assert "mallory" in {row["by"] for row in log if "none.json" in row["what"] and row["refused"]}
    assert "Spark would start" in allowed


def test_the_configured_source_needs_no_role_however_it_is_spelled(no_spark):
    """The configured source is allowed to everybody, also by another spelling of its path."""
    place = no_spark
    place.ebb("plan", place.target, "--running", f"../{place.ebb.folder.name}/./pods.json", code=1)
    place.ebb("plan", place.target, code=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("EBBTIDE_REGISTRY__RUNNING", "./pods.json")
        place.ebb("plan", place.target, code=1)


@pytest.mark.parametrize("way", ["null", "none.json", "--config"])
def test_the_configured_source_is_replaced_only_with_the_role(no_spark, monkeypatch, way):
    """Who switches off or replaces the recorded source by a variable or another file needs the role."""
    place = no_spark
    monkeypatch.setenv("EBBTIDE_USER", "daily")
    place.ebb("plan", place.target, code=1)
    command: tuple[str, ...] = ("plan", place.target)
    if way == "--config":
        (place.ebb.folder / "other.toml").write_text("")
        command = ("--config", "other.toml", *command)
    else:
        monkeypatch.setenv("EBBTIDE_REGISTRY__RUNNING", way)
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    _, alone = place.ebb(*command, code=2)
    monkeypatch.setenv("EBBTIDE_USER", "ines")
    for role in ("purge-policy-writer", "image-purge-writer"):
        place.ebb("image", "role", "grant", place.target, "ines", role)
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    _, refused = place.ebb(*command, code=2)
    monkeypatch.setenv("EBBTIDE_USER", "ines")
    place.ebb(*command, code=1)
    monkeypatch.setenv("EBBTIDE_USER", "daily")
    place.ebb(*command, code=1)
    log = place.ebb.lines("image", "log", place.target)

    changes = [(row["by"], bool(row["refused"])) for row in log if row["subject"] == "running images"]
    assert "image-purge-writer" in alone
    assert "mallory may not" in refused
    assert [("ines", False), ("mallory", True), ("mallory", True), ("daily", False)] == changes


def test_a_first_source_needs_no_role(no_spark, monkeypatch):
    """A registry that was planned without a source gets its first one from anybody, and then keeps it."""
    place = no_spark
    (place.ebb.folder / "ebbtide.toml").write_text("")
    place.ebb("plan", place.target, code=1)
    configure(place.ebb.folder)
    monkeypatch.setenv("EBBTIDE_USER", "teja")
    place.ebb("plan", place.target, code=1)
    (place.ebb.folder / "ebbtide.toml").write_text("")
    place.ebb("plan", place.target, code=2)


def test_a_source_that_cannot_be_read_is_not_recorded(no_spark):
    """A misspelled source stops the plan, and its correction needs no role."""
    place = no_spark
    (place.ebb.folder / "ebbtide.toml").write_text('[registry]\nrunning = "pots.json"\n')
    place.ebb("plan", place.target, code=3)
    configure(place.ebb.folder)
    place.ebb("plan", place.target, code=1)


@pytest.mark.parametrize("configured", ["null", "none.json"])
def test_apply_judges_by_the_recorded_source(no_spark, monkeypatch, configured):
    """A plan with another source is applied with the recorded one, whatever is configured by then."""
    place = no_spark
    place.ebb("plan", place.target, code=1)
    monkeypatch.setenv("EBBTIDE_REGISTRY__RUNNING", configured)
    context = registry_context(State(), place.target)
    sources = [applied_source(context, None), applied_source(context, str(place.ebb.folder / "none.json"))]
    same = applied_source(context, str(place.ebb.folder / "pods.json"))
    context.records.grant(context.uid, "ines", Role.IMAGE_WRITER, "ines")
    monkeypatch.setenv("EBBTIDE_USER", "ines")

    assert [str(place.ebb.folder / "pods.json")] * 2 == sources
    assert same is None
    assert applied_source(context, None) is None


@pytest.mark.spark
def test_apply_asks_the_configured_source_again(ebb, tmp_path, monkeypatch):
    """A plan with another source is applied with the configured one, unless who applies it has the role."""
    configure(ebb.folder)
    place = ImagePlace(ebb, tmp_path / "images")
    push_image(place.client, APP, ["a"], name="a")
    push_image(place.client, APP, ["b"], name="b")
    monkeypatch.setenv("EBBTIDE_USER", "ines")
    for role in ("purge-policy-writer", "image-purge-writer"):
        place.ebb("image", "role", "grant", place.target, "ines", role)
    place.scan()
    planned = place.plan(*OTHER)
    monkeypatch.setenv("EBBTIDE_USER", "daily")
    (ebb.folder / "pods.json").rename(ebb.folder / "away.json")
    place.apply(code=3)
    (ebb.folder / "away.json").rename(ebb.folder / "pods.json")
    applied = place.apply()

    snapshot = planned["snapshot"]
    assert (str(ebb.folder / "none.json"), "ines") == (
        snapshot["running_source"],
        snapshot["running_source_by"],
    )
    assert 4 == planned["summary"]["due"]["objects"]
    assert {"changed": 2, "recycled": 2} == applied
    assert {"a"} == set(place.tags())


@pytest.mark.spark
def test_a_renewal_is_logged_with_who_triggered_it(ebb, tmp_path, monkeypatch):
    """The image log names the user whose plan renewed a running image, and the source that named it."""
    configure(ebb.folder)
    place = ImagePlace(ebb, tmp_path / "images")
    push_image(place.client, APP, ["a"])
    monkeypatch.setenv("EBBTIDE_USER", "teja")
    place.scan()
    place.plan()
    [entry] = place.ebb.lines("image", "log", place.target, f"{APP}:a")

    assert "system" == entry["by"]
    assert f"found running by {ebb.folder / 'pods.json'} in a plan of teja" == entry["what"]
