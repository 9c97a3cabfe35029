"""`ebb bucket rules`: what is printed, what is kept, and the exit codes."""

import io
import json
import subprocess
import sys

import pytest
from tests.services.machine_clock import set_machine_clock
from tests.unit.s3.as_xml import as_xml
from tests.unit.s3.refused import rule

from ebbtide.cli.main import run

GOOD = [rule(ID="a", Filter={"Prefix": "logs/"})]
BAD = [rule(Expiration={"Days": 0})]


def ebb(capsys, *words):
    """Run a command; give its exit code, output and errors."""
    capsys.readouterr()
    code = run(["bucket", "rules", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rules.json", json.dumps({"Rules": GOOD})),
        ("rules.xml", as_xml(GOOD)),
        ("RULES.XML", as_xml(GOOD)),
        ("rules.yaml", json.dumps(GOOD)),
        ("rules.toml", '[[Rules]]\nStatus = "Enabled"\nFilter = {}\nExpiration = {Days = 1}'),
    ],
)
def test_a_good_configuration_is_valid(here, capsys, name, text):
    """A file of any format that S3 would take is valid, and the answer is one line."""
    (here / name).write_text(text)

    assert (0, '{"valid": true}\n', "") == ebb(capsys, "check", name, "--json")


def test_check_in_words(here, capsys):
    """Without --json the answer is a line to read, and warnings follow."""
    (here / "rules.json").write_text(json.dumps([*GOOD, rule(Status="Disabled", Filter={"Prefix": "/x"})]))
    code, out, _ = ebb(capsys, "check", "rules.json")

    assert 0 == code
    assert out.startswith("valid: 2 rules, 1 enabled\n")
    assert "warning: " in out


def test_warnings_stand_beside_the_answer(here, capsys):
    """What surprises is told on standard error; the answer itself is yes or no."""
    (here / "rules.json").write_text(json.dumps([rule(Filter={"Prefix": "/x"})]))
    code, out, error = ebb(capsys, "check", "rules.json", "--json")

    assert (0, '{"valid": true}\n') == (code, out)
    assert "the slash counts" in error


def test_a_past_date_is_told_by_the_machine_clock(here, capsys, monkeypatch):
    """A date that the machine's clock has passed is warned of; one to come is not."""
    (here / "rules.json").write_text(json.dumps([rule(Expiration={"Date": "2030-01-01"})]))
    set_machine_clock(monkeypatch, "2029-01-01")
    before = ebb(capsys, "check", "rules.json", "--json")[2]
    set_machine_clock(monkeypatch, "2030-01-02")
    after = ebb(capsys, "check", "rules.json", "--json")[2]

    assert not before
    assert "past date" in after


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("rules.json", json.dumps(BAD), "InvalidArgument"),
        ("rules.xml", as_xml(BAD), "InvalidArgument"),
        ("rules.json", json.dumps([rule(Expiration=None)]), "InvalidRequest"),
        ("rules.json", "{", "MalformedXML"),
        ("rules.xml", "<", "MalformedXML"),
        ("rules.xml", '<!DOCTYPE x [<!ENTITY e "e">]><x>&e;</x>', "MalformedXML"),
        ("rules.json", "[]", "MalformedXML"),
        ("rules.txt", "[]", "MalformedXML"),
        ("elsewhere.json", "", "MalformedXML"),
    ],
)
def test_a_bad_configuration_is_refused_in_json(here, capsys, name, text, code):
    """The verdict, S3's code and message are all that is printed, and the exit code is 2."""
    (here / name.replace("elsewhere", "here")).write_text(text)
    ended, out, err = ebb(capsys, "check", name, "--json")
    answer = json.loads(out)

    assert (2, "") == (ended, err)
    assert {"valid": False, "code": code} == {key: answer[key] for key in ("valid", "code")}
    assert {"valid", "code", "message"} == set(answer)
    assert answer["message"]


def test_the_message_is_s3s_and_says_where(here, capsys):
    """S3's own sentence comes first, then the rule and the field."""
    (here / "rules.json").write_text(json.dumps([rule(ID="x", Expiration={"Date": "2030-01-01T10:00:00Z"})]))

    assert (
        "'Date' must be at midnight GMT (rule 'x': Expiration.Date is '2030-01-01T10:00:00Z')"
        == json.loads(ebb(capsys, "check", "rules.json", "--json")[1])["message"]
    )


def test_a_bad_configuration_is_refused_in_words(here, capsys):
    """The usual message has the code in it."""
    (here / "rules.json").write_text(json.dumps(BAD))
    code, out, err = ebb(capsys, "check", "rules.json")

    assert (2, "") == (code, out)
    assert "error: rule 1: Expiration.Days is 0 (InvalidArgument)" in err
    assert "what to do: use 1 or more" in err


def test_bytes_that_are_no_text(here, capsys):
    """A file that is not UTF-8 is malformed, not a traceback."""
    (here / "rules.xml").write_bytes(b"\xff\xfe<\x00")
    code, out, _ = ebb(capsys, "check", "rules.xml", "--json")

    assert (2, "MalformedXML") == (code, json.loads(out)["code"])


@pytest.mark.parametrize("text", [json.dumps(GOOD), as_xml(GOOD), "\n  " + as_xml(GOOD).strip()])
def test_standard_input(capsys, monkeypatch, text):
    """A dash reads standard input: XML if it begins like XML, JSON otherwise."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    assert (0, '{"valid": true}\n', "") == ebb(capsys, "check", "-", "--json")


def test_the_minimum_size_is_checked(here, capsys):
    """What XML cannot say is given beside it, and checked with it."""
    (here / "rules.xml").write_text(as_xml(GOOD))
    good = ebb(capsys, "check", "rules.xml", "--json", "--minimum-size", "varies_by_storage_class")
    bad = ebb(capsys, "check", "rules.xml", "--json", "--minimum-size", "small")

    assert (0, '{"valid": true}\n', "") == good
    assert (2, "InvalidRequest") == (bad[0], json.loads(bad[1])["code"])


def test_no_spark_is_imported(here):
    """A check answers without waiting for Spark, Arrow, boto3 or a database."""
    (here / "rules.json").write_text(json.dumps(GOOD))
    program = (
        "import sys; from ebbtide.cli.main import run; run(['bucket', 'rules', 'check', 'rules.json']); "
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'boto3', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=True, timeout=300
    )

    assert ["valid: 1 rule, 1 enabled", "[]"] == done.stdout.splitlines()


def test_set_get_list_and_rm(here, capsys):
    """Rules are set as a whole, read back in either format, listed, and forgotten."""
    (here / "first.json").write_text(json.dumps(GOOD))
    (here / "second.xml").write_text(as_xml([rule(ID="b", Status="Disabled")]))
    none = ebb(capsys, "get", "s3://logs")
    first = ebb(capsys, "set", "s3://logs", "first.json", "--json")
    listed = json.loads(ebb(capsys, "list", "--json")[1])
    second = ebb(capsys, "set", "logs", "second.xml")
    got = json.loads(ebb(capsys, "get", "logs", "--json")[1])
    again = json.loads(ebb(capsys, "list", "--json")[1])
    removed = [ebb(capsys, "rm", "s3://logs")[0] for _ in range(2)]

    assert 2 == none[0]
    assert "NoSuchLifecycleConfiguration" in none[2]
    assert (0, "s3://logs") == (first[0], json.loads(first[1])["bucket"])
    assert [("s3://logs", True)] == [(row["bucket"], row["enabled"]) for row in listed]
    assert (0, "s3://logs has 1 rule, 0 enabled") == (second[0], second[1].splitlines()[0])
    assert ["b"] == [read["ID"] for read in got["Rules"]]
    assert [("s3://logs", False)] == [(row["bucket"], row["enabled"]) for row in again]
    assert [0, 0] == removed
    assert 2 == ebb(capsys, "get", "logs")[0]


def test_xml_is_printed_with_a_note(here, capsys):
    """XML goes to standard output; what it cannot say goes to standard error."""
    (here / "rules.json").write_text(json.dumps(GOOD))
    ebb(capsys, "set", "b", "rules.json", "--minimum-size", "varies_by_storage_class")
    code, out, err = ebb(capsys, "get", "b", "--xml")
    (here / "again.xml").write_text(out)

    assert 0 == code
    assert "varies_by_storage_class" in err
    assert (0, '{"valid": true}\n', "") == ebb(capsys, "check", "again.xml", "--json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "s3://logs/a", "rules.json"], "is not the name of a bucket"),
        (["set", "s3://", "rules.json"], "is not the name of a bucket"),
        (["get", "a b"], "is not the name of a bucket"),
        (["set", "b", "bad.json"], "InvalidArgument"),
        (["set", "b", "nowhere.json"], "cannot be read"),
        (["get", "b", "--xml", "--json"], "leave one of them out"),
    ],
)
def test_bad_input_changes_nothing(here, capsys, words, message):
    """Bad input is a message and exit code 2, and the rules stay what they were."""
    (here / "rules.json").write_text(json.dumps(GOOD))
    (here / "bad.json").write_text(json.dumps(BAD))
    ebb(capsys, "set", "b", "rules.json")
    code, _, err = ebb(capsys, *words)

    assert 2 == code
    assert message in err
    assert "a" == json.loads(ebb(capsys, "get", "b")[1])["Rules"][0]["ID"]
