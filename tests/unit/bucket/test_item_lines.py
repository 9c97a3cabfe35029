"""Versions and uploads written by hand are read strictly, and verdicts are written as the contract says."""

from __future__ import annotations

import json

import pytest

from ebbtide.core.errors import WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.s3.model import Action, Upload, Verdict, Version
from ebbtide.targets.s3.simulation import plain_verdict, read_lines

MOMENT = "2026-01-01T10:30:00Z"


def read(*lines):
    """Read objects as JSON lines."""
    return read_lines("\n".join(json.dumps(line) for line in lines), "versions.jsonl")


def test_every_field_is_read():
    """A line with every field is the version that it says."""
    line = {
        "key": "a",
        "version_id": "v1",
        "last_modified": MOMENT,
        "is_latest": False,
        "is_delete_marker": False,
        "size": 7,
        "storage_class": "GLACIER",
        "tags": {"k": "v"},
        "etag": "e",
        "legal_hold": "ON",
        "retain_until": MOMENT,
        "replication_status": "PENDING",
        "restoring": True,
    }
    at = parse_instant(MOMENT)

    assert [
        Version("a", "v1", at, False, False, 7, "GLACIER", {"k": "v"}, "e", True, at, "PENDING", True)
    ] == read(line)


def test_what_is_left_out_is_not_known():
    """Only a key is needed: what is left out is unknown, and a version without an id is the null version."""
    assert [Version("a"), Upload("a", "u1")] == read(
        {"key": "a"}, {"kind": "upload", "key": "a", "upload_id": "u1"}
    )


def test_tags_as_s3_writes_them():
    """Tags may be a list of Key and Value."""
    assert {"k": "v"} == read({"key": "a", "tags": [{"Key": "k", "Value": "v"}]})[0].tags


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"key": ""}, "key is ''"),
        ({"key": "a", "legalhold": True}, "did you mean 'legal_hold'"),
        ({"key": "a", "size": -1}, "size is -1"),
        ({"key": "a", "size": True}, "size is True"),
        ({"key": "a", "is_latest": "yes"}, "is_latest is 'yes'"),
        ({"key": "a", "last_modified": "yesterday"}, "last_modified: 'yesterday' is not a time"),
        ({"key": "a", "last_modified": 5}, "last_modified"),
        ({"key": "a", "tags": {"k": 1}}, "tags are"),
        ({"kind": "marker", "key": "a"}, "kind is 'marker'"),
        ({"kind": "upload", "key": "a"}, "upload_id is None"),
        ([], "is not an object"),
    ],
)
def test_a_wrong_line_is_named(line, words):
    """An error says which line, which field, and what to write."""
    with pytest.raises(WorldError, match=r"versions.jsonl, line 2") as refused:
        read({"key": "x"}, line)

    assert words in str(refused.value)
    assert 2 == refused.value.exit_code


def test_what_is_given_twice_is_refused():
    """Two lines of one version could not be told apart."""
    with pytest.raises(WorldError, match="version 'null' of 'a' is given twice"):
        read({"key": "a"}, {"key": "a"})


@pytest.mark.parametrize("line", ["{", "[" * 100_000], ids=["cut", "too deep"])
def test_what_is_no_json_is_named(line):
    """A line that is no JSON, or too deep to be read, is named."""
    with pytest.raises(WorldError, match=r"versions.jsonl, line 3 is not JSON"):
        read_lines(f'\n{{"key": "a"}}\n{line}', "versions.jsonl")


def test_a_verdict_is_written_as_the_contract_says():
    """Every line has the same fields; an upload has its own id."""
    due = parse_instant(MOMENT)

    assert {
        "key": "a",
        "version_id": "v1",
        "action": "transition",
        "storage_class": "GLACIER",
        "rule_id": "r",
        "due": MOMENT,
        "held_by": None,
    } == plain_verdict(Version("a", "v1"), Verdict(Action.TRANSITION, "GLACIER", "r", due))
    assert "u1" == plain_verdict(Upload("a", "u1"), Verdict())["upload_id"]
