"""Sessions for little work: when they are tuned, and what a user's own settings change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake
from tests.services.machine_clock import set_machine_clock

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.errors import Busy, EnvironmentProblem
from ebbtide.engine.spark import latency
from ebbtide.engine.spark.latency import SMALL, is_small, java_options_for_small, settings_for_small, widen
from ebbtide.engine.spark.session import SparkOptions, _sized
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED
from ebbtide.engine.workload import items_to_apply, items_to_plan
from ebbtide.state.locks import target_lock
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.collector import RepositoryCollector
from ebbtide.targets.repository.rules import SweepRules, stored_rules

ORDINARY = {"spark.sql.shuffle.partitions": "8"}
PARTITIONS = "spark.sql.shuffle.partitions"
ADAPTIVE = "spark.sql.adaptive.enabled"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_only_what_is_known_to_be_little_is_tuned_for():
    """An unknown size and a large one are not small."""
    expected = [True, True, False, False]

    assert expected == [is_small(items) for items in (0, SMALL, SMALL + 1, None)]


def test_a_small_local_session_starts_soon():
    """Little work on this machine gets few partitions, no adaptive execution and the quick compiler."""
    found = _sized(SparkOptions(is_small=True), None)

    assert ("2", "false") == (found[PARTITIONS], found[ADAPTIVE])
    assert "-XX:TieredStopAtLevel=1" in found["spark.driver.extraJavaOptions"].split()


@pytest.mark.parametrize("options", [SparkOptions(), SparkOptions(master="spark://host:1", is_small=True)])
def test_other_sessions_are_not_tuned(options):
    """Neither work of unknown size nor a cluster gets the settings for little work."""
    found = _sized(options, None)

    assert ADAPTIVE not in found
    assert "TieredStopAtLevel" not in found["spark.driver.extraJavaOptions"]


def test_settings_of_users_win():
    """What a user has set is not tuned, nor put back when the work turns out to be large."""
    given = {ADAPTIVE: "false", "spark.sql.codegen.wholeStage": "true"}
    found = settings_for_small(given, ORDINARY, fixed=True)

    assert not {PARTITIONS, *given} & found.keys()
    assert not {PARTITIONS, *given} & json.loads(found[latency._WIDER]).keys()


def test_java_options_of_users_win():
    """A user's choice of compiler, collector and archive is left alone."""
    own = java_options_for_small("-XX:TieredStopAtLevel=4 -Xshare:off", None)
    sized = _sized(SparkOptions(is_small=True, java_options="-XX:+UseG1GC -Xshare:off"), None)
    options = sized["spark.driver.extraJavaOptions"]

    assert ["-XX:+UseSerialGC"] == own
    assert ("-XX:+UseG1GC" in options, "UseSerialGC" in options) == (True, False)


def test_a_large_table_widens_the_session(spark, tmp_path, monkeypatch):
    """A session for little work that writes a large table gets the settings of an ordinary one."""
    names = [*latency._FOR_SMALL, latency._WIDER]
    before = {name: spark.conf.get(name, None) for name in names}
    tuned = settings_for_small({}, ORDINARY, fixed=False)
    rows = spark.createDataFrame([(number, "why") for number in range(3)], NEWLY_REFERENCED.schema)
    try:
        for name, value in tuned.items():
            spark.conf.set(name, value)
        NEWLY_REFERENCED.write(rows, tmp_path / "small")
        kept = spark.conf.get(PARTITIONS)
        monkeypatch.setattr(latency, "SMALL", 2)
        NEWLY_REFERENCED.write(rows, tmp_path / "large")
        widened = spark.conf.get(PARTITIONS), spark.conf.get(ADAPTIVE)
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)

    assert ("2", ("8", "true")) == (kept, widened)


def test_an_ordinary_session_is_not_widened(spark):
    """A session that was not tuned keeps its settings, however large its tables are."""
    before = spark.conf.get(PARTITIONS)
    widen(spark, SMALL + 1)

    assert before == spark.conf.get(PARTITIONS)


def _collector(lake: Lake, name: str = REPOSITORY, **rules: Any) -> RepositoryCollector:
    repository = CatalogRepository(lake.catalog, name)
    return RepositoryCollector(lake.shop.context, repository, stored_rules(repository, **rules))


def test_the_size_of_a_lake_is_known_before_its_first_plan(lake, tmp_path):
    """Entries of commits and of staging are counted, those of a range that commits share once."""
    lake.catalog.create_repository("own", str(tmp_path / "own"))
    lake.catalog.upload_many("own", "main", [("raw/a", b"a"), ("raw/b", b"b")])
    lake.catalog.commit("own", "main", "two")
    lake.catalog.create_branch("own", "other", "main")
    lake.catalog.upload("own", "other", "raw/c", b"c")
    lake.catalog.set_policy("own", json.dumps(RAW_30_DAYS), "json")

    assert items_to_plan(lake.shop.context, _collector(lake, "own", lifecycle=True)) == 3


def test_a_listing_is_as_large_as_the_last_one(lake):
    """How much a store lists is unknown before the first plan; then the last plan of that kind tells."""
    lake.upload("raw/a", "raw/b")
    lake.commit()
    sweep = _collector(lake, uncommitted=SweepRules())
    before = items_to_plan(lake.shop.context, sweep)
    manifest = lake.plan_uncommitted()

    assert (None, items_to_apply(manifest)) == (before, items_to_plan(lake.shop.context, sweep))
    assert items_to_apply(manifest) >= 2


def test_the_lock_is_taken_before_spark_starts(tmp_path, monkeypatch, capsys):
    """While Spark starts, no other run can take the target."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").write_text('{"all": {"prefix": "", "days": 1}}')
    for words in (["lake", "create", "sales", "lake"], ["lake", "policy", "set", "sales", "policy.json"]):
        assert run(words) == 0
    found = []

    def start(state, *_):
        uid = state.target("lake:sales").identity.uid
        with pytest.raises(Busy), target_lock(state.root, uid, "another"):
            pass
        found.append("locked")
        raise EnvironmentProblem("Spark would start")

    monkeypatch.setattr(State, "spark", start)
    set_machine_clock(monkeypatch, "2098-01-01T00:00:00Z")
    code = run(["plan", "lake:sales"])
    capsys.readouterr()

    assert (1, ["locked"]) == (code, found)
