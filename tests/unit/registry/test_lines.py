"""Images written by hand are read strictly, and judgements are written as the contract says."""

from __future__ import annotations

import json
import re

import pytest

from ebbtide.core.errors import WorldError
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.oci.model import Image, ImageDecision, ImageVerdict, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.simulated_images import plain_judgement, read_lines

MOMENT = "2018-01-01T10:30:00Z"
AT = parse_instant(MOMENT)


def read(*lines):
    """Read objects as JSON lines."""
    return read_lines("\n\n".join(json.dumps(line) for line in lines), "images.jsonl")


def test_every_field_is_read():
    """A line with every field is the image that it says."""
    values = {"policy": "Released", "expires_at": MOMENT, "can_delete_prior": False, "recycle": True}
    line = {
        "repository": "app",
        "digest": "sha256:aa",
        "media_type": "application/vnd.oci.image.index.v1+json",
        "tags": [{"name": "v1", "moved_at": MOMENT, **values, "delete_requested": True}, "v2"],
        "children": ["sha256:bb", {"digest": "sha256:cc", "size": 5}],
        "subject": {"digest": "sha256:dd"},
        "pushed_at": MOMENT,
        "untagged_since": MOMENT,
        "quarantine": {"state": "failed", "since": MOMENT},
        **values,
        "size": 7,
        "delete_requested": True,
    }
    assigned = Assigned("Released", AT, can_delete_prior=False, recycle=True)
    expected = Image(
        "app",
        "sha256:aa",
        (Tag("v1", AT, assigned, delete_requested=True), Tag("v2")),
        ("sha256:bb", "sha256:cc"),
        "sha256:dd",
        AT,
        AT,
        Quarantine(QuarantineState.FAILED, AT),
        assigned,
        delete_requested=True,
        media_type="application/vnd.oci.image.index.v1+json",
        size=7,
    )

    assert [expected] == read(line)


def test_what_is_left_out_or_null_is_not_known():
    """Only a repository and a digest are needed; null says no more than silence."""
    names = ("tags", "children", "subject", "pushed_at", "quarantine", "policy", "expires_at", "size")
    bare = {"repository": "app", "digest": "sha256:aa"}

    assert [Image("app", "sha256:aa")] == read(bare) == read(bare | dict.fromkeys(names))


def test_never_is_a_date():
    """A date may be written as never, which assigns something where null does not."""
    (found,) = read({"repository": "app", "digest": "sha256:aa", "expires_at": "never"})

    assert Assigned(expires_at=NEVER) == found.assigned
    assert not found.assigned.is_empty


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, None),
        ("pending", Quarantine(QuarantineState.PENDING)),
        ("failed", Quarantine(QuarantineState.FAILED)),
        ({"failed": MOMENT}, Quarantine(QuarantineState.FAILED, AT)),
        ({"status": "failed", "at": MOMENT}, Quarantine(QuarantineState.FAILED, AT)),
        ({"state": "failed", "time": MOMENT}, Quarantine(QuarantineState.FAILED, AT)),
        ({"state": "failed", "failed_at": MOMENT}, Quarantine(QuarantineState.FAILED, AT)),
        ({"state": "pending", "since": None}, Quarantine(QuarantineState.PENDING)),
    ],
)
def test_spellings_of_quarantine(written, expected):
    """Quarantine is a word, or a word with a time."""
    assert expected == read({"repository": "app", "digest": "sha256:aa", "quarantine": written})[0].quarantine


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"repository": None}, "repository is None"),
        ({"digest": "aa"}, "digest is 'aa'"),
        ({"digset": "x"}, "did you mean 'digest'"),
        ({"tags": "v1"}, "tags is 'v1'"),
        ({"tags": [{"moved_at": MOMENT}]}, "tag 1: name is None"),
        ({"tags": [{"name": "v1", "moved": MOMENT}]}, "did you mean 'moved_at'"),
        ({"tags": ["-v"]}, "is not a tag"),
        ({"tags": ["v" * 129]}, "is not a tag"),
        ({"tags": [5]}, "tag 1 is 5"),
        ({"tags": ["v1", "v1"]}, "app:v1 is there twice"),
        ({"children": ["x"]}, "children is 'x'"),
        ({"subject": {"size": 1}}, "subject is None"),
        ({"pushed_at": "soon"}, "pushed_at"),
        ({"pushed_at": 5}, "pushed_at"),
        ({"can_delete_prior": "no"}, "can_delete_prior is 'no'"),
        ({"delete_requested": 1}, "delete_requested is 1"),
        ({"size": True}, "size is True"),
        ({"size": -1}, "size is -1"),
        ({"quarantine": "passed"}, "quarantine is"),
        ({"quarantine": {"since": MOMENT}}, "quarantine is"),
        ({"quarantine": {"state": "failed", "when": MOMENT}}, "unknown field 'when'"),
        ({"quarantine": 5}, "quarantine is 5"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused(fields, words):
    """An error names the file, and says what is wrong and what to write."""
    with pytest.raises(WorldError, match=re.escape(words)) as refused:
        read({"repository": "app", "digest": "sha256:aa"} | fields)

    assert "images.jsonl" in str(refused.value)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"repository": "a", "digest": "sha256:aa"}\n\n{', "line 3 is not JSON"),
        ("5", "line 1 is 5"),
        ('{"repository": "a", "digest": "sha256:aa"}\n' * 2, "line 2: a@sha256:aa is there twice"),
        ('{"repository": "a", "digest": "sha256:aa", "policy": "A", "policy": "B"}', "line 1: 'policy' is"),
        (
            "\n".join(f'{{"repository": "a", "digest": "sha256:{one}", "tags": ["x"]}}' for one in "ab"),
            "line 2: a:x is there twice",
        ),
    ],
)
def test_an_error_names_the_line(text, words):
    """A line that is no JSON is named by its number, and so is what is there twice, whatever it is."""
    with pytest.raises(WorldError, match=re.escape(words)):
        read_lines(text, "images.jsonl")


def test_judgements_are_written_as_the_contract_says():
    """A judgement has the name of a tag or a digest, what becomes of it, by what, when, and what holds it."""
    judgement = ImageVerdict("app", "sha256:aa", None, ImageDecision.KEEP, "Default", AT, ("tag v1",))
    common = {"policy": "Default", "deadline": MOMENT, "held_by": ["tag v1"]}

    assert {"repository": "app", "digest": "sha256:aa", "decision": "keep", **common} == plain_judgement(
        judgement
    )
    assert {
        "repository": "app",
        "tag": "v1",
        "decision": "recycle",
        "policy": "Default",
        "deadline": None,
        "held_by": [],
    } == plain_judgement(ImageVerdict("app", "sha256:aa", "v1", ImageDecision.RECYCLE, "Default", None))
