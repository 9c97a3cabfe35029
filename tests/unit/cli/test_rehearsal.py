"""A rehearsal root: its clock, its marks, and what it refuses to reach."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.services.machine_clock import set_machine_clock

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.bin_label import Label, label_from_json
from ebbtide.core.errors import BadInput, MetadataError, SafetyStop
from ebbtide.core.instant import parse_instant, system_clock
from ebbtide.engine.rehearsal import RehearsalClock, advance, begin_rehearsal, find_rehearsal
from ebbtide.state.database import check_local_database
from ebbtide.storage.network import LOCAL_ONLY, is_loopback
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry

NOON = parse_instant("2026-02-01T12:00:00Z")


@pytest.fixture
def rehearsal(here, monkeypatch):
    """Set up a folder for a rehearsal, at noon."""
    set_machine_clock(monkeypatch, NOON)
    assert 0 == run(["init", "--rehearsal"])
    return here


def ebb(capsys, *words):
    """Run a command; give its exit code, output and errors."""
    capsys.readouterr()
    code = run(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def configure(folder, text):
    """Write the configuration anew."""
    (folder / "ebbtide.toml").write_text(text)


def test_the_lake_of_a_rehearsal_is_marked_as_one(rehearsal, capsys):
    """The owner marker in the namespace says that the lake belongs to a rehearsal."""
    code, _, said = ebb(capsys, "lake", "create", "sales", "./lake")

    assert 0 == code, said
    assert json.loads(Path("lake/_lakefs/ebbtide-owner.json").read_text())["rehearsal"] is True


def test_time_passes_in_a_rehearsal_and_only_there(rehearsal, capsys):
    """The clock of a rehearsal goes forward as far as it is told, for all that is recorded."""
    _, shown, _ = ebb(capsys, "rehearsal", "show")
    advanced = [ebb(capsys, "rehearsal", "advance", one)[0] for one in ("40d", "12h", "90m")]
    _, plain, _ = ebb(capsys, "rehearsal", "show", "--json")
    ebb(capsys, "lake", "create", "sales", "./lake")
    state = State()

    assert "it is 2026-02-01T12:00:00Z in this rehearsal, 0s ahead" in shown
    assert [0, 0, 0] == advanced
    assert ("2026-03-14T01:30:00Z", 3_504_600, True) == tuple(
        json.loads(plain)[name] for name in ("now", "ahead_seconds", "rehearsal")
    )
    assert NOON + timedelta(days=40, hours=13, minutes=30) == state.clock()
    assert state.clock() == shared_catalog(state).repository("sales").created


@pytest.mark.parametrize("duration", ["-1d", "0d", "1", "d", "1.5h", "1y", "999999999w", "40000d", "١d"])
def test_bad_durations_change_nothing(rehearsal, capsys, duration):
    """A duration that is none, not above zero, or beyond a century is bad input."""
    code, _, said = ebb(capsys, "rehearsal", "advance", "--", duration)

    assert 2 == code, said
    assert timedelta() == find_rehearsal(rehearsal / ".ebbtide").ahead


def test_a_real_root_has_no_clock_to_advance(here, capsys):
    """A real root is no rehearsal, and nothing can advance its clock."""
    ebb(capsys, "init")
    codes = [ebb(capsys, *words)[0] for words in (("rehearsal", "advance", "1d"), ("rehearsal", "show"))]

    assert [2, 2] == codes
    assert State().clock is system_clock


def test_a_root_is_of_one_kind_for_ever(here, capsys):
    """Init turns no rehearsal into a real root, and no real root that holds something into a rehearsal."""
    ebb(capsys, "init", "real")
    ebb(capsys, "--config", "real/ebbtide.toml", "runs")
    ebb(capsys, "init", "--rehearsal", "learn")
    found = []
    for folder, options in (("real", ["--rehearsal"]), ("learn", []), ("learn", ["--rehearsal"])):
        (here / folder / "ebbtide.toml").unlink(missing_ok=True)
        found.append(ebb(capsys, "init", folder, *options)[0])

    assert [2, 2, 0] == found
    assert find_rehearsal(here / "real" / ".ebbtide") is None
    assert find_rehearsal(here / "learn" / ".ebbtide") is not None


def test_a_rehearsal_that_lost_its_file_is_not_taken_for_real(rehearsal, capsys):
    """The databases know their kind too: a rehearsal without its file, or with a damaged one, is refused."""
    ebb(capsys, "lake", "create", "sales", "./lake")
    file = rehearsal / ".ebbtide" / "rehearsal.json"
    text = file.read_text()
    file.write_text("{")
    damaged = ebb(capsys, "lake", "ls", "sales")
    file.unlink()
    lost = ebb(capsys, "runs")
    catalog = ebb(capsys, "lake", "log", "sales")
    file.write_text(text)
    back = ebb(capsys, "runs")

    assert (3, 3, 3, 0) == (damaged[0], lost[0], catalog[0], back[0])
    assert "the database belongs to a rehearsal, and this is a real root" in lost[2]


def test_a_real_database_cannot_be_rehearsed_with(here, capsys):
    """A rehearsal refuses the ledger and the catalog of a real root."""
    ebb(capsys, "init", "real")
    ebb(capsys, "--config", "real/ebbtide.toml", "lake", "create", "sales", "./lake")
    ebb(capsys, "init", "--rehearsal", "learn")
    found = []
    for which, words in (("ledger", ["runs"]), ("catalog", ["lake", "ls", "sales"])):
        configure(here / "learn", f'[{which}]\nurl = "sqlite:///{here}/real/.ebbtide/{which}.db"\n')
        found.append(ebb(capsys, "--config", "learn/ebbtide.toml", *words))
    tables = sqlite3.connect(here / "real" / ".ebbtide" / "ledger.db").execute(
        "SELECT name FROM sqlite_master"
    )

    assert [3, 3] == [code for code, _, _ in found], found
    assert "belongs to a real root, and this is a rehearsal" in found[0][2]
    assert "root_kind" not in {name for (name,) in tables}


FAR = """
store.endpoint = "https://127.0.0.1:1"
[bucket.locations.far]
url = "s3://far/x"
endpoint = "https://192.0.2.1"
"""
STORES = {
    "no endpoint is AWS": ("", ["lake", "create", "x", "s3://data/x"]),
    "a server elsewhere": (
        '[store]\nendpoint = "https://192.0.2.1"\n',
        ["lake", "create", "x", "s3://data/x"],
    ),
    "a bucket without an endpoint": ("", ["plan", "s3://data", "--rules", "rules.json"]),
    "a bucket elsewhere": ('[store]\nendpoint = "https://192.0.2.1"\n', ["recycle", "ls", "s3://data"]),
    "a location elsewhere": (FAR, ["plan", "s3://data", "--rules", "rules.json"]),
    "a registry elsewhere": ("", ["image", "scan", "oci://192.0.2.1:5000"]),
    "a registry whose name is unknown": ("", ["plan", "oci://registry.invalid"]),
    "a ledger elsewhere": ('[ledger]\nurl = "postgresql+psycopg://u:secret@192.0.2.1/x"\n', ["runs"]),
    "a catalog elsewhere": (
        '[catalog]\nurl = "postgresql+psycopg://u:secret@192.0.2.1/x"\n',
        ["lake", "ls", "x"],
    ),
    "a cluster": ('[spark]\nmaster = "spark://192.0.2.1:7077"\n', ["plan", "lake:sales"]),
}


@pytest.mark.parametrize("which", STORES)
def test_a_rehearsal_reaches_nothing_that_is_not_here(rehearsal, capsys, which):
    """Stores, locations, registries, databases and clusters elsewhere are refused before they are asked."""
    text, words = STORES[which]
    (rehearsal / "policy.json").write_text('{"raw": {"prefix": "raw/", "days": 3}}')
    (rehearsal / "rules.json").write_text(
        '{"Rules": [{"ID": "a", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}]}'
    )
    ebb(capsys, "lake", "create", "sales", "./lake")
    ebb(capsys, "lake", "policy", "set", "sales", "policy.json")
    configure(rehearsal, text)
    code, _, said = ebb(capsys, *words)

    assert 3 == code, said
    assert "is not on this machine" in said
    assert "secret" not in said


def test_executors_refuse_too():
    """A store or registry that is told to be local refuses by itself, wherever it is opened."""
    with pytest.raises(SafetyStop, match="not on this machine"):
        open_store(StoreSpec("s3://data", {"endpoint": "https://192.0.2.1", LOCAL_ONLY: "yes"}))
    with pytest.raises(SafetyStop, match="not on this machine"):
        open_registry(RegistrySpec("oci://192.0.2.1", {LOCAL_ONLY: "yes"}))
    open_store(StoreSpec("s3://data", {"endpoint": "https://127.0.0.1:1", LOCAL_ONLY: "yes"}))
    open_registry(RegistrySpec("oci://127.0.0.1:1", {LOCAL_ONLY: "yes"})).close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("registry.invalid", False),
        ("", False),
    ],
)
def test_what_is_this_machine(host, expected):
    """Only loopback addresses, and names that mean nothing else, are this machine."""
    assert expected is is_loopback(host)


@pytest.mark.parametrize(
    ("url", "environment", "local"),
    [
        ("sqlite:////tmp/x.db", "", True),
        ("postgresql+psycopg://u@127.0.0.1/x", "", True),
        ("postgresql+psycopg://u@localhost:5433/x", "192.0.2.1", True),
        ("postgresql+psycopg:///x?host=/var/run/postgresql", "", True),
        ("postgresql+psycopg:///x", "", True),
        ("postgresql+psycopg:///x", "192.0.2.1", False),
        ("postgresql+psycopg://u@192.0.2.1/x", "", False),
        ("postgresql+psycopg://u@127.0.0.1/x?hostaddr=192.0.2.1", "", False),
        ("postgresql+psycopg:///x?host=127.0.0.1&host=192.0.2.1", "", False),
        ("postgresql+psycopg:///x?host=127.0.0.1,192.0.2.1", "", False),
        ("postgresql+psycopg:///x?service=production", "", False),
    ],
)
def test_which_databases_are_local(url, environment, local, monkeypatch):
    """A database is local if every host that its client may connect to is this machine."""
    monkeypatch.setenv("PGHOST", environment)
    try:
        check_local_database(url)
        found = True
    except SafetyStop:
        found = False

    assert local is found


def test_the_clock_never_goes_back_and_loses_no_step(tmp_path):
    """Of several who advance the clock at once each one counts; what cannot be read stops."""
    root = tmp_path / "root"
    begin_rehearsal(root, NOON)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: advance(root, timedelta(hours=1)), range(20)))
    clock = RehearsalClock(root, lambda: NOON)

    assert NOON + timedelta(hours=20) == clock()
    with pytest.raises(BadInput, match="only goes forward"):
        advance(root, timedelta(days=-1))
    (root / "rehearsal.json").unlink()
    with pytest.raises(MetadataError, match="is gone"):
        clock()


def test_every_screen_says_that_it_is_a_rehearsal(rehearsal, capsys):
    """Each command says so in a line on standard error, and in the objects that it prints as JSON."""
    (rehearsal / "images").mkdir()
    ebb(capsys, "lake", "create", "sales", "./lake")
    ebb(capsys, "image", "role", "grant", "oci-layout:images", "bob", "purge-policy-writer")
    commands = (
        ["lake", "ls", "sales"],
        ["runs"],
        ["image", "log", "oci-layout:images"],
        ["recycle", "ls", "lake:sales"],
    )
    lines = [ebb(capsys, *words)[2] for words in commands]
    plain = json.loads(ebb(capsys, "recycle", "ls", "lake:sales", "--json")[1])
    log = ebb(capsys, "image", "log", "oci-layout:images", "--json")[1]

    assert all(said.startswith("rehearsal: it is 2026-02-01T12:00:00Z, 0s ahead of") for said in lines), lines
    assert plain["rehearsal"] is True
    assert log
    assert all(json.loads(line)["by"].endswith(" (rehearsal)") for line in log.splitlines())


def test_the_label_in_the_bin_is_marked():
    """What a rehearsal set aside says so in the bin; other labels are as they always were."""
    label = Label("000001-a", 1, "lake:sales", "uid", "lifecycle", "hash", 14, NOON)
    marked = replace(label, rehearsal=True)

    assert "rehearsal" not in json.loads(label.to_json())
    assert [label, marked] == [label_from_json(one.to_json(), "000001-a") for one in (label, marked)]
