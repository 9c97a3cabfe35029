"""`ebb image`: policies, marks, roles and the log as a user meets them, on a folder and a real registry."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
import yaml
from tests.services.image_kit import fresh_repository, push_image, push_index
from tests.services.machine_clock import set_machine_clock

from ebbtide.cli.main import run
from ebbtide.targets.oci.client.registry import open_registry

DOCUMENT = {
    "policies": [{"name": "Prod", "months": 6, "can_delete_prior": False}],
    "assign": [{"repository": "team/*", "tag": "v.*", "policy": "Prod"}],
    "keep_newest": [{"repository": "*", "tag": "dev-.*", "count": 3}],
}


@pytest.fixture
def ebb(tmp_path, monkeypatch, capsys):
    """Run commands as some user at some time in a folder of their own; give exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words, by="teja", now="2018-01-01"):
        monkeypatch.setenv("EBBTIDE_USER", by)
        set_machine_clock(monkeypatch, now)
        capsys.readouterr()
        code = run(["image", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def answer(ebb):
    """Run a command that must succeed, and give what it answers as JSON."""

    def call(*words, **how):
        code, out, error = ebb(*words, "--json", **how)
        assert (0, "") == (code, error)
        return json.loads(out)

    return call


@pytest.fixture
def entries(ebb):
    """Read the log of a registry."""

    def call(*words):
        code, out, _ = ebb("log", *words, "--json")
        assert 0 == code
        return [json.loads(line) for line in out.splitlines()]

    return call


@pytest.fixture
def folder(tmp_path):
    """Make a folder of layouts with an image under two tags."""
    (tmp_path / "images").mkdir()
    url = f"oci-layout:{tmp_path}/images"
    with closing(open_registry(url)) as opened:
        pushed = push_image(opened, "team/app", ["v1", "latest"])
        push_index(opened, "team/app", ["multi"], [pushed])
    return url, pushed.digest


@pytest.fixture(params=["folder", "server"])
def image(request):
    """Give an image in a folder and in Debian's registry: the registry, its repository, and the digest."""
    if request.param == "folder":
        url, digest = request.getfixturevalue("folder")
        return url, "team/app", digest, f"{url}//team/app"
    url, repository = request.getfixturevalue("registry").url, fresh_repository()
    with closing(open_registry(url)) as opened:
        digest = push_image(opened, repository, ["v1", "latest"]).digest
    return url, repository, digest, f"{url}/{repository}"


def test_requirement_2_0_policies_of_a_registry(answer, entries, folder):
    """Policies are listed, added, changed, renamed and removed, and each answer has before and after."""
    url, _ = folder
    added = answer("policy", "set", url, "Prod", "--months", "6", "--pin")["changes"]
    changed = answer("policy", "set", url, "prod", "--years", "1", "--no-recycle")["changes"]
    renamed = answer("policy", "rename", url, "Prod", "Live")["changes"]
    listed = {row["name"]: row for row in answer("policy", "ls", url)}
    removed = answer("policy", "rm", url, "live")["changes"]

    assert [(None, 6)] == [(one["before"], one["after"]["months"]) for one in added]
    assert (6, 1, False) == (
        changed[0]["before"]["months"],
        changed[0]["after"]["years"],
        changed[0]["after"]["can_delete_prior"],
    )
    assert ["rename policy to Live"] == [one["what"] for one in renamed]
    assert {"Default", "Recycle Bin", "Quarantine Failed", "Untagged", "Released", "Live"} == {*listed}
    assert (True, None) == (listed["Default"]["system"], listed["Default"]["updated_by"])
    assert [("Live", None)] == [(one["subject"], one["after"]) for one in removed]
    assert {"teja"} == {entry["by"] for entry in entries(url)}


def test_requirement_2_0_load_replaces_the_whole_document(ebb, answer, folder, tmp_path):
    """A file is checked, replaces everything, and what changes is shown; what is shown can be loaded."""
    url, _ = folder
    (tmp_path / "p.json").write_text(json.dumps(DOCUMENT))
    answer("policy", "set", url, "Old", "--days", "1")
    loaded = answer("policy", "load", url, "p.json")["changes"]
    code, shown, _ = ebb("policy", "show", url, "--yaml")
    (tmp_path / "again.yaml").write_text(shown)
    again = ebb("policy", "load", url, "again.yaml")

    assert ["Old", "Prod", "assign rules", "keep_newest rules"] == [one["subject"] for one in loaded]
    assert (0, DOCUMENT["assign"]) == (code, yaml.safe_load(shown)["assign"])
    assert (0, "nothing is different\n", "") == again
    assert yaml.safe_load(shown) == answer("policy", "show", url)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["policy", "rm", "{url}", "Default"], "system policy"),
        (["policy", "rename", "{url}", "untagged", "Mine"], "system policy"),
        (["policy", "rm", "{url}", "Nothing"], "there is no policy 'Nothing'"),
        (["policy", "set", "{url}", "New"], "has no period"),
        (["policy", "set", "{url}", "New", "--days", "0"], "days is 0"),
        (["policy", "set", "{url}", "New", "--days", "1", "--never"], "more than one period"),
        (["policy", "set", "nonsense", "New", "--days", "1"], "is not the address of a registry"),
        (["policy", "load", "{url}", "nowhere.json"], "cannot be read"),
        (["policy", "load", "{url}", "bad.json"], "no policy 'Gone'"),
        (["policy", "show", "{url}", "--yaml", "--json"], "leave one of them out"),
        (["assign", "{url}//team/app:v1", "Relased"], "did you mean 'Released'"),
        (["assign", "{url}//team/app:v1", "Released", "--until", "2017-01-01"], "is not ahead"),
        (["assign", "{url}//team/app:v1", "Released", "--until", "soon"], "is not a time"),
        (["assign", "{url}//team/app:v2", "Released"], "there is no tag v2"),
        (["assign", "{url}//team/other:v1", "Released"], "other"),
        (["pin", "{url}//team/app@sha256:" + "0" * 64], "0000"),
        (["pin", "{url}//team/app"], "neither tag nor digest"),
        (["pin", "{url}x//team/app:v1"], "there is no folder"),
        (["quarantine", "{url}//team/app:v1"], "give --pending, --failed or --passed"),
        (["quarantine", "{url}//team/app:v1", "--failed", "--passed"], "not clear"),
        (["log", "{url}", "oci://elsewhere.example/team/app:v1"], "is not in"),
        (["delete", "{url}//team/app:nosuch", "--yes"], "team/app:nosuch does not exist"),
        (["delete", "{url}//team/app@sha256:" + "0" * 64, "--yes"], "does not exist"),
        (["delete", "{url}//team/none:v1", "--yes"], "does not exist"),
        (["delete", "{url}", "--older-than", "999999d"], "from 1h to 36500d"),
        (["delete", "{url}", "--older-than", "0d"], "'0d' is not an age"),
        (["delete", "{url}", "--older-than", "-1d"], "'-1d' is not an age"),
        (["delete", "{url}", "--older-than", "1e9y"], "'1e9y' is not an age"),
        (["delete", "{url}", "--older-than", "9999999999w"], "from 1h to 36500d"),
        (["role", "grant", "{url}", "ines", "boss"], "is not a role"),
        (["role", "revoke", "{url}", "ines", "purge-policy-writer"], "does not have"),
    ],
)
def test_bad_input_is_exit_code_2_and_changes_nothing(ebb, answer, entries, folder, tmp_path, words, said):
    """Every error says what is wrong in words; no mark, policy or role comes of it."""
    url, _ = folder
    (tmp_path / "bad.json").write_text('{"assign": [{"repository": "*", "tag": ".*", "policy": "Gone"}]}')
    before = answer("policy", "show", url)
    code, out, error = ebb(*(word.format(url=url) for word in words))

    assert (2, "") == (code, out)
    assert said in error
    assert "Traceback" not in error
    assert (before, []) == (answer("policy", "show", url), answer("role", "ls", url))
    assert all(entry["refused"] for entry in entries(url))


def test_requirement_3_0_pin_and_unpin(answer, image):
    """A tag and a digest are pinned until a date and unpinned, with the values before and after."""
    _, repository, digest, name = image
    pinned = answer("pin", f"{name}:v1", "--until", "2019-01-01")
    by_digest = answer("pin", f"{name}@{digest}", "--until", "2019-01-01")
    freed = answer("unpin", f"{name}:v1", now="2019-06-01")

    assert (f"{repository}:v1", digest, None) == (pinned["image"], pinned["digest"], pinned["before"])
    assert ("2019-01-01T00:00:00Z", False) == (
        pinned["after"]["expires_at"],
        pinned["after"]["can_delete_prior"],
    )
    assert f"{repository}@{digest}" == by_digest["image"]
    assert pinned["after"] == freed["before"]
    assert ("Default", "2019-06-06T00:00:00Z", True) == (
        freed["after"]["policy"],
        freed["after"]["expires_at"],
        freed["after"]["can_delete_prior"],
    )


def test_requirement_4_0_never_delete(answer, image):
    """Without a date the pin is for ever."""
    *_, name = image

    assert ("never", False) == (
        (after := answer("pin", f"{name}:v1")["after"])["expires_at"],
        after["can_delete_prior"],
    )


def test_requirement_5_0_delete_by(answer, image):
    """A policy without a pin and with a date: it may go sooner, and goes at the date."""
    *_, name = image
    after = answer("assign", f"{name}:v1", "Default", "--until", "2018-03-01")["after"]

    assert ("Default", "2018-03-01T00:00:00Z", True) == (
        after["policy"],
        after["expires_at"],
        after["can_delete_prior"],
    )


def test_scenario_3_0_and_4_2_policy_update_through_the_commands(answer, image):
    """Released for six months; a year from February on counts only for what is assigned again."""
    url, *_, name = image
    answer("policy", "set", url, "Released", "--months", "6")
    first = answer("assign", f"{name}:v1", "Released")["after"]
    answer("policy", "set", url, "Released", "--years", "1", now="2018-02-01")
    again = answer("assign", f"{name}:v1", "Released", now="2018-02-02")
    answer("policy", "set", url, "Released", "--days", "180", now="2018-02-03")

    assert ("2018-07-01T00:00:00Z", False) == (first["expires_at"], first["can_delete_prior"])
    assert first == again["before"]
    assert "2019-02-02T00:00:00Z" == again["after"]["expires_at"]


def test_scenario_2_0_quarantine_is_of_the_manifest(answer, image):
    """A name that is given is that of a manifest: what fails gets the policy, what passes is as before."""
    _, repository, digest, name = image
    pending = answer("quarantine", f"{name}:v1", "--pending")
    failed = answer("quarantine", f"{name}:latest", "--failed", now="2018-01-08")
    passed = answer("quarantine", f"{name}@{digest}", "--passed", now="2018-01-09")

    assert {f"{repository}@{digest}"} == {one["image"] for one in (pending, failed, passed)}
    assert ("pending", "2018-01-01T00:00:00Z") == (
        pending["after"]["quarantine"],
        pending["after"]["quarantine_since"],
    )
    assert ("failed", "Quarantine Failed", "2018-01-13T00:00:00Z") == (
        failed["after"]["quarantine"],
        failed["after"]["policy"],
        failed["after"]["expires_at"],
    )
    assert passed["after"] is None


def test_requirement_10_0_the_log(ebb, entries, folder):
    """The log tells newest first who did what, also what was refused; it can be asked about one thing."""
    url, digest = folder
    ebb("assign", f"{url}//team/app:v1", "Released", by="alice")
    ebb("pin", f"{url}//team/app@{digest}", by="bob", now="2018-01-02")
    ebb("policy", "rm", url, "Default", by="mallory", now="2018-01-03")
    whole = entries(url)
    code, text, _ = ebb("log", url, "--limit", "2")

    assert [
        ("2018-01-03T00:00:00Z", "mallory", "policy", "Default"),
        ("2018-01-02T00:00:00Z", "bob", "image", f"team/app@{digest}"),
        ("2018-01-01T00:00:00Z", "alice", "image", "team/app:v1"),
    ] == [(one["at"], one["by"], one["kind"], one["subject"]) for one in whole]
    assert [True, False, False] == [bool(one["refused"]) for one in whole]
    assert [whole[2]] == entries(url, f"{url}//team/app:v1") == entries(url, "team/app:v1")
    assert 0 == code
    assert "refused: policy 'Default' cannot be removed" in text
    assert "alice" not in text


def test_requirement_11_0_roles(ebb, answer, entries, folder):
    """From the first grant on only those may who have the role; a refusal is exit code 2 and in the log."""
    url, _ = folder
    first = answer("role", "grant", url, "pia", "acr-purge-policy-writer", by="root")
    answer("role", "revoke", url, "root", "purge-policy-writer", by="root")
    answer("role", "grant", url, "ines", "image-purge-writer", by="pia")
    refused = [
        ebb("policy", "set", url, "Released", "--days", "1", by="ines"),
        ebb("pin", f"{url}//team/app:v1", by="pia"),
        ebb("unpin", f"{url}//team/app:v1", by="mallory"),
        ebb("role", "grant", url, "mallory", "purge-policy-writer", by="mallory"),
    ]
    allowed = ebb("pin", f"{url}//team/app:v1", by="ines"), ebb("policy", "rm", url, "Released", by="pia")

    assert ([], ["purge-policy-writer"]) == (first["before"], first["after"])
    assert {"root": ["purge-policy-writer"]} == first["also"]
    assert [2, 2, 2, 2] == [code for code, _, _ in refused]
    assert all("may not" in error and "needs the role" in error for _, _, error in refused)
    assert [0, 0] == [code for code, _, _ in allowed]
    assert 4 == sum(bool(entry["refused"]) for entry in entries(url))
    assert [("ines", "image-purge-writer"), ("pia", "purge-policy-writer")] == [
        (one["user"], one["role"]) for one in answer("role", "ls", url)
    ]


def test_a_role_in_all_registries(ebb, answer, folder):
    """A star is every registry."""
    url, _ = folder
    answer("role", "grant", "*", "pia", "purge-policy-writer")
    code, text, _ = ebb("role", "ls", url)

    assert 0 == code
    assert "all registries" in text
    assert 2 == ebb("policy", "set", url, "Released", "--days", "1", by="ines")[0]


def test_a_registry_that_does_not_answer(ebb, entries):
    """If nobody can say whether the image exists, nothing is marked, and the command has failed."""
    url = "oci://127.0.0.1:1"
    code, out, error = ebb("pin", f"{url}/team/app:v1")

    assert (1, "") == (code, out)
    assert "the registry does not answer at 127.0.0.1:1" in error
    assert [] == entries(url)


def test_words_for_people(ebb, folder):
    """Without --json each command says in lines what was and what is."""
    url, digest = folder
    pinned = ebb("pin", f"{url}//team/app:v1", "--until", "2019-01-01")
    unpinned = ebb("unpin", f"{url}//team/app:v1")
    policy = ebb("policy", "set", url, "Released", "--never", "--no-pin")
    listed = ebb("policy", "ls", url)
    roles = ebb("role", "ls", url)
    nothing = ebb("log", url, "team/app:v9")

    assert pinned[1].startswith("team/app:v1: pin until 2019-01-01T00:00:00Z\n")
    assert f"digest: {digest}" in pinned[1]
    assert "can_delete_prior: - -> false" in pinned[1]
    assert "expires_at: 2019-01-01T00:00:00Z -> 2018-01-06T00:00:00Z" in unpinned[1]
    assert "before: name: Released, days: 180" in policy[1]
    assert "after:  name: Released, never: true, can_delete_prior: true" in policy[1]
    assert "teja 2018-01-01T00:00:00Z" in listed[1]
    assert "there are no roles here" in roles[1]
    assert "nothing about it" in nothing[1]
    assert [0] * 6 == [code for code, _, _ in (pinned, unpinned, policy, listed, roles, nothing)]
