"""`ebb lake retention`: setting and getting retention rules."""

import json

import pytest

from ebbtide.cli.main import run
from ebbtide.targets.repository.retention_rules import RetentionRules, retention_hash


def test_retention_rules_are_set_and_given_back(lake, capsys):
    """What was set is printed as it was written, or as JSON, and its name is that of its meaning."""
    (lake / "retention.toml").write_text("default_days = 30  # a month\n[branch_days]\nmain = 1\n")
    capsys.readouterr()
    codes = [run(["lake", "retention", "set", "sales", "retention.toml", "--json"])]
    answer = json.loads(capsys.readouterr().out)
    codes.append(run(["lake", "retention", "get", "sales"]))
    text = capsys.readouterr().out
    codes.append(run(["lake", "retention", "get", "sales", "--json"]))
    document = json.loads(capsys.readouterr().out)

    assert [0, 0, 0] == codes
    assert {"repository", "version", "hash"} == set(answer)
    assert (1, retention_hash(RetentionRules(30, {"main": 1}))) == (answer["version"], answer["hash"])
    assert (lake / "retention.toml").read_text() == text
    assert {"default_days": 30, "branch_days": {"main": 1}} == document


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"default_days": 30}', "old commits for 30 days; tagged ones as long as the tag"),
        ('{"branch_days": {"main": 1}}', "old commits forever, those of main for 1 day; tagged"),
        ('{"default_days": 1, "tags_protect": false}', "old commits for 1 day; tags protect nothing"),
    ],
)
def test_what_was_set_is_said_in_words(lake, text, words, capsys):
    """Whoever sets retention rules reads what they mean."""
    (lake / "retention.json").write_text(text)
    code = run(["lake", "retention", "set", "sales", "retention.json"])

    assert 0 == code
    assert f"sales keeps {words}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "sales"], "sales has no retention rules"),
        (["get", "nowhere"], "no repository 'nowhere'"),
        (["set", "sales", "no-such.json"], "cannot be read"),
        (["set", "sales", "bad.json"], "default_days is 0"),
        (["set", "nowhere", "good.json"], "no repository 'nowhere'"),
    ],
)
def test_bad_retention_rules_are_not_set(lake, arguments, words, capsys):
    """What is wrong is said, with exit code 2, and the repository has no rules afterwards."""
    (lake / "bad.json").write_text('{"default_days": 0}')
    (lake / "good.json").write_text('{"default_days": 1}')
    code = run(["lake", "retention", *arguments])
    error = capsys.readouterr().err

    assert 2 == code
    assert words in error
    assert 2 == run(["lake", "retention", "get", "sales"])
