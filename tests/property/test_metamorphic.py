"""What does not matter to a plan does not change it: order, partitions, master, spelling, repetition."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import commit_unchecked, entry
from tests.services.lake import REPOSITORY, Lake, make_lake
from tests.worlds import NOW, many_worlds

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.instant import parse_instant
from ebbtide.core.manifest import Manifest
from ebbtide.engine.run_tables import DIGESTED, stream_decisions
from ebbtide.engine.tables.contracts import PLAN
from ebbtide.engine.tables.digest import table_digest
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.repository.simulation import Simulated, simulate
from ebbtide.targets.repository.world_document import world_document

pytestmark = [pytest.mark.spark, pytest.mark.long]

World = dict[str, Any]
WORLDS = 30
SEED = 20261116
SCHEMES = ("s3://lake/{}", "s3a://lake/{}", "s3n://lake/{}", "S3A://Lake//{}")
POLICY = {"old-raw": {"prefix": "raw/", "days": 30, "tag_days": 20, "branch_days": {"short": 3}}}


# Worlds, many in one job


def entries_of(world: World) -> Iterator[dict[str, World]]:
    """Give the entries of each commit and of each branch's staging."""
    for commit in world["commits"]:
        yield commit["entries"]
    yield from world["staged"].values()


def respelled(world: World, spellings: Iterator[str]) -> World:
    """Write every address as a URL in the namespace, each in the next spelling."""
    world["namespace"] = "s3://lake"
    for entries in entries_of(world):
        for row in entries.values():
            if "://" not in row["address"]:
                row["address"] = next(spellings).format(row["address"])
    return world


def plain(world: World) -> World:
    """Write every address as a URL, all in the canonical spelling."""
    return respelled(world, cycle(SCHEMES[:1]))


def spelled_in_many_ways(world: World) -> World:
    """Write the same objects with other schemes, cases, slashes and escapes."""
    return respelled(world, cycle(SCHEMES))


def in_another_order(world: World) -> World:
    """Turn the order of commits, refs, rules, staging and entries around."""
    turned = {name: dict(reversed(world[name].items())) for name in ("policy", "branches", "tags", "staged")}
    for commit in world["commits"]:
        commit["entries"] = dict(reversed(commit["entries"].items()))
    return plain(world | turned | {"commits": world["commits"][::-1]})


def with_refs_twice(world: World) -> World:
    """Add a second tag beside each, and a second branch beside each that no rule names."""
    named = {branch for rule in world["policy"].values() for branch in rule["branch_days"]}
    branches = {f"{name}-too": head for name, head in world["branches"].items() if name not in named}
    tags = {f"{name}-too": head for name, head in world["tags"].items()}
    world["branches"] |= branches
    world["tags"] |= tags
    return plain(world)


def with_empty_commits(world: World) -> World:
    """Put on each branch's head a commit that changes nothing."""
    heads = {commit["id"]: commit for commit in world["commits"]}
    for name, head in world["branches"].items():
        again = heads[head] | {"id": f"{head}-on-{name}", "parents": [head]}
        world["commits"].append(copy.deepcopy(again))
        world["branches"][name] = again["id"]
    return plain(world)


def with_staging_that_repeats(world: World) -> World:
    """Stage on each branch what its head holds, as far as nothing else is staged there."""
    heads = {commit["id"]: commit["entries"] for commit in world["commits"]}
    for name, head in world["branches"].items():
        world["staged"][name] = copy.deepcopy(heads[head]) | world["staged"].get(name, {})
    return plain(world)


CHANGES: list[Callable[[World], World]] = [
    spelled_in_many_ways,
    in_another_order,
    with_refs_twice,
    with_empty_commits,
    with_staging_that_repeats,
]


def essence(found: Simulated) -> list[tuple[Any, ...]]:
    """Give what a plan's digest covers of each decision, and the decision itself, in order."""
    columns = ("address", "decision", "deadline", "names", "rules", "size")
    return sorted(tuple(str(row[name]) for name in columns) for row in found.decisions)


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> dict[str, list[list[tuple[Any, ...]]]]:
    """Judge all worlds, each as it is and with every change, in one job."""
    worlds, now = many_worlds(WORLDS, SEED), parse_instant(NOW)
    changes = {change.__name__: change for change in (plain, *CHANGES)}
    cases = {
        name: [(world_document(change(copy.deepcopy(world))), now) for world in worlds]
        for name, change in changes.items()
    }
    results = iter(simulate(spark, [case for group in cases.values() for case in group]))
    return {name: [essence(next(results)) for _ in group] for name, group in cases.items()}


@pytest.mark.parametrize("change", [change.__name__ for change in CHANGES])
def test_a_change_that_means_nothing_changes_no_decision(judged, change):
    """Spelling, order and repetition of a world leave every decision, deadline, path, rule and size alone."""
    decisions = [row for world in judged["plain"] for row in world]

    assert {"due", "held"} == {row[1] for row in decisions}
    assert judged["plain"] == judged[change]


# A repository, planned again and again


@pytest.fixture(scope="module")
def planned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Manifest]:
    """Plan a lake of several ranges, with shared objects, branches of two classes, a tag and staging."""
    lake = make_lake(spark, tmp_path_factory.mktemp("metamorphic"))
    catalog = lake.catalog
    lake.policy(POLICY)
    lake.upload(*(f"raw/{number:02}" for number in range(12)), *(f"keep/{number}" for number in range(6)))
    catalog.copy(REPOSITORY, "main", "raw/03", "keep/shared")
    lake.commit()
    catalog.create_tag(REPOSITORY, "v1", "main")
    for branch in ("short", "wide"):
        catalog.create_branch(REPOSITORY, branch, "main")
    lake.day(36)
    lake.upload("raw/20", "raw/21", branch="short")
    lake.commit("short")
    lake.upload("raw/22", branch="wide")
    lake.commit("wide")
    lake.upload("raw/05")
    lake.day(40)
    return lake, lake.plan()


def test_the_planned_lake_is_worth_planning(planned):
    """Some objects are due and some are held, or equal plans would say little."""
    summary = planned[1].summary

    assert (13, 3) == (summary.due.objects, summary.held.objects)


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_the_number_of_shuffle_partitions_does_not_matter(planned, spark, partitions):
    """A plan has the same hash in however many partitions and batches it is computed."""
    lake, wanted = planned
    setting = "spark.sql.shuffle.partitions"
    usual = spark.conf.get(setting)
    spark.conf.set(setting, str(partitions))
    try:
        found = lake.plan(batch_size=partitions, full=True)
    finally:
        spark.conf.set(setting, usual)

    assert wanted.plan_hash == found.plan_hash


def test_the_order_of_a_plans_rows_does_not_matter(planned, spark):
    """A plan table whose rows come in another order and in other partitions has the digest of its plan."""
    lake, wanted = planned
    rows = PLAN.read(spark, lake.folder(wanted).plan)
    sorted_rows, spread = rows.orderBy("address", ascending=False), rows.repartition(5, "size")

    assert [wanted.digest] * 2 == [table_digest(frame, DIGESTED) for frame in (sorted_rows, spread)]


def test_references_that_are_there_twice_do_not_matter(planned):
    """A second branch and tag of a class on the same commit and an empty commit leave a plan's hash alone."""
    lake, wanted = planned
    lake.catalog.create_branch(REPOSITORY, "wide-too", "wide")
    lake.catalog.create_tag(REPOSITORY, "v1-too", "v1")
    lake.catalog.commit(REPOSITORY, "short", "nothing new", allow_empty=True)

    assert wanted.plan_hash == lake.plan().plan_hash


# Repositories that hold the same objects


def rows_of(lake: Lake, spelling: str = "{}") -> list[dict[str, Any]]:
    """Make the same entries for any lake; some objects have two keys, one of which no rule matches."""
    keys = [*(f"keep/{number:02}" for number in range(3)), *(f"raw/{number:02}" for number in range(9))]
    return [entry(lake, key, spelling.format(f"data/{key[-2:]}")) for key in keys]


def import_rows(lake: Lake, rows: list[dict[str, Any]]) -> None:
    """Commit entries on main."""
    lake.catalog.import_entries(REPOSITORY, "main", [pa.Table.from_pylist(rows, ENTRIES)], "an import")


def plan_on_day_40(lake: Lake) -> Manifest:
    """Plan with the policy of this file."""
    lake.policy(POLICY)
    lake.day(40)
    return lake.plan()


def test_the_order_of_commits_and_the_size_of_ranges_do_not_matter(spark, tmp_path_factory):
    """Other commits and ranges with the same entries give one digest (the hash names the repository too)."""
    small, large = (
        make_lake(spark, tmp_path_factory.mktemp("ranges"), range_keys=size) for size in (2, 1000)
    )
    rows = rows_of(small)
    import_rows(small, rows)
    for part in (rows[1::2], rows[::2]):
        import_rows(large, part)
    found = plan_on_day_40(small)

    assert 6 == found.summary.due.objects
    assert found.digest == plan_on_day_40(large).digest


def test_the_scheme_of_an_address_does_not_matter(spark, tmp_path_factory, s3_server, bucket):
    """Relative keys and s3, s3a and s3n URLs give one digest (the hash names the repository too)."""
    relative, full = (
        make_lake(
            spark,
            tmp_path_factory.mktemp(name),
            f"s3://{bucket}/{name}",
            store_options=s3_server.options,
            range_keys=100,
        )
        for name in ("relative", "full")
    )
    import_rows(relative, rows_of(relative))
    for branch, scheme in {"main": "s3", "a": "s3a", "n": "s3n"}.items():
        if branch != "main":
            full.catalog.create_branch(REPOSITORY, branch, "main")
        commit_unchecked(full, branch, rows_of(full, f"{scheme}://{bucket}/full/{{}}"))
    found = plan_on_day_40(full)

    assert {f"data/0{number}" for number in range(3, 9)} == full.due(found)
    assert plan_on_day_40(relative).digest == found.digest


def test_a_doubtful_spelling_is_held(spark, tmp_path):
    """An address that may name another object than its canonical form does is held, and is never due."""
    lake = make_lake(spark, tmp_path)
    namespace = lake.catalog.repository(REPOSITORY).namespace
    spellings = ("data//1", "data/2/", f"{namespace}/dat%61/3", f"{namespace}/data/4")
    commit_unchecked(lake, "main", [entry(lake, f"raw/{place}", place) for place in sorted(spellings)])
    found = plan_on_day_40(lake)
    held = {row["address"]: row["hold"] for row in stream_decisions(lake.folder(found), Decision.HELD)}

    assert {f"data/{number}": str(HoldReason.SPELLING) for number in (1, 2, 3)} == held
    assert {"data/4"} == lake.due(found)
