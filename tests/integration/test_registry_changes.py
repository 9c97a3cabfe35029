"""What happens to images between a plan and its apply, and what people ask for: nothing wanted is lost."""

from __future__ import annotations

import json
import time

import pytest
from tests.services.bin_kit import whole
from tests.services.ebb import ebb
from tests.services.image_kit import push_image, push_index
from tests.services.image_place import ALL, APP, FIRST, LATER, ImagePlace

from ebbtide.targets.oci.bin.contents import entries

__all__ = ["ebb"]

pytestmark = pytest.mark.spark


@pytest.fixture
def place(ebb, tmp_path):
    """Give an empty folder of image layouts."""
    return ImagePlace(ebb, tmp_path / "images")


def test_what_came_to_be_needed_since_the_plan_is_left_alone(place):
    """A pin, a moved tag, a new name and a new index since the plan each save what they are about."""
    images = {name: push_image(place.client, APP, [name], name=name) for name in "abcdef"}
    place.scan()
    place.plan()
    place.ebb("image", "pin", place.ref(f"{APP}:a"), now=LATER)
    moved = push_image(place.client, APP, ["b"], name="new content")
    place.client.put_manifest(APP, "again", images["c"].manifest)
    index = push_index(place.client, APP, ["multi"], [images["d"]])
    place.client.delete_manifest(APP, images["e"].digest)
    applied = place.apply()

    kept = {"a": "a", "c": "c", "again": "c", "d": "d"}
    assert {"b": moved.digest, "multi": index.digest} | {
        tag: images[name].digest for tag, name in kept.items()
    } == place.tags()
    # What b stood for has no tag since just now, so its days as an untagged image begin; e was gone before.
    assert {"changed": 8, "absent": 2, "recycled": 2} == applied
    for name in "abcd":
        assert whole(place.client, APP, images[name].digest)
    assert [images["f"].digest] == [one.digest for one in entries(place.client, APP)]


def test_a_plan_is_stale_when_the_policies_or_what_runs_is(place):
    """Other policies, or a running scan that has become too old, stop an apply before it does anything."""
    push_image(place.client, APP, ["a"])
    (place.ebb.folder / "running.json").write_text("[]")
    place.scan()
    place.plan("--running", "running.json")
    place.apply("2026-01-07T00:00:01Z", code=3)
    place.policies({"policies": [{"name": "Default", "days": 500}]})
    place.apply(code=3)

    assert {"a"} == set(place.tags())


def test_scenario_4_2_and_what_rules_are_about_an_image(place):
    """What was assigned keeps its date when its policy changes; an explanation names the rules about tags."""
    rules = {"repository": "team/*", "tag": "build-.*"}
    document = {"assign": [{**rules, "policy": "Default"}], "keep_newest": [{**rules, "count": 1}]}
    place.policies(document)
    push_image(place.client, APP, ["build-1", "b"])
    place.scan()
    place.policies(document | {"policies": [{"name": "Default", "days": 500}]})
    place.ebb("image", "assign", place.ref(f"{APP}:b"), "Default", now=FIRST)
    listed = {row["tag"]: row["expires_at"] for row in place.ebb.lines("image", "ls", place.target)}
    found = place.ebb.json("image", "explain", place.ref(f"{APP}:build-1"), now="2026-02-01")
    held = [words for one in found["judgements"] for words in one["held_by"]]

    assert {"build-1": "2026-01-06T00:00:00Z", "b": "2027-05-16T00:00:00Z"} == listed
    assert any(words.startswith("keep_newest: the newest 1 of build-.*") for words in held)
    assert any("build-1: assign rule 1" in rule for rule in found["rules"])
    assert any("b: no assign rule matches" in rule for rule in found["rules"])


def test_scenario_3_0_and_requirement_9_0_deletes_by_hand_respect_pins(place, monkeypatch):
    """A pinned image refuses a delete by name and by age, the log says who asked, and nothing else goes."""
    monkeypatch.setenv("EBBTIDE_USER", "pia")
    place.policies(
        {
            "policies": [{"name": "Default", "days": 500}, {"name": "Short", "days": 1}],
            "assign": [
                {"repository": "*", "tag": "v.*", "policy": "Released"},
                {"repository": "*", "tag": "expired", "policy": "Short"},
            ],
        }
    )
    for name in ("v1", "build-1", "build-2", "other", "expired"):
        push_image(place.client, APP, [name], name=name)
    place.scan()
    place.ebb("image", "pin", place.ref(f"{APP}:build-2"), now=FIRST)
    _, said = place.ebb("image", "delete", place.ref(f"{APP}:v1"), *ALL, now=LATER, code=3)
    log = place.ebb.lines("image", "log", place.target, f"{APP}:v1")
    older = ("image", "delete", place.target, "--older-than", "3d", "--tag", "build-.*|v1", "--yes")
    place.ebb(*older, now=LATER)
    place.ebb("image", "delete", place.ref(f"{APP}:other"), *ALL, now=LATER)
    done = place.ebb.lines("image", "log", place.target)
    of_other = place.ebb.lines("image", "log", place.target, f"{APP}:other")

    assert "must not be deleted" in said
    assert ["pia", "pia"] == [row["by"] for row in done if row["kind"] == "purge"]
    assert [("pia", True)] == [(row["by"], row["what"].startswith("delete (run")) for row in of_other]
    assert "pinned until 2026-06-30" in log[0]["refused"]
    # What has expired is the purge's, and not taken along by who deletes something else.
    assert {"v1", "build-2", "expired"} == set(place.tags())


@pytest.fixture
def elsewhere(monkeypatch):
    """Put the machine into another time zone, which must not matter."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_scenario_5_0_what_is_found_running_is_renewed(place):
    """An image that runs gets its policy anew at every purge, with the dates that the seed means."""
    place.policies({"policies": [{"name": "Released", "months": 6, "can_delete_prior": False}]})
    push_image(place.client, APP, ["v1"])
    place.ebb("image", "assign", place.ref(f"{APP}:v1"), "Released", now="2018-01-01")
    (place.ebb.folder / "running.json").write_text(json.dumps([f"host.example/{APP}:v1"]))
    place.plan("--running", "running.json", now="2018-01-02")
    dates = [_date(place)]
    place.policies({"policies": [{"name": "Released", "years": 1, "can_delete_prior": False}]})
    dates.append(_date(place))
    place.plan("--running", "running.json", now="2018-02-02")
    dates.append(_date(place))
    log = place.ebb.lines("image", "log", place.target, f"{APP}:v1")

    assert ["2018-07-02", "2018-07-02", "2019-02-02"] == dates
    assert ("system", True) == (log[0]["by"], log[0]["what"].startswith("found running by "))
    assert "2018-07-01T00:00:00Z" == log[-1]["after"]["expires_at"]


def _date(place):
    return place.ebb.lines("image", "ls", place.target)[0]["expires_at"].removesuffix("T00:00:00Z")


def test_requirement_11_0_who_has_no_role_deletes_nothing(place, monkeypatch):
    """
    As soon as roles are given, only who has one may delete, pin or empty the bin; refusals are logged.

    Nor may others apply the delete that somebody has planned.
    """
    push_image(place.client, APP, ["a"])
    ref = place.ref(f"{APP}:a")
    monkeypatch.setenv("EBBTIDE_USER", "alice")
    place.ebb("image", "delete", ref, "--override-breaker", now=LATER, code=2)  # nobody confirms its plan
    place.ebb("image", "role", "grant", place.target, "alice", "purge-policy-writer")
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    place.ebb("image", "delete", ref, *ALL, now=LATER, code=2)
    place.ebb("image", "pin", ref, code=2)
    place.ebb("image", "recycle", "empty", place.target, "--yes", code=2)
    _, said = place.ebb("apply", "latest", *ALL, now=LATER, code=2)
    log = place.ebb.lines("image", "log", place.target)

    assert "image-purge-writer" in said
    assert {"a"} == set(place.tags())
    assert ["mallory"] * 4 == [row["by"] for row in log if row["refused"]]


def test_requirement_8_0_the_daily_job_empties_the_bin_of_what_has_expired_there(place):
    """What was recycled goes for good fifteen days later, and not a moment sooner."""
    push_image(place.client, APP, ["a"])
    place.scan()
    place.ebb("image", "purge", place.target, *ALL, now=LATER)
    binned = len(list(entries(place.client, APP)))
    early = place.plan("--bin", now="2026-01-20T23:59:59Z")
    place.plan("--bin", now="2026-01-21T00:00:00Z")
    applied = place.apply("2026-01-21T00:00:00Z")

    assert (1, 0) == (binned, early["summary"]["due"]["objects"])
    assert {"deleted": 1} == applied
    assert [] == list(entries(place.client, APP))


def test_what_was_restored_stays_and_a_listing_says_where_images_are(place):
    """After an apply a listing marks what is in the bin or gone; a restored image is not planned again."""
    for name in "abc":
        push_image(place.client, APP, [name], name=name)
    place.scan()
    before = place.states()
    place.plan()
    place.apply()
    applied = place.states()
    restored = place.ebb.json("restore", place.ref(f"{APP}:a"), now="2026-01-06T00:01:00Z")
    [b] = [entry.digest for entry in entries(place.client, APP) if entry.tag_names == ("b",)]
    doomed = f"{place.target}//{APP}"
    place.ebb("image", "recycle", "empty", doomed, "--yes", now="2026-01-06T00:02:00Z")
    emptied = place.states()
    shown, _ = place.ebb("image", "ls", place.target)
    again = place.plan(now="2026-01-07T00:00:00Z")

    assert dict.fromkeys("abc", "present") == before
    assert dict.fromkeys("abc", "in the bin") == applied
    assert {f"{APP}:a": "2026-01-11T00:01:00Z"} == restored[0]["expires_at"]
    assert {"a": "present", "b": "gone", "c": "gone"} == emptied
    assert f"{b[:19]}  gone" in shown
    assert 0 == again["summary"]["due"]["objects"]
