"""Buckets as a user meets them: `ebb simulate bucket`, `ebb policy test`, `ebb plan s3://`, `ebb apply`."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
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
    monkeypatch.setattr(State, "spark", lambda _state, _master=None: nullcontext(spark))
    (tmp_path / "rules.json").write_text(json.dumps(RULES))

    def call(*arguments):
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


def test_a_bucket_from_rules_to_outcomes(ebb, s3_server, bucket, tmp_path):
    """Rules are set, a forecast and a plan say what they do, and apply does it."""
    (tmp_path / "ebbtide.toml").write_text(
        f'[store]\nendpoint = "{s3_server.endpoint}"\n'
        "path_style = true\nallow_http = true\nordered = false\n"
        "[breaker]\nmax_delete_fraction = 1.0\n"
    )
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
    applied = ebb("apply", "latest", "--yes", "--json", "--now", later)
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
    assert (3, True) == (early[0], "what would be due at 2099" in early[2])
    assert (0, 2) == (applied[0], json.loads(applied[1])["outcomes"]["deleted"]["objects"])
    assert {("logs/a", True, True), ("logs/a", False, False), ("b", True, False)} == left
