"""`ebb recycle` and `ebb restore`: what cannot be meant."""

from __future__ import annotations

from ebbtide.cli.main import run
from ebbtide.cli.state import State


def no_spark(_state, _master=None):
    """Fail whoever starts Spark."""
    raise AssertionError("this command must not start Spark")


MISTAKES = {
    "recycle set lake:sales": "say either --days or --off",
    "recycle set lake:sales --days 3 --off": "say either --days or --off",
    "recycle set lake:nowhere --days 3": "nowhere",
    "recycle set oci://host/x --days 3": "policies say what is recycled",
    "recycle ls nothing": "is no target",
    "restore lake:sales": "nothing of lake:sales is named",
    "restore lake:sales raw/a.csv": "is not in the recycle bin",
    "restore lake:sales --from 000001-x": "the recycle bin has no '000001-x'",
    "restore 7": "there is no plan",
    "restore 7 --from x": "--from goes with a target",
    "plan lake:sales --bin --all": "--bin goes with no other choice",
}


def test_what_cannot_be_meant_is_said_and_changes_nothing(lake, monkeypatch, capsys):
    """Bad input is exit code 2 with words that say what to do, and no Spark is started for it."""
    monkeypatch.setattr(State, "spark", no_spark)
    codes, told = {}, {}
    for words in MISTAKES:
        codes[words] = run(words.split())
        told[words] = capsys.readouterr().err

    assert dict.fromkeys(MISTAKES, 2) == codes
    assert [] == [words for words, said in MISTAKES.items() if said not in told[words]]


def test_days_are_set_shown_and_switched_off(lake, capsys):
    """What was set is what the bin's listing says, until it is switched off."""
    seen = []
    for words in (["--days", "14"], ["--off"]):
        assert 0 == run(["recycle", "set", "lake:sales", *words])
        capsys.readouterr()
        assert 0 == run(["recycle", "ls", "lake:sales"])
        seen.append(capsys.readouterr().out)

    assert "0 objects, 0 B; runs set aside for 14 days" in seen[0]
    assert "runs delete at once" in seen[1]
