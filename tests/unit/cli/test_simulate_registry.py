"""`ebb simulate registry` and cases of kind registry, from files to answers, without Spark."""

import json

import pytest

from ebbtide.cli.main import run

IMAGES = """\
{"repository": "app", "digest": "sha256:aa", "tags": [{"name": "v1", "moved_at": "2018-01-01"}]}
{"repository": "app", "digest": "sha256:bb", "untagged_since": "2018-01-01"}
"""


@pytest.fixture
def files(here):
    """Write policies, images and what runs."""
    (here / "policies.yaml").write_text("policies:\n  Untagged: {days: 3, recycle: false}\n")
    (here / "images.jsonl").write_text(IMAGES)
    (here / "running.json").write_text(
        '{"images": ["host.example/app:v1"], "scanned_at": "2018-01-30T00:00:00Z"}'
    )
    return here


def simulate(*more):
    """Run the command on the files."""
    given = ["--policies", "policies.yaml", "--images", "images.jsonl", "--now", "2018-01-30T12:00:00Z"]
    return run(["simulate", "registry", *given, *more])


def test_every_manifest_and_tag_gets_a_line(files, capsys):
    """With --json there is an object a line, in the order of the images."""
    code = simulate("--json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert 0 == code
    assert [
        {"repository": "app", "digest": "sha256:aa", "decision": "recycle", "policy": "Default"},
        {"repository": "app", "tag": "v1", "decision": "recycle", "policy": "Default"},
        {"repository": "app", "digest": "sha256:bb", "decision": "delete", "policy": "Untagged"},
    ] == [
        {name: row[name] for name in row if name not in ("deadline", "held_by", "unmatched")} for row in rows
    ]
    assert [True, True, None] == [row.get("unmatched") for row in rows]
    assert ["2018-01-06T00:00:00Z", "2018-01-06T00:00:00Z", "2018-01-04T00:00:00Z"] == [
        row["deadline"] for row in rows
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), ["keep", "keep", "delete"]),
        (("--oldest-scan", "12"), ["keep", "keep", "delete"]),
        (("--oldest-scan", "11.5"), ["keep", "keep", "keep"]),
    ],
)
def test_what_runs_is_kept(files, capsys, more, expected):
    """What runs stays; if the scan is older than allowed everything does."""
    simulate("--running", "running.json", "--json", *more)

    assert expected == [json.loads(line)["decision"] for line in capsys.readouterr().out.splitlines()]


def test_people_get_a_table(files, capsys):
    """Without --json the judgements are a table with what holds each."""
    assert 0 == simulate("--running", "running.json")
    assert "running: host.example/app:v1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("policies.yaml", "policies: {Default: {days: 0}}", "days is 0"),
        ("images.jsonl", IMAGES + "{", "line 3"),
        ("running.json", "", "is empty"),
    ],
)
def test_bad_files_are_bad_input(files, capsys, name, text, words):
    """A file that cannot be used ends with exit code 2 and says where it is wrong."""
    (files / name).write_text(text)
    code = simulate("--running", "running.json")
    said = capsys.readouterr().err

    assert 2 == code
    assert name in said
    assert words in said


@pytest.mark.parametrize(("decision", "expected"), [("recycle", 0), ("keep", 1)])
def test_policy_test_knows_registries(files, capsys, decision, expected):
    """A suite about registries alone runs without Spark; exit code 1 says that a case failed."""
    images = [json.loads(line) for line in IMAGES.splitlines()]
    case = {
        "name": "a",
        "kind": "registry",
        "images": images,
        "now": "2018-02-01",
        "expect": {"app:v1": decision},
    }
    (files / "suite.json").write_text(json.dumps([case]))
    code = run(["policy", "test", "suite.json", "--json"])

    assert expected == code
    assert [{"app:v1": "recycle"}] == [one["actual"] for one in json.loads(capsys.readouterr().out)]
