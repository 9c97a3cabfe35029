"""A bucket's plan and apply, as a user meets them, while the store, the bucket or the credentials fail."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager, nullcontext

import pytest
from tests.services.flaky_proxy import Response, error, flaky_proxy
from tests.services.machine_clock import set_machine_clock
from tests.services.seaweed import seaweed
from tests.services.versions import everything, next_second, put_all

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.decision import Outcome
from ebbtide.engine.run_tables import sample_outcomes

pytestmark = pytest.mark.spark

WRONG = "this-is-not-it"
LATER = "2099-01-01T00:00:00Z"
WAVE = 8
KEYS = [f"d/k{n:02d}" for n in range(18)]
LOGS = [f"logs/l{n:02d}" for n in range(5)]
OTHERS = ["stay/a", "stay/b"]
RULES = {
    "Rules": [
        {
            "ID": "old",
            "Status": "Enabled",
            "Filter": {"Prefix": "d/"},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        },
        {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 3}},
        {
            "ID": "uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": "up/"},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        },
    ]
}


class Scene:
    """A bucket behind a proxy, its rules, and the commands that work on it."""

    def __init__(self, ebb, proxy, server, bucket):
        self.ebb, self.proxy, self.server, self.bucket = ebb, proxy, server, bucket
        self.target = f"s3://{bucket}"
        # Small batches, few tries, and one task, so that requests come in order.
        ebb.folder.joinpath("ebbtide.toml").write_text(
            f'[store]\nendpoint = "{proxy.endpoint}"\nretries = 2\n'
            "path_style = true\nallow_http = true\nordered = false\n"
            f"[breaker]\nmax_delete_fraction = 1.0\n[deletes]\nwave_size = {WAVE}\ntasks = 1\n"
        )
        ebb.folder.joinpath("rules.json").write_text(json.dumps(RULES))
        ebb("bucket", "rules", "set", bucket, "rules.json")

    @property
    def client(self):
        """A plain client that goes past the proxy."""
        return self.server.client()

    def fill(self, *, versioned=True):
        """Write every key twice, and begin an upload."""
        if versioned:
            enabled = {"Status": "Enabled"}
            self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration=enabled)
        for _ in range(2):
            put_all(self.client, self.bucket, [*KEYS, *LOGS, *OTHERS])
        self.client.create_multipart_upload(Bucket=self.bucket, Key="up/big")

    def plan(self):
        """Plan for a day on which all that rules are about is due."""
        return self.ebb("plan", self.target, "--json", now=LATER)

    def apply(self):
        """Apply the newest plan."""
        return self.ebb("apply", "latest", "--yes", "--json", now=LATER)

    def due(self):
        """Give what the newest plan would do: key, version or upload, and action."""
        rows = map(json.loads, self.ebb("plan", "show", "latest", "--all", "--json")[1].splitlines())
        return {(row["address"], row["task"]["version"], row["task"]["action"]) for row in rows}

    def runs(self):
        """Give the state of each run, and what the ledger says about it."""
        return [(one["state"], one["error"]) for one in json.loads(self.ebb("runs", "--json")[1])]

    def now(self):
        """List the bucket with a plain client, and say which uploads are open; markers are without ids."""
        found = everything(self.client, self.bucket)
        uploads = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return {
            *((key, None if marker else version, latest) for key, version, latest, marker in found),
            *((one["Key"], one["UploadId"], None) for one in uploads),
        }

    def outcomes(self, outcome):
        """Give the reason of every item of the first run that ended so, by its key and version."""
        state = State()
        rows = sample_outcomes(state.root, state.ledger, 1, [Outcome(outcome)], most=1_000)
        return {(row["address"], row["version"]): row["reason"] for row in rows}

    def vanish(self):
        """Remove the bucket with all that it holds, as SeaweedFS does without a question."""
        self.client.delete_bucket(Bucket=self.bucket)


def as_planned(before, due):
    """Say what a versioned bucket holds when all that was planned is done, and nothing else."""
    gone = {(key, version) for key, version, action in due if action != "expire"}
    expired = {(key, version) for key, version, action in due if action == "expire"}
    left = {(key, version, latest) for key, version, latest in before if (key, version) not in gone}
    return {
        *((key, version, latest and (key, version) not in expired) for key, version, latest in left),
        *((key, None, True) for key, _ in expired),
    }


def all_done(due: set[tuple[str, str, str]]) -> dict[str, int]:
    """Count the outcomes of a plan that went through: what expires is hidden, all else is deleted."""
    hidden = sum(action == "expire" for _, _, action in due)
    return {"deleted": len(due) - hidden, "hidden": hidden}


def done(due, now):
    """Give the planned changes that are made."""
    places = {(key, version) for key, version, _ in now}
    return {
        (key, version, action)
        for key, version, action in due
        if ((key, None) in places if action == "expire" else (key, version) not in places)
    }


def bulk(request):
    """Tell whether a request is a page of deletes."""
    return request.method == "POST" and "delete" in request.query


def second_page():
    """Make a question that is true of the second page of deletes alone: the first wave is done by then."""
    pages = []
    return lambda request: bulk(request) and (pages.append(request) or len(pages) == 2)


def outcomes(said):
    """Count the outcomes that an apply printed."""
    return {name: tally["objects"] for name, tally in json.loads(said)["outcomes"].items()}


def policy(bucket, items):
    """Write a bucket policy that lets nobody delete some keys or abort their uploads."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion", "s3:AbortMultipartUpload"],
                "Resource": [f"arn:aws:s3:::{bucket}/{key}" for key, _, _ in sorted(items)],
            }
        ],
    }


@contextmanager
def wrong_credentials(monkeypatch):
    """Let the commands in the block sign with a secret that is not the right one."""
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", WRONG)
        # Each command is a process of its own elsewhere, and has no connection open.
        patch.setattr("ebbtide.storage.s3_bucket._opened", {})
        yield


@pytest.fixture
def ebb(spark, s3_server, tmp_path, monkeypatch, capsys):
    """Run commands in a folder of their own, on the tests' Spark; what they say holds no secret."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(State, "spark", lambda *_: nullcontext(spark))

    def call(*arguments, now=""):
        with pytest.MonkeyPatch.context() as patched:
            if now:
                set_machine_clock(patched, now)
            code = run(list(arguments))
        said = capsys.readouterr()
        for word in ("Traceback", "unexpected", s3_server.env["AWS_SECRET_ACCESS_KEY"], "Signature="):
            assert word not in said.out + said.err
        return code, said.out, said.err

    call.folder = tmp_path
    return call


@pytest.fixture
def scene(ebb, s3_server, bucket):
    """Give a bucket of the shared server, still empty."""
    with flaky_proxy(s3_server.endpoint) as proxy:
        yield Scene(ebb, proxy, s3_server, bucket)


def test_a_store_that_dies_in_the_middle_of_an_apply_and_comes_back(ebb, tmp_path):
    """What was deleted before is recorded, the run says that it stopped, and a second apply does the rest."""
    folder = tmp_path / "store"
    folder.mkdir()
    with ExitStack() as first, ExitStack() as rest:
        server = first.enter_context(seaweed(folder))
        server.client().create_bucket(Bucket="mortal")
        scene = Scene(ebb, rest.enter_context(flaky_proxy(server.endpoint)), server, "mortal")
        scene.fill()
        before = scene.now()
        planned = scene.plan()
        due = scene.due()

        def die(_request, forward):
            """Do what was asked, and take the answer to the grave."""
            forward()
            first.close()
            return Response(0, sent=None)

        scene.proxy.inject(second_page(), die)
        died = scene.apply()
        said = scene.runs()
        still_dead = scene.apply()
        scene.server = rest.enter_context(seaweed(folder))
        scene.proxy.move_to(scene.server.endpoint)
        half = scene.now()
        applied = scene.apply()
        after = scene.now()
        runs = scene.runs()

    whole = as_planned(before, due)
    assert (0, len(KEYS) + len(LOGS) + 1) == (planned[0], len(due))
    assert (4, True, True) == (died[0], "store" in died[2], "ebb apply 1" in died[2])
    assert ("failed", True) == (said[0][0], "the store failed" in said[0][1])
    assert (1, True) == (still_dead[0], "the store failed" in still_dead[2])
    assert half not in (before, whole)
    assert before - half <= before - whole
    assert half - before <= whole - before
    assert 0 == applied[0]
    assert {"deleted", "hidden", "absent"} >= outcomes(applied[1]).keys()
    assert len(due) == sum(outcomes(applied[1]).values())
    assert whole == after
    assert ["succeeded"] == [state for state, _ in runs]


def test_a_bucket_that_vanishes_before_or_during_a_plan(scene):
    """A bucket that is not there, or goes while it is listed, is an error and never an empty plan."""
    scene.fill()

    def vanish(_request, forward):
        scene.vanish()
        return forward()

    scene.proxy.inject(lambda one: "versions" in one.query and "prefix=logs" in one.query, vanish, times=1)
    during = scene.plan()
    before = scene.plan()
    asked = scene.ebb("explain", scene.target, KEYS[0])

    for code, out, err in (during, before, asked):
        assert (2, "", True) == (code, out, "there is no bucket" in err)
    assert ["abandoned"] == [state for state, _ in scene.runs()]


def test_another_bucket_of_the_same_name_keeps_its_objects(scene):
    """A plan for a bucket that is gone is stale; what a new one of its name holds is not what was planned."""
    scene.fill(versioned=False)
    planned, due = scene.plan(), scene.due()
    next_second(scene.client, scene.bucket)  # only its time tells an object from one with the same content
    scene.vanish()
    gone = scene.apply()
    scene.client.create_bucket(Bucket=scene.bucket)
    scene.fill(versioned=False)
    new = scene.now()
    applied = scene.apply()

    assert (0, {"expire", "abort_upload"}) == (planned[0], {action for _, _, action in due})
    assert (3, "", True) == (gone[0], gone[1], "is gone" in gone[2] or "are gone" in gone[2])
    assert (0, {"changed": len(LOGS), "absent": 1}) == (applied[0], outcomes(applied[1]))
    assert new == scene.now()


@pytest.mark.long
def test_a_bucket_that_vanishes_in_the_middle_of_an_apply(scene):
    """Only what was deleted before counts as deleted; a new bucket of the name keeps all that it holds."""
    scene.fill()
    scene.plan()
    due, deleted = scene.due(), []

    def vanish(_request, forward):
        deleted.extend(done(due, scene.now()))
        scene.vanish()
        return forward()

    scene.proxy.inject(second_page(), vanish)
    stopped = scene.apply()
    said, absent, failed = scene.runs(), scene.outcomes("absent"), scene.outcomes("failed")
    gone = scene.apply()
    scene.client.create_bucket(Bucket=scene.bucket)
    scene.fill()
    new = scene.now()
    applied = scene.apply()
    found = outcomes(applied[1])

    assert (3, "", True) == (stopped[0], stopped[1], "gone" in stopped[2])
    assert ("failed", True) == (said[0][0], "gone" in said[0][1])
    assert (3, "", {}) == (*gone[:2], absent)
    assert all("there is no bucket" in why or "NoSuchBucket" in why for why in failed.values())
    assert 0 == applied[0]
    assert 0 < len(deleted) == found.get("deleted", 0) + found.get("hidden", 0)
    assert failed
    assert len(due) == sum(found.values())
    assert {"absent", "changed"} < found.keys() <= {"deleted", "hidden", "absent", "changed"}
    assert new == scene.now()


def test_wrong_credentials_change_nothing_and_right_ones_go_on(scene, monkeypatch):
    """No plan and no apply begins with wrong ones; if they end on the way the run stops and can go on."""
    scene.fill()
    before = scene.now()
    with wrong_credentials(monkeypatch):
        unplanned = scene.plan()
    none = scene.runs()
    scene.plan()
    due, pages = scene.due(), []
    with wrong_credentials(monkeypatch):
        refused = scene.apply()
    planned, after = scene.runs(), scene.now()
    expired = error(403, "ExpiredToken")
    scene.proxy.inject(lambda one: (bulk(one) and pages.append(one)) or len(pages) > 1, expired)
    stopped = scene.apply()
    half, failed = scene.now(), scene.runs()
    scene.proxy.clear()
    applied = scene.apply()

    for code, found in ((1, unplanned), (1, refused), (4, stopped)):
        assert (code, "", True) == (*found[:2], "check the credentials" in found[2])
        assert WRONG not in found[2]
    assert "SignatureDoesNotMatch" in refused[2]
    assert "ExpiredToken" in stopped[2]
    assert ([], ["planned"], ["failed"]) == (none, [one for one, _ in planned], [one for one, _ in failed])
    assert before == after
    assert 0 < len(done(due, half)) < len(due)
    assert (0, all_done(due)) == (applied[0], outcomes(applied[1]))
    assert as_planned(before, due) == scene.now()


def test_row_33_what_a_bucket_policy_denies_is_denied(scene):
    """A policy stops Ebbtide, unlike S3: what it denies stays and is said to be denied, the rest goes."""
    scene.fill()
    before = scene.now()
    scene.plan()
    due = scene.due()
    denied = {item for item in due if item[0] in {*LOGS[:2], "up/big"}}
    scene.client.put_bucket_policy(Bucket=scene.bucket, Policy=json.dumps(policy(scene.bucket, denied)))
    partly = scene.apply()
    half, said = scene.now(), scene.runs()
    refused = scene.outcomes("denied")
    scene.client.delete_bucket_policy(Bucket=scene.bucket)
    applied = scene.apply()

    assert (4, True) == (partly[0], "3 of 24 items could not be deleted" in partly[2])
    assert [("failed", "3 of 24 items could not be deleted")] == said
    assert {(key, version) for key, version, _ in denied} == refused.keys()
    assert all(reason.startswith("AccessDenied") for reason in refused.values())
    assert as_planned(before, due - denied) == half
    assert (0, all_done(due)) == (applied[0], outcomes(applied[1]))
    assert as_planned(before, due) == scene.now()
