"""Buckets as a user meets them: `ebb simulate bucket`, `ebb policy test`, `ebb plan s3://`, `ebb apply`."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from tests.services.machine_clock import set_machine_clock
from tests.services.versions import everything, put_all

from ebbtide.cli.main import run
from ebbtide.cli.state import State

pytestmark = pytest.mark.spark

RULES = {
    "Rules": [
        {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 3}},
        {
            "ID": "old",
            "Status": "Enabled",
            "Filter": {},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        },
    ]
}
VERSIONS = [
    {"key": key, "version_id": version, "last_modified": written, "is_latest": latest, "size": 1}
    for key, version, written, latest in (
        ("logs/a", "v1", "2020-01-01T10:30:00Z", True),
        ("b", "v2", "2020-01-03T10:30:00Z", True),
        ("b", "v1", "2020-01-01T10:30:00Z", False),
    )
]
WORLD = {
    "policy": {"r": {"prefix": "", "days": 1}},
    "branches": {"main": "c"},
    "commits": [
        {
            "id": "c",
            "parents": [],
            "created": "2020-01-01",
            "entries": {"k": {"address": "1", "created": "2020-01-01", "size": 1}},
        }
    ],
}


@pytest.fixture
def ebb(spark, tmp_path, monkeypatch, capsys):
    """Run commands in a folder of their own, on the tests' Spark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(State, "spark", lambda *_: nullcontext(spark))
    (tmp_path / "rules.json").write_text(json.dumps(RULES))

    def call(*arguments, now=""):
        with pytest.MonkeyPatch.context() as patched:
            if now:
                set_machine_clock(patched, now)
            code = run(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_simulate_says_a_line_for_each_line(ebb, tmp_path):
    """Each line gets its verdict, in order; at the microsecond before midnight nothing is due yet."""
    (tmp_path / "versions.jsonl").write_text("\n".join(json.dumps(one) for one in VERSIONS))
    asked = ("simulate", "bucket", "--rules", "rules.json", "--versions", "versions.jsonl", "--json", "--now")
    code, text, _ = ebb(*asked, "2020-01-05T00:00:00Z")
    _, before, _ = ebb(*asked, "2020-01-04T23:59:59.999999Z")
    found = [json.loads(line) for line in text.splitlines()]

    assert 0 == code
    assert ["expire", "none", "delete_version"] == [row["action"] for row in found]
    assert {"none"} == {json.loads(line)["action"] for line in before.splitlines()}
    assert {
        "key": "logs/a",
        "version_id": "v1",
        "action": "expire",
        "storage_class": None,
        "rule_id": "logs",
        "due": "2020-01-05T00:00:00Z",
        "held_by": None,
    } == found[0]


def test_a_suite_of_lakes_and_buckets(ebb, tmp_path):
    """Cases of both kinds run together; a wrong expectation fails, and so do rules that S3 refuses."""
    bucket = {"kind": "bucket", "rules": RULES, "versions": VERSIONS, "now": "2020-01-05"}
    suite = [
        bucket | {"name": "right", "expect": [{"action": "expire"}, None, {"action": "delete_version"}]},
        {"name": "lake", "world": WORLD, "now": "2020-01-05", "expect": {"due": ["1"]}},
        bucket | {"name": "wrong", "expect": [{"action": "none"}, None, None]},
        bucket | {"name": "refused", "rules": [], "expect": [None] * 3},
    ]
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    code, text, _ = ebb("policy", "test", "suite.json", "--json")
    found = json.loads(text)

    assert 1 == code
    assert [True, True, False, False] == [case["passed"] for case in found]
    assert [{"action": "expire"}, None, None] == found[2]["actual"]
    assert "MalformedXML" in found[3]["refused"]


@pytest.fixture
def config(s3_server, tmp_path):
    """Write the configuration, and give the file so that tests can write more."""
    file = tmp_path / "ebbtide.toml"
    file.write_text(
        f'[store]\nendpoint = "{s3_server.endpoint}"\n'
        "path_style = true\nallow_http = true\nordered = false\n"
        "[breaker]\nmax_delete_fraction = 1.0\n"
    )
    return file


@pytest.mark.usefixtures("config")
def test_a_bucket_from_rules_to_outcomes(ebb, s3_server, bucket):
    """Rules are set, a forecast and a plan say what they do, and apply does it."""
    client = s3_server.client()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put_all(client, bucket, ["logs/a", "b"])
    put_all(client, bucket, ["b"])
    target = f"s3://{bucket}"
    none = ebb("plan", target)
    stored = ebb("bucket", "rules", "set", bucket, "rules.json")
    later = client.head_object(Bucket=bucket, Key="b")["LastModified"].replace(year=2099).isoformat()
    forecast = ebb("bucket", "forecast", target, "--now", later, "--days", "0", "--json")
    plan = ebb("plan", target, "--now", later, "--json")
    rows = ebb("plan", "show", "latest", "--all", "--json")
    explained = ebb("explain", target, "b", "--now", later, "--json")
    unknown = ebb("explain", target, "nothing")
    early = ebb("apply", "latest", "--yes")
    ebb("plan", target, now=later)
    applied = ebb("apply", "latest", "--yes", "--json", now=later)
    left = {(key, latest, marker) for key, _, latest, marker in everything(client, bucket)}

    assert (2, True) == (none[0], "NoSuchLifecycleConfiguration" in none[2])
    assert 0 == stored[0]
    assert {("expire", "logs", 1), ("delete_version", "old", 1)} == {
        (row["action"], row["rule_id"], row["objects"]) for row in json.loads(forecast[1])
    }
    assert 2 == json.loads(plan[1])["summary"]["due"]["objects"]
    assert {"expire", "delete_version"} == {json.loads(row)["task"]["action"] for row in rows[1].splitlines()}
    assert ["none", "delete_version"] == [row["action"] for row in json.loads(explained[1])]
    assert (2, True) == (unknown[0], "no version and no upload" in unknown[2])
    assert (3, True) == (early[0], "this plan is for 2099" in early[2])
    said = json.loads(applied[1])
    assert (0, 1, 1) == (applied[0], said["outcomes"]["deleted"]["objects"], said["hidden"]["objects"])
    assert {("expire", 0)} == {(c["action"], c["freed"]) for c in json.loads(forecast[1])} - {
        (c["action"], c["bytes"]) for c in json.loads(forecast[1])
    }
    assert {("logs/a", True, True), ("logs/a", False, False), ("b", True, False)} == left


@pytest.mark.long
def test_what_was_moved_within_a_bucket_is_left_alone(ebb, s3_server, bucket, config, tmp_path):
    """Rules end where a location begins, save those that name it; forecast, plan and explain agree."""
    with config.open("a") as file:
        for name in ("near", "ours"):
            file.write(f'[bucket.locations.{name}]\nurl = "s3://{bucket}/{name}"\n')
    ends = {"Status": "Enabled", "Expiration": {"Days": 3}}
    rules = [{"ID": prefix or "all", "Filter": {"Prefix": prefix}, **ends} for prefix in ("", "ours/x")]
    rules.append(
        {
            "ID": "uploads",
            "Status": "Enabled",
            "Filter": {},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
    )
    (tmp_path / "rules.json").write_text(json.dumps({"Rules": rules}))
    client, target = s3_server.client(), f"s3://{bucket}"
    put_all(client, bucket, ["near/a/v1", "near", "nearby", "ours/a/v1", "ours/x/v1"])
    client.create_multipart_upload(Bucket=bucket, Key="near/half")
    asked = ("--rules", "rules.json", "--now", "2099-01-01T00:00:00Z")
    forecast = json.loads(ebb("bucket", "forecast", target, "--days", "0", "--json", *asked)[1])
    _, summary, _ = ebb("plan", target, *asked)
    _, rows, _ = ebb("plan", "show", "latest", "--all", "--json")
    manifest = json.loads(ebb("plan", "show", "latest", "--json")[1])
    explained = {
        key: json.loads(ebb("explain", target, key, "--json", *asked)[1])[0]
        for key in ("near/a/v1", "near", "ours/a/v1", "ours/x/v1", "near/half")
    }
    _, said, _ = ebb("explain", target, "near/a/v1", *asked)

    assert {("all", 2), ("ours/x", 1), ("uploads", 1)} == {
        (row["rule_id"], row["objects"]) for row in forecast
    }
    assert {("near", "all"), ("nearby", "all"), ("ours/x/v1", "ours/x"), ("near/half", "uploads")} == {
        (row["address"], row["rules"][0]) for row in map(json.loads, rows.splitlines())
    }
    assert 5 == manifest["summary"]["known_objects"]
    assert "left out near/ (location near)" in summary
    assert {
        "near/a/v1": None,
        "near": "all",
        "ours/a/v1": None,
        "ours/x/v1": "ours/x",
        "near/half": "uploads",
    } == {key: row["rule_id"] for key, row in explained.items()}
    assert ["near", None, "ours", "ours", None] == [row.get("location") for row in explained.values()]
    assert "it is in the location near, so only rules whose prefix begins with 'near/'" in said


@pytest.mark.usefixtures("config")
def test_explain_knows_what_runs_have_done(ebb, s3_server, bucket):
    """Of a version that a run ended or hid explain says which run, when and why, also if its key is gone."""
    client, target = s3_server.client(), f"s3://{bucket}"
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first, second = (client.put_object(Bucket=bucket, Key="logs/a", Body=b"x")["VersionId"] for _ in range(2))
    put_all(client, bucket, ["b"])
    later = "2099-01-01T00:00:00Z"
    ebb("bucket", "rules", "set", bucket, "rules.json")
    ebb("plan", target, now=later)
    ebb("apply", "latest", "--yes", now=later)
    explained = {row["version_id"]: row for row in json.loads(ebb("explain", target, "logs/a", "--json")[1])}
    _, said, _ = ebb("explain", target, "logs/a")
    for one in everything(client, bucket):
        client.delete_object(Bucket=bucket, Key=one[0], VersionId=one[1])
    code, gone, _ = ebb("explain", target, "logs/a")
    nowhere = ebb("explain", target, "logs/b")

    assert {first, second} < {*explained}
    assert (True, "delete_version", ["old"]) == (
        explained[first]["gone"],
        explained[first]["done"][0]["action"],
        explained[first]["done"][0]["rules"],
    )
    assert (1, "put a delete marker over it", ["logs"]) == tuple(
        explained[second]["done"][0][name] for name in ("run_id", "what", "rules")
    )
    assert "gone" not in explained[second]
    assert f"version {first}: run 1 deleted it for good, by old, at 2099-01-01T00:00" in said
    assert f"version {second}: run 1 put a delete marker over it, by logs, at 2099-01-01T00:00" in said
    assert 0 == code
    assert f"{target} has no version and no upload of logs/a any more" in gone
    assert f"version {first}: run 1 deleted it for good" in gone
    assert 2 == nowhere[0]


def test_a_moved_object_is_explained_and_left_alone_afterwards(ebb, s3_server, bucket, config, tmp_path):
    """Explain says where a run moved a version, and the next plan does not touch the copy in the bucket."""
    with config.open("a") as file:
        file.write(f'[bucket.locations.near]\nurl = "s3://{bucket}/near"\n')
    move = {"Transitions": [{"Days": 1, "StorageClass": "near"}]}
    rules = [{"ID": "move", "Status": "Enabled", "Filter": {"ObjectSizeGreaterThan": 0}, **move}]
    (tmp_path / "rules.json").write_text(json.dumps({"Rules": rules}))
    client, target = s3_server.client(), f"s3://{bucket}"
    put_all(client, bucket, ["a"])
    asked = ("--rules", "rules.json", "--now", "2099-01-01T00:00:00Z")
    ebb("plan", target, *asked[:2], now=asked[-1])
    applied = ebb("apply", "latest", "--yes", "--override-breaker", now=asked[-1])
    [copy] = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    [explained] = json.loads(ebb("explain", target, "a", "--json", *asked)[1])
    again = json.loads(ebb("plan", target, "--json", *asked)[1])

    assert 0 == applied[0], applied
    assert copy.startswith("near/a/")
    assert (True, "transition", f"moved it to s3://{bucket}/{copy}") == (
        explained["gone"],
        explained["done"][0]["action"],
        explained["done"][0]["what"],
    )
    assert (0, 0) == (again["summary"]["due"]["objects"], again["summary"]["known_objects"])
