"""A time that a user supplies never reaches what deletes or records: that goes by the machine's clock."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from tests.services.bin_kit import tags_of
from tests.services.ebb import ebb
from tests.services.image_kit import push_image

from ebbtide.cli.main import run
from ebbtide.core.breaker import BreakerLimits
from ebbtide.core.errors import StalePlan
from ebbtide.core.instant import parse_instant
from ebbtide.core.manifest import Manifest, Summary, Tally
from ebbtide.engine.apply import ApplyOptions, check
from ebbtide.engine.collector import Context
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistrySpec

__all__ = ["ebb"]

TODAY, YEARS_LATER = "2026-02-01T00:00:00Z", "2030-01-01T00:00:00Z"
NOON = parse_instant("2026-02-01T12:00:00Z")
MINUTE = timedelta(minutes=1)
APP = "team/app"
IMAGE = f"oci-layout:images//{APP}:a"


@pytest.mark.parametrize(
    "command",
    [
        "apply latest --yes",
        "restore 1",
        "recycle empty lake:sales --yes",
        "recycle set lake:sales --days 3",
        "lake reap sales",
        "lake upload sales data",
        "image scan oci-layout:images",
        f"image delete {IMAGE} --yes",
        "image purge oci-layout:images --yes",
        f"image pin {IMAGE}",
        f"image assign {IMAGE} Default",
        "image role grant oci-layout:images bob image-writer",
        "image recycle empty oci-layout:images --yes",
        f"image recycle restore {IMAGE}",
        "report latest",
    ],
)
def test_what_changes_or_records_has_no_option_for_the_time(command, tmp_path, monkeypatch, capsys):
    """A command that changes or records something refuses --now as bad input, and says what it is for."""
    monkeypatch.chdir(tmp_path)
    code = run([*command.split(), "--now", YEARS_LATER])
    said = capsys.readouterr().err

    assert 2 == code, said
    assert "--now is for planning only" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
def test_the_time_of_a_plan_is_neither_applied_nor_recorded(ebb, monkeypatch):
    """A plan for 2030 deletes nothing today, whatever the environment says, and all records are of today."""
    (ebb.folder / "images").mkdir()
    target, images = "oci-layout:images", ImageLayout(RegistrySpec(f"oci-layout:{ebb.folder}/images"))
    pushed = push_image(images, APP, ["a"])
    runs = push_image(images, APP, ["runs"], name="runs")
    (ebb.folder / "running.json").write_text(json.dumps([f"{APP}:runs"]))
    ebb("image", "assign", f"{target}//{APP}:runs", "Default", now="2026-01-31")
    ebb("image", "pin", IMAGE, "--until", "2027-01-01", now=TODAY)
    monkeypatch.setenv("EBBTIDE_NOW", YEARS_LATER)
    planned = ebb.json("plan", target, "--adopt", "--running", "running.json", now=TODAY)
    _, refused = ebb("apply", "latest", "--yes", "--override-breaker", now=TODAY, code=3)
    shown = ebb.json("image", "show", f"{target}//{APP}:a", now=TODAY)
    log, warned = ebb("image", "log", target, "--json", now=TODAY)
    (listed,) = json.loads(ebb("runs", "--json", now=TODAY)[0])

    assert {"a": pushed.digest, "runs": runs.digest} == tags_of(images, APP)
    assert planned["summary"]["due"]["objects"] > 0
    assert (TODAY, YEARS_LATER) == (planned["made_at"], planned["now"])
    assert (TODAY, YEARS_LATER, "planned") == (listed["made_at"], listed["now"], listed["state"])
    assert f"it is {TODAY} now" in refused
    assert TODAY == shown["seen_at"]
    assert {"2026-01-31T00:00:00Z", TODAY} == {json.loads(line)["at"] for line in log.splitlines()}
    assert ["2026-02-06T00:00:00Z"] == [
        json.loads(line)["after"]["expires_at"] for line in log.splitlines() if "found running" in line
    ]
    for words in (refused, warned):
        assert 1 == words.count("EBBTIDE_NOW is ignored")


def test_the_environment_is_the_default_of_the_option(tmp_path, monkeypatch, capsys):
    """EBBTIDE_NOW is what --now is if it is not given, in silence; and --now goes before it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies.json").write_text('{"policies": [{"name": "Default", "days": 5}]}')
    image = {"repository": "r", "digest": "sha256:" + "0" * 64, "size": 1, "pushed_at": "2026-01-01"}
    (tmp_path / "images.jsonl").write_text(
        json.dumps(image | {"tags": [{"name": "a", "seen_at": "2026-01-01"}]})
    )
    asked = ["simulate", "registry", "--policies", "policies.json", "--images", "images.jsonl", "--json"]
    monkeypatch.setenv("EBBTIDE_NOW", "2026-01-02")
    found = []
    for more in ([], ["--now", YEARS_LATER]):
        assert 0 == run([*asked, *more])
        said = capsys.readouterr()
        assert not said.err
        found.append({json.loads(line)["decision"] for line in said.out.splitlines()})

    assert found[0] != found[1]


def plan_of(now: datetime, made_at: datetime) -> Manifest:
    """Make the manifest of a plan for a time, made at another."""
    summary = Summary(Tally("due", 1, 1), Tally("held", 0, 0), 1000)
    return Manifest(1, "lake:x", "uid", "n", "lifecycle", made_at, now, "{}", "", {}, 1, "", summary)


class Unchanged:
    """A collector whose plans are still meant."""

    def limits(self, limits: BreakerLimits) -> BreakerLimits:
        """Take the limits that are configured."""
        return limits

    def check(self, plan: Manifest) -> None:
        """Have no objection."""

    def unfence(self, plan: Manifest) -> None:
        """Open nothing."""


@pytest.mark.parametrize(
    ("now", "made_at", "why"),
    [
        (NOON, NOON, ""),
        (NOON + 5 * MINUTE, NOON, ""),
        (NOON + 6 * MINUTE, NOON, "this plan is for 2026-02-01T12:06:00Z"),
        (NOON - timedelta(days=400), NOON, ""),
        (NOON - timedelta(days=1), NOON + 5 * MINUTE, ""),
        (NOON - timedelta(days=1), NOON + 6 * MINUTE, "the clock has gone back"),
        (NOON - timedelta(days=1), NOON - timedelta(days=8), "more than 7 days ago"),
    ],
)
def test_which_times_of_a_plan_can_be_applied(now, made_at, why, tmp_path):
    """A plan is applied unless it is for a time to come, was made in the future, or is too old."""
    context = Context(tmp_path, None, lambda: NOON)
    if not why:
        check(context, Unchanged(), plan_of(now, made_at), ApplyOptions())
        return
    with pytest.raises(StalePlan, match=why):
        check(context, Unchanged(), plan_of(now, made_at), ApplyOptions())
