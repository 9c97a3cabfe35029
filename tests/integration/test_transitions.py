"""Transitions on a real S3 server: one whole copy at every moment, and in the end exactly the new one."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from botocore.exceptions import ReadTimeoutError
from tests.services.moving import (
    ABOUT,
    COLD,
    FAR,
    FOLDER,
    NEAR,
    SMALL_PARTS,
    Planned,
    batch,
    buckets,
    gone_well,
    place_of,
)

from ebbtide.core.decision import Outcome
from ebbtide.engine.tables.contracts import OUTCOMES
from ebbtide.storage import s3_objects
from ebbtide.storage.s3_copy import Sizes
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.transition import mover as mover_module
from ebbtide.targets.s3.transition.locations import MARK
from ebbtide.targets.s3.transition.moves import MoveLog, Stage

__all__ = ["buckets"]

EVERYWHERE = [COLD, NEAR, FAR, FOLDER]
PLAIN, KEPT, SUSPENDED = Versioning.DISABLED, Versioning.ENABLED, Versioning.SUSPENDED
LARGE = b"0123456789abcdef" * (11 * 1024**2 // 16)


class Crash(Exception):
    """The process dies."""


def crash_after(step):
    """Make a hook that dies after a step."""

    def hook(name):
        if name == step:
            raise Crash

    return hook


def doing(step, action):
    """Make a hook that lets something happen after a step."""
    return lambda name: action() if name == step else None


@pytest.fixture
def yard(buckets, tmp_path):
    """Lay out places around a bucket without versions."""
    return buckets.yard(PLAIN, tmp_path)


@pytest.fixture
def kept(buckets, tmp_path):
    """Lay out places around a bucket with versions."""
    return buckets.yard(KEPT, tmp_path)


@pytest.mark.parametrize("goal", EVERYWHERE)
def test_an_object_goes_to_a_location(yard, goal):
    """The key reads as absent afterwards, and the manifest says where the bytes are, since when and why."""
    planned = yard.put()
    result = yard.move(planned, goal)
    [move] = yard.where(planned.key)

    assert gone_well(result), result
    assert None is yard.current(planned.key)
    assert [planned.body] == yard.copies(planned, goal)
    assert planned.body == yard.read(move.url)
    assert (goal, Stage.MOVED, len(planned.body), ("old",), 7) == (
        move.location,
        move.stage,
        move.size,
        move.rules,
        move.run,
    )


@pytest.mark.parametrize("goal", [COLD, FAR])
@pytest.mark.parametrize("sizes", [Sizes(), SMALL_PARTS])
def test_metadata_and_tags_go_along(yard, goal, sizes):
    """A copy has the headers, the user metadata and the tags of its original, however it was copied."""
    planned = yard.put(b"x" * 4096, Tagging="a=1&b=%C3%BC+x", **ABOUT)
    result = yard.move(planned, goal, sizes=sizes)
    bucket, key = place_of(yard.where(planned.key)[0].url)
    found = yard.client.head_object(Bucket=bucket, Key=key.rstrip("/"))
    tags = yard.client.get_object_tagging(Bucket=bucket, Key=key.rstrip("/"))["TagSet"]

    assert gone_well(result), result
    assert {**ABOUT, "Metadata": {"owner": "me", MARK: found["Metadata"][MARK]}} == {
        name: found[name] for name in ABOUT
    }
    assert [("a", "1"), ("b", "ü x")] == sorted((tag["Key"], tag["Value"]) for tag in tags)


def test_a_folder_keeps_what_a_bucket_keeps_beside_the_bytes(yard):
    """In a folder the headers, the metadata and the tags are in a document beside the file."""
    planned = yard.put(Tagging="a=1", **ABOUT)
    yard.move(planned, FOLDER)
    [file] = (yard.folder / "_about" / planned.key).iterdir()
    found = json.loads(file.read_text())

    assert (planned.key, planned.etag, len(planned.body)) == (found["key"], found["etag"], found["size"])
    assert ("text/x-log", "me", {"a": "1"}) == (
        found["headers"]["ContentType"],
        found["metadata"]["owner"],
        found["tags"],
    )


@pytest.mark.parametrize("goal", EVERYWHERE)
def test_a_large_object_goes_in_parts(yard, goal):
    """An object above the limits goes in several parts and arrives whole."""
    planned = yard.put(LARGE)
    result = yard.move(planned, goal, sizes=SMALL_PARTS)

    assert gone_well(result), result
    assert [LARGE] == yard.copies(planned, goal)
    assert None is yard.current(planned.key)


@pytest.mark.parametrize("goal", EVERYWHERE)
def test_an_object_that_was_uploaded_in_parts_is_read_back(yard, goal):
    """The etag of an object in parts proves nothing, so the copy is compared byte for byte."""
    key = yard.put().key
    named = {"Bucket": yard.bucket, "Key": key}
    upload = yard.client.create_multipart_upload(**named)["UploadId"]
    parts = [LARGE[: 5 * 1024**2], LARGE[5 * 1024**2 :]]
    sent = [
        {
            "PartNumber": number,
            "ETag": yard.client.upload_part(**named, UploadId=upload, PartNumber=number, Body=part)["ETag"],
        }
        for number, part in enumerate(parts, 1)
    ]
    etag = yard.client.complete_multipart_upload(**named, UploadId=upload, MultipartUpload={"Parts": sent})[
        "ETag"
    ]
    planned = Planned(key, "null", etag.strip('"'), latest=True, body=LARGE)
    result = yard.move(planned, goal)

    assert gone_well(result), result
    assert [LARGE] == yard.copies(planned, goal)


@pytest.mark.parametrize("goal", EVERYWHERE)
def test_an_empty_object_goes_too(yard, goal):
    """An object without bytes is moved like any other."""
    planned = yard.put(b"")
    result = yard.move(planned, goal)

    assert gone_well(result), result
    assert [b""] == yard.copies(planned, goal)


@pytest.mark.parametrize(
    ("versioning", "step"),
    [
        *((PLAIN, step) for step in ("copied", "verified", "recorded", "removed")),
        *((KEPT, step) for step in ("copied", "verified", "recorded", "hidden", "removed")),
        *((SUSPENDED, step) for step in ("copied", "verified", "recorded", "hidden", "removed")),
    ],
)
@pytest.mark.parametrize("goal", [COLD, FOLDER])
def test_a_crash_after_any_step_leaves_one_whole_and_is_taken_up(buckets, tmp_path, versioning, step, goal):
    """At every moment the old or the new is whole, and another attempt ends with exactly the new one."""
    yard = buckets.yard(versioning, tmp_path)
    planned = yard.put()
    with pytest.raises(Crash):
        yard.move(planned, goal, on_step=crash_after(step))
    original, copies, known = yard.original(planned), yard.copies(planned, goal), yard.where(planned.key)
    # With versioning suspended the marker that hides a null version takes its place.
    removed = step == "removed" or (step, versioning) == ("hidden", SUSPENDED)
    mover_module._writer.cache_clear()  # another process takes it up
    result = yard.move(planned, goal, resumed=True)

    assert (None if removed else planned.body) == original
    assert [planned.body] == copies
    assert (step in ("copied", "verified")) == (known == [])
    assert gone_well(result), result
    assert None is yard.original(planned)
    assert None is yard.current(planned.key)
    assert [planned.body] == yard.copies(planned, goal)
    assert [Stage.MOVED] == [move.stage for move in yard.where(planned.key)]


@pytest.mark.parametrize("step", ["copied", "verified", "recorded"])
@pytest.mark.parametrize("goal", EVERYWHERE)
def test_an_original_that_changes_meanwhile_stays_and_its_copy_goes(yard, step, goal):
    """What was overwritten after it was planned is left alone, and the copy of it is removed again."""
    planned = yard.put()
    change = doing(step, lambda: yard.put(b"newer", planned.key))
    result = yard.move(planned, goal, on_step=change)

    assert Outcome.CHANGED is result.outcome
    assert b"newer" == yard.current(planned.key)
    assert [] == yard.copies(planned, goal)
    assert [] == yard.where(planned.key)


def test_an_original_that_changed_before_is_not_copied(yard):
    """What is not what was planned any more is left alone from the start."""
    planned = yard.put()
    yard.put(b"newer", planned.key)
    result = yard.move(planned, COLD)

    assert Outcome.CHANGED is result.outcome
    assert b"newer" == yard.current(planned.key)
    assert [] == yard.copies(planned, COLD)


@pytest.mark.parametrize(("seconds", "outcome"), [(0, Outcome.DELETED), (60, Outcome.CHANGED)])
def test_the_same_bytes_written_again_are_another_object(yard, seconds, outcome):
    """An object that was written after the one that was listed is young, whatever its bytes are."""
    planned = yard.put()
    written = yard.client.head_object(Bucket=yard.bucket, Key=planned.key)["LastModified"]
    listed = replace(planned, created=written - timedelta(seconds=seconds))

    assert outcome is yard.move(listed, COLD).outcome


def test_an_original_that_is_gone_is_absent(yard):
    """What somebody else deleted is absent, and no move is claimed."""
    planned = yard.put()
    yard.client.delete_object(Bucket=yard.bucket, Key=planned.key)
    result = yard.move(planned, COLD, resumed=True)

    assert Outcome.ABSENT is result.outcome
    assert [] == yard.where(planned.key)


@pytest.mark.parametrize("goal", [COLD, FAR, FOLDER])
def test_a_copy_that_is_damaged_before_it_is_verified_is_found_out(yard, goal):
    """A copy of the right size and mark but with other bytes is no proof: it goes and the original stays."""
    planned = yard.put()
    result = yard.move(planned, goal, on_step=doing("copied", lambda: damage(yard, planned, goal)))

    assert (Outcome.FAILED, True) == (result.outcome, "was damaged" in result.reason), result
    assert planned.body == yard.current(planned.key)
    assert [] == yard.copies(planned, goal)
    assert [] == yard.where(planned.key)


@pytest.mark.parametrize("goal", [COLD, FAR, FOLDER])
def test_a_damaged_copy_of_an_earlier_attempt_is_found_out(yard, goal):
    """A copy that another attempt left is proven like a new one, and is not removed by this one."""
    planned = yard.put()
    with pytest.raises(Crash):
        yard.move(planned, goal, on_step=crash_after("copied"))
    damage(yard, planned, goal)
    result = yard.move(planned, goal)

    assert (Outcome.FAILED, True) == (result.outcome, "is damaged" in result.reason), result
    assert planned.body == yard.current(planned.key)


@pytest.mark.parametrize("goal", [COLD, FAR, FOLDER])
def test_a_name_that_is_taken_is_not_overwritten(yard, goal):
    """Something else at the target stays as it is, the original too, and the outcome says so."""
    planned = yard.put()
    with pytest.raises(Crash):
        yard.move(planned, goal, on_step=crash_after("copied"))
    overwrite(yard, planned, goal, b"somebody else's")
    result = yard.move(planned, goal)

    assert (Outcome.FAILED, True) == (result.outcome, "holds something else" in result.reason), result
    assert planned.body == yard.current(planned.key)
    assert [b"somebody else's"] == yard.copies(planned, goal)


def test_two_attempts_at_once_lose_nothing(yard):
    """An attempt that finds its original changed does not remove a copy that another one counts on."""
    planned = yard.put()

    def second():
        mover_module._writer.cache_clear()
        assert gone_well(yard.move(planned, COLD))
        yard.put(b"newer", planned.key)

    result = yard.move(planned, COLD, on_step=doing("recorded", second))

    assert Outcome.CHANGED is result.outcome
    assert b"newer" == yard.current(planned.key)
    assert [planned.body] == yard.copies(planned, COLD)
    assert [Stage.MOVED] == [move.stage for move in yard.where(planned.key)]


def test_a_copy_that_another_attempt_withdraws_is_not_counted_on(yard):
    """Who takes over a copy looks whether its maker said that it goes, and leaves the original then."""
    planned = yard.put()
    with pytest.raises(Crash):
        yard.move(planned, COLD, on_step=crash_after("recorded"))
    [line] = yard.where(planned.key)
    MoveLog(yard.root).append(replace(line, stage=Stage.WITHDRAWN))
    mover_module._writer.cache_clear()
    result = yard.move(planned, COLD)

    assert (Outcome.FAILED, True) == (result.outcome, "is removing the copy" in result.reason), result
    assert planned.body == yard.current(planned.key)


@pytest.mark.parametrize("versioning", list(Versioning))
@pytest.mark.parametrize("latest", [True, False])
@pytest.mark.parametrize("operation", ["CopyObject", "PutObject", "DeleteObject"])
def test_a_lost_answer_loses_nothing(buckets, tmp_path, monkeypatch, versioning, latest, operation):
    """A request that was done though its answer never came is made again, and the move ends well."""
    yard = buckets.yard(versioning, tmp_path)
    planned = yard.put()
    if not latest and versioning is not PLAIN:
        planned = replace(planned, latest=False)
        set_versioning(yard, "Enabled")
        yard.put(b"newer", planned.key)
        set_versioning(yard, versioning.value)
    goal = FAR if operation == "PutObject" else COLD
    with monkeypatch.context() as patch:
        lost = lose_answers(patch, operation)
        result = yard.move(planned, goal)

    assert gone_well(result), result
    assert lost
    assert None is yard.original(planned)
    assert [planned.body] == yard.copies(planned, goal)


def test_the_next_object_of_a_key_has_a_name_of_its_own(yard):
    """A key that is written and moved again and again leaves one copy for each."""
    first = yard.put(b"first")
    assert gone_well(yard.move(first, COLD))
    second = yard.put(b"second", first.key)
    result = yard.move(second, COLD)

    assert gone_well(result), result
    assert [b"first", b"second"] == sorted(yard.copies(first, COLD))
    assert [b"first", b"second"] == sorted(yard.read(move.url) for move in yard.where(first.key))


@pytest.mark.parametrize(
    "key", ["folder/", "a//b", "/a", "x" * 900 + "/" + "y" * 100, "u\u0308", "_hashed/x"]
)
def test_keys_that_not_every_store_can_hold_go_by_a_hash(yard, key):
    """A folder marker, an empty part, a long or doubly spelled name: the manifest still finds them."""
    # SeaweedFS keeps no bytes of a folder marker.
    body = b"" if key.endswith("/") else b"awkward"
    planned = yard.put(body, key)
    result = yard.move(planned, FOLDER)
    [move] = yard.where(key)

    assert gone_well(result), result
    assert "/_hashed/" in move.url
    assert body == yard.read(move.url)


def test_what_lies_in_its_location_already_stays(yard):
    """A location that is a prefix of the same bucket is not moved into itself."""
    planned = yard.put(key="archive/old/v1")
    result = yard.move(planned, NEAR)

    assert (Outcome.CHANGED, "it is in the location NEAR already") == (result.outcome, result.reason)
    assert planned.body == yard.current(planned.key)


def test_a_current_version_leaves_a_delete_marker_and_no_older_one_comes_up(kept):
    """The key reads as absent, the older version is still there behind the marker, the moved one is not."""
    older = kept.put(b"older")
    planned = kept.put(b"newer", older.key)
    result = kept.move(planned, COLD)

    assert gone_well(result), result
    assert None is kept.current(planned.key)
    assert (b"older", None) == (kept.original(older), kept.original(planned))
    assert [b"newer"] == kept.copies(planned, COLD)


def test_a_noncurrent_version_goes_and_the_current_one_stays(kept):
    """Moving an old version changes nothing of what a client reads."""
    planned = replace(kept.put(b"older"), latest=False)
    newer = kept.put(b"newer", planned.key)
    result = kept.move(planned, COLD)

    assert gone_well(result), result
    assert (b"newer", b"newer") == (kept.current(planned.key), kept.original(newer))
    assert None is kept.original(planned)
    assert [b"older"] == kept.copies(planned, COLD)


@pytest.mark.parametrize("step", ["", "verified", "recorded"])
def test_a_current_version_that_was_replaced_stays(kept, step):
    """A version that is not current any more is not what the rule was about; nothing is hidden or deleted."""
    planned = kept.put(b"older")
    if not step:
        kept.put(b"newer", planned.key)
    result = kept.move(planned, COLD, on_step=doing(step, lambda: kept.put(b"newer", planned.key)))

    assert Outcome.CHANGED is result.outcome
    assert b"newer" == kept.current(planned.key)
    assert b"older" == kept.original(planned)
    assert [] == kept.copies(planned, COLD)
    assert [] == kept.where(planned.key)


def test_a_version_that_became_current_stays(kept):
    """A noncurrent version whose newer ones were deleted is what clients read now, so it is left alone."""
    planned = replace(kept.put(b"older"), latest=False)
    newer = kept.put(b"newer", planned.key)
    kept.client.delete_object(Bucket=kept.bucket, Key=planned.key, VersionId=newer.version)
    result = kept.move(planned, COLD)

    assert Outcome.CHANGED is result.outcome
    assert b"older" == kept.current(planned.key)


def test_a_marker_over_a_version_never_destroys_a_null_version(buckets, tmp_path):
    """With versioning suspended a delete marker takes the null version's place; so that move is denied."""
    yard = buckets.yard(SUSPENDED, tmp_path)
    null = yard.put(b"null")
    set_versioning(yard, "Enabled")
    planned = yard.put(b"with an id", null.key)
    set_versioning(yard, "Suspended")
    result = yard.move(planned, COLD)

    assert (Outcome.DENIED, True) == (result.outcome, "would destroy the null version" in result.reason)
    assert (b"null", b"with an id") == (yard.original(null), yard.original(planned))


def test_a_noncurrent_null_version_goes_by_its_id(buckets, tmp_path):
    """With versioning suspended an old null version is deleted on the condition of its etag."""
    yard = buckets.yard(SUSPENDED, tmp_path)
    planned = replace(yard.put(b"null"), latest=False)
    set_versioning(yard, "Enabled")
    newer = yard.put(b"with an id", planned.key)
    set_versioning(yard, "Suspended")
    result = yard.move(planned, COLD)

    assert gone_well(result), result
    assert (None, b"with an id") == (yard.original(planned), yard.original(newer))


def test_a_batch_gives_one_outcome_a_row(kept):
    """Rows that go, that changed, that are gone and that must be kept each have their outcome, in order."""
    goes, changed, absent = kept.put(), kept.put(), kept.put()
    held = replace(kept.put(), kept_because="somebody needs it")
    kept.put(b"newer", changed.key)
    kept.client.delete_object(Bucket=kept.bucket, Key=absent.key, VersionId=absent.version)
    rows = batch([planned.row(COLD) for planned in (goes, changed, absent, held)])
    [found] = kept.mover()([rows])

    assert OUTCOMES.columns == found.schema.names
    assert ["moved", "changed", "absent", "changed"] == found.column("outcome").to_pylist()
    assert [one.version for one in (goes, changed, absent, held)] == found.column("version").to_pylist()
    assert "somebody needs it" == found.column("reason").to_pylist()[-1]
    assert held.body == kept.current(held.key)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (StoreSpec("s3://no-such-bucket-here/x"), "find the bucket no-such-bucket-here"),
        (StoreSpec("file:///no/such/folder"), "check that it is mounted"),
    ],
)
def test_a_location_that_is_not_there_takes_nothing(yard, location, words):
    """The original stays, and the outcome says what is missing."""
    planned = yard.put()
    options = yard.server.options if location.url.startswith("s3") else {}
    lost = {"LOST": StoreSpec(location.url, options)}
    mover = replace(yard.mover(), locations=lost)
    [result] = mover.move(batch([planned.row("LOST")]))

    assert (Outcome.FAILED, True) == (result.outcome, words in result.reason), result
    assert planned.body == yard.current(planned.key)


def test_a_bucket_that_is_not_there_is_a_failure_and_no_absence(yard):
    """Objects of a bucket that cannot be found are not said to be gone."""
    planned = yard.put()
    mover = replace(yard.mover(), spec=StoreSpec("s3://no-such-bucket-here", yard.server.options))
    [result] = mover.move(batch([planned.row(COLD)]))

    assert Outcome.FAILED is result.outcome


def overwrite(yard, planned, goal, body):
    """Write over the copies of an object as somebody would who knows nothing of moves."""
    if goal == FOLDER:
        for file in yard.folder.rglob("*"):
            if file.is_file():
                file.write_bytes(body)
        return
    for named in copies_of(yard, planned, goal):
        yard.client.put_object(**named, Body=body)


def damage(yard, planned, goal):
    """Give the copies of an object other bytes under the same mark."""
    body = bytes(reversed(planned.body))
    if goal == FOLDER:
        for file in (yard.folder / planned.key).iterdir():
            file.write_bytes(body)
        return
    for named in copies_of(yard, planned, goal):
        mark = yard.client.head_object(**named)["Metadata"]
        yard.client.put_object(**named, Body=body, Metadata=mark)


def copies_of(yard, planned, goal):
    """Name the copies of an object at a location that is a bucket."""
    bucket, prefix = place_of(yard.locations[goal].url)
    found = yard.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}{planned.key}/")
    return [{"Bucket": bucket, "Key": one["Key"]} for one in found["Contents"]]


def set_versioning(yard, status):
    """Switch versioning of the bucket."""
    yard.client.put_bucket_versioning(Bucket=yard.bucket, VersioningConfiguration={"Status": status})


def lose_answers(monkeypatch, operation):
    """Break the line behind every first request of a kind, and give what was lost."""
    connect, lost = s3_objects.connect, []

    def lose(model, **_):
        if len(lost) % 2 == 0:
            lost.append(model.name)
            raise ReadTimeoutError(endpoint_url="the server")
        lost.append("")

    def connected(options):
        client = connect(options)
        client.meta.events.register(f"after-call.s3.{operation}", lose)
        return client

    monkeypatch.setattr(s3_objects, "_opened", {})
    monkeypatch.setattr(s3_objects, "connect", connected)
    return lost
