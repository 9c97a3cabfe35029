"""`ebb image recycle`: listing, restoring and emptying the bin from the command line."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import typer
from tests.services.bin_kit import DAY, NOON, entry_of, push_team, recycle, recycle_all, tags_of
from tests.services.image_kit import manifest_of, push_image
from tests.services.machine_clock import set_machine_clock
from tests.services.registry import RegistryServer

from ebbtide.cli.image_recycle import app
from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.errors import EbbtideError
from ebbtide.state.runs import RunState
from ebbtide.targets.oci.bin.contents import entries
from ebbtide.targets.oci.bin.moves import set_aside
from ebbtide.targets.oci.client.address import registry_uid
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.manifest import OCI_INDEX
from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry
from ebbtide.targets.oci.kind import image_records
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.purge.last_scan import RESTORED
from ebbtide.targets.oci.records.mark_operations import pinning
from ebbtide.targets.oci.records.model import Mark, Role, Target

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DIGEST = "sha256:" + "0" * 64


class Terminal(io.StringIO):
    """Somebody at a terminal, who types this."""

    def isatty(self) -> bool:
        """Say that somebody is there."""
        return True


def ebb(*arguments: str) -> tuple[int, str]:
    """Run `ebb image recycle`; give the exit code, and the error if there is one."""
    try:
        typer.main.get_command(app).main(list(arguments), standalone_mode=False, obj=State())
    except EbbtideError as error:
        return error.exit_code, str(error)
    except typer.Abort:
        return 1, "aborted"
    return 0, ""


@pytest.fixture
def layout(here, monkeypatch) -> ImageLayout:
    """Open a folder of layouts; it is two days after noon."""
    set_machine_clock(monkeypatch, NOON + 2 * DAY)
    (here / "images").mkdir()
    return ImageLayout(RegistrySpec(f"oci-layout:{here}/images"))


def test_list(layout: ImageLayout, capsys):
    """The list shows every image in the bin, for people and for programs, of all repositories or of one."""
    for name in ("app", "team/tool"):
        recycle(layout, entry_of(name, push_image(layout, name, ["v1"], name=name), ["v1"]))
    code, _ = ebb("list", str(layout.spec.url))
    shown = capsys.readouterr().out
    ebb("list", str(layout.spec.url), "--json")
    everything = json.loads(capsys.readouterr().out)
    ebb("list", f"{layout.spec.url}//team/tool", "--json")
    one = json.loads(capsys.readouterr().out)

    assert 0 == code
    assert all(word in shown for word in ("app@sha256:", "team/tool@sha256:", "v1", "2 images", "expired"))
    assert ["app", "team/tool"] == [row["repository"] for row in everything]
    assert ["team/tool"] == [row["repository"] for row in one]
    assert "2026-05-19T12:00:00Z" == one[0]["expires_at"]
    assert "v1" == one[0]["tags"][0]["name"]


def test_a_damaged_entry_does_not_hide_others(layout: ImageLayout, capsys):
    """The list shows what it can, then names what it cannot read, and exits 3; emptying leaves that alone."""
    good = recycle(layout, entry_of("app", push_image(layout, "app", ["good"], name="good"), ["good"]))
    bad = recycle(layout, entry_of("app", push_image(layout, "app", ["bad"], name="bad"), ["bad"]))
    document = json.loads(layout.manifest(bad.bin, bad.tag).body)
    document["annotations"] = {}
    layout.put_manifest(bad.bin, bad.tag, manifest_of(document, OCI_INDEX))
    code, said = ebb("list", str(layout.spec.url))
    shown = capsys.readouterr().out
    emptied = ebb("empty", str(layout.spec.url), "--yes")
    refused = ebb("restore", f"{layout.spec.url}//app@{bad.digest}")
    restored = ebb("restore", f"{layout.spec.url}//app@{bad.digest}", "--to", "saved")

    assert 3 == code
    assert bad.tag in said
    assert good.digest in shown
    assert (3, 3) == (emptied[0], refused[0])
    assert [] == list(entries(layout, "app", lambda _error: None))
    assert 4 == restored[0]
    assert {"saved": bad.digest} == tags_of(layout, "app")


def test_restore_by_tag_and_by_digest(layout: ImageLayout, capsys):
    """An image comes back by the name that it had, with its signatures, and leaves the bin."""
    team = push_team(layout, "team/app")
    before = tags_of(layout, "team/app")
    recycle_all(layout, team.entries)
    by_tag = ebb("restore", f"{layout.spec.url}//team/app:latest")
    shown = capsys.readouterr().out
    by_digest = ebb("restore", f"{layout.spec.url}//team/app@{team.sibling.digest}", "--json")
    row = json.loads(capsys.readouterr().out)[0]

    assert ((0, ""), (0, "")) == (by_tag, by_digest)
    assert f"restored team/app@{team.multi.digest} as latest, v1" in shown
    assert team.cosign.digest in shown
    assert (["v2"], {}, False) == (row["tags"], row["taken"], row["left_in_bin"])
    assert before == tags_of(layout, "team/app")


def test_restore_under_another_name(layout: ImageLayout, capsys):
    """If the tag is taken, the error says what stands there, and --to gives the image another."""
    old = push_image(layout, "app", ["v1"], name="old")
    recycle(layout, entry_of("app", old, ["v1"]))
    new = push_image(layout, "app", ["v1"], name="new")
    code, said = ebb("restore", f"{layout.spec.url}//app:v1")
    renamed = ebb("restore", f"{layout.spec.url}//app:v1", "--to", "v1-old")

    assert (2, True) == (code, new.digest in said)
    assert (0, "") == renamed
    assert {"v1": new.digest, "v1-old": old.digest} == tags_of(layout, "app")


def test_a_tag_that_several_images_had(layout: ImageLayout):
    """If several images in the bin had a tag, their digests are named and none is chosen."""
    digests = []
    for name in ("one", "two"):
        pushed = push_image(layout, "app", ["v1"], name=name)
        digests.append(recycle(layout, entry_of("app", pushed, ["v1"])).digest)
    code, said = ebb("restore", f"{layout.spec.url}//app:v1")

    assert 2 == code
    assert all(digest in said for digest in digests)


def test_what_is_not_in_the_bin(layout: ImageLayout):
    """A name that is not in the bin is bad input, with the way to find out what is."""
    recycle(layout, entry_of("app", push_image(layout, "app", ["v1"]), ["v1"]))

    for ref in ("app:v2", f"app@{DIGEST}"):
        code, said = ebb("restore", f"{layout.spec.url}//{ref}")
        assert (2, True) == (code, "recycle list" in said)
    assert 2 == ebb("restore", layout.spec.url, "--all-of", "99")[0]
    assert 2 == ebb("restore", layout.spec.url, "--all-of", "7", "--to", "x")[0]


def test_all_of_a_run(layout: ImageLayout, capsys):
    """All that a run set aside comes back; what cannot is named, and the exit code is 4."""
    team = push_team(layout, "app")
    before = tags_of(layout, "app")
    recycle_all(layout, team.entries)
    other = recycle(layout, entry_of("other", push_image(layout, "other", ["x"], name="x"), ["x"], run_id=8))
    whole_run = ebb("restore", layout.spec.url, "--all-of", "7", "--json")
    rows = json.loads(capsys.readouterr().out)
    push_image(layout, "other", ["x"], name="y")
    code, said = ebb("restore", layout.spec.url, "--all-of", "8")

    assert (0, "") == whole_run
    assert len(team.entries) == len(rows)
    assert before == tags_of(layout, "app")
    assert (4, True) == (code, other.digest in said)
    assert [other] == list(entries(layout))


def test_some_tags_are_taken(layout: ImageLayout, capsys):
    """A tag that is taken is told, and the exit code says that it was not everything."""
    old = push_image(layout, "app", ["v1", "v2"], name="old")
    recycle(layout, entry_of("app", old, ["v1", "v2"]))
    new = push_image(layout, "app", ["v1"], name="new")
    code, said = ebb("restore", f"{layout.spec.url}//app:v2")

    assert (4, True) == (code, f"v1 stands for {new.digest}" in said)
    assert "still in the recycle bin" in capsys.readouterr().out
    assert {"v1": new.digest, "v2": old.digest} == tags_of(layout, "app")


def test_requirement_7_0_empty_asks(layout: ImageLayout, capsys, monkeypatch):
    """Emptying says how many images and bytes go; a no, or nobody there, leaves all."""
    entry = recycle(layout, entry_of("app", push_image(layout, "app", ["v1"]), ["v1"]))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    declined = ebb("empty", layout.spec.url)
    asked = capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    nobody = ebb("empty", layout.spec.url)
    left = list(entries(layout))
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    agreed = ebb("empty", layout.spec.url)

    assert (1, 2, 0) == (declined[0], nobody[0], agreed[0])
    assert "1 image (up to " in asked
    assert [entry] == left
    assert [] == list(entries(layout))


def test_requirement_7_0_older_than(layout: ImageLayout, capsys):
    """Only what has been in the bin for so many days goes; the day itself counts."""
    for age in (1, 2, 3):
        pushed = push_image(layout, "app", [f"d{age}"], name=str(age))
        recycle(layout, entry_of("app", pushed, [f"d{age}"], NOON + (2 - age) * DAY))
    code, _ = ebb("empty", layout.spec.url, "--older-than", "2", "--yes", "--json")
    said = json.loads(capsys.readouterr().out)
    gone = said["deleted"]

    assert (0, []) == (code, said["failed"])
    assert 2 == said["outcomes"]["deleted"]["objects"]
    assert RunState.SUCCEEDED == State().ledger.run(said["run_id"]).state
    assert {"d2", "d3"} == {row["tags"][0]["name"] for row in gone}
    assert [("d1",)] == [entry.tag_names for entry in entries(layout)]


def test_nothing_beyond_what_was_listed(layout: ImageLayout, capsys, monkeypatch):
    """What comes into the bin, or is set aside again, after the question stays, and that is told."""
    first = push_image(layout, "app", ["v1"], name="first")
    entry = set_aside(layout, entry_of("app", first, ["v1"]))
    gone = set_aside(layout, entry_of("app", push_image(layout, "app", ["v3"], name="third"), ["v3"]))

    class Slow(Terminal):
        """Somebody who says yes only after a purge has run."""

        def readline(self, *args: int) -> str:
            """Let the purge run first."""
            set_aside(layout, replace(entry, recycled_at=NOON + DAY))
            set_aside(layout, entry_of("app", push_image(layout, "app", ["v2"], name="second"), ["v2"]))
            return super().readline(*args)

    monkeypatch.setattr("sys.stdin", Slow("y\n"))
    code, said = ebb("empty", layout.spec.url)

    assert (4, True) == (code, "set aside again" in said)
    assert {("v1",), ("v2",)} == {left.tag_names for left in entries(layout)}
    assert gone.digest not in {left.digest for left in entries(layout)}


def test_who_has_no_role_does_not_apply_the_emptying_that_another_user_planned(layout, monkeypatch):
    """A plan that empties the bin by hand needs the role when it is applied, too; the expiry does not."""
    entry = recycle(layout, entry_of("app", push_image(layout, "app", ["v1"]), ["v1"]))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    unconfirmed = ebb("empty", layout.spec.url)
    image_records(State()).grant(registry_uid(str(layout.spec.url)), "ines", Role.IMAGE_WRITER, "ines")
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    refused = run(["apply", "1", "--yes", "--override-breaker"])

    assert (2, 2) == (unconfirmed[0], refused)
    assert [entry] == list(entries(layout))


def test_an_empty_bin(layout: ImageLayout, capsys):
    """A bin that has nothing in it is listed and emptied without a question."""
    push_image(layout, "app", ["v1"])

    assert (0, "") == ebb("list", layout.spec.url)
    assert (0, "") == ebb("empty", layout.spec.url)
    assert "0 images" in capsys.readouterr().out


def test_a_server(registry: RegistryServer, here, capsys):
    """The same on a server: list, restore by tag, and empty one repository."""
    images = open_registry(registry.url)
    name = f"cli{here.name.replace('_', '').lower()}/app"
    for tag in ("v1", "v2"):
        recycle(images, entry_of(name, push_image(images, name, [tag], name=tag), [tag]))
    listed = ebb("list", f"{registry.url}/{name}", "--json")
    rows = json.loads(capsys.readouterr().out)
    restored = ebb("restore", f"{registry.url}/{name}:v1")
    emptied = ebb("empty", f"{registry.url}/ebbtide-recycle/{name}", "--yes")

    assert [(0, "")] * 3 == [listed, restored, emptied]
    assert 2 == len(rows)
    assert ["v1"] == list(images.tags(name))
    assert [] == list(entries(images, name))


def test_the_common_commands_take_registries(layout: ImageLayout, capsys):
    """`ebb recycle ls`, `ebb restore` and `ebb recycle empty` do what `ebb image recycle` does."""
    for name in ("app", "tool"):
        recycle(layout, entry_of(name, push_image(layout, name, ["v1"], name=name), ["v1"]))
    where = str(layout.spec.url)
    codes = [run(["recycle", "ls", where, "--json"])]
    listed = json.loads(capsys.readouterr().out)
    codes.append(run(["restore", f"{where}//app:v1"]))
    restored = capsys.readouterr().out
    codes.append(run(["recycle", "empty", where, "--yes", "--json"]))
    emptied = json.loads(capsys.readouterr().out)

    assert [0, 0, 0] == codes
    assert ["app", "tool"] == [row["repository"] for row in listed]
    assert "restored app@sha256:" in restored
    assert ["tool"] == [row["repository"] for row in emptied["deleted"]]
    assert 2 == run(["restore", f"{where}//app:v1", "another"])


def test_a_restored_image_is_assigned_its_policy_again(layout: ImageLayout, capsys):
    """A restore prints the new date, counted from that day, and the log has the values before and after."""
    recycle(layout, entry_of("app", push_image(layout, "app", ["v1"], name="one"), ["v1"]))
    records = image_records(State())
    uid = registry_uid(str(layout.spec.url))
    target = Target("app", "v1", next(iter(entries(layout, "app"))).digest)
    old = Assigned("Default", NOON, can_delete_prior=True, recycle=True)
    records.put_marks(uid, [Mark(target, old)], "teja", "assigned long ago")
    ebb("restore", f"{layout.spec.url}//app:v1", "--json")
    [done] = json.loads(capsys.readouterr().out)
    mark = records.mark(uid, target)
    entry = next(entry for entry in records.log(uid) if entry.what == RESTORED)

    assert {"app:v1": "2026-05-11T12:00:00Z"} == done["expires_at"]
    assert NOON + 7 * DAY == mark.assigned.expires_at
    assert ("2026-05-04T12:00:00Z", "2026-05-11T12:00:00Z") == (
        entry.before["expires_at"],
        entry.after["expires_at"],
    )


def test_a_restored_image_without_a_tag(layout: ImageLayout, capsys):
    """It is untagged from the day of the restore on."""
    pushed = push_image(layout, "app", name="one")
    recycle(layout, entry_of("app", pushed))
    code, _ = ebb("restore", f"{layout.spec.url}//app@{pushed.digest}")

    assert 0 == code
    assert f"app@{pushed.digest} expires at 2026-05-11T12:00:00Z" in capsys.readouterr().out


def test_a_restored_image_keeps_its_pin(layout: ImageLayout, capsys):
    """What was pinned for ever stays so."""
    pushed = push_image(layout, "app", ["v1"], name="one")
    recycle(layout, entry_of("app", pushed, ["v1"]))
    records, uid = image_records(State()), registry_uid(str(layout.spec.url))
    records.change_mark(uid, Target("app", "v1", pushed.digest), pinning(), "teja", "pin")
    ebb("restore", f"{layout.spec.url}//app:v1", "--json")
    [done] = json.loads(capsys.readouterr().out)

    assert {"app:v1": "never"} == done["expires_at"]
    assert records.mark(uid, Target("app", "v1", pushed.digest)).is_pinned(NOON + 9999 * DAY)
