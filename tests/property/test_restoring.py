"""Whatever was set aside and restored in between, a plan knows what is there as if it had looked."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.integration.crashing import quick
from tests.machine.records import decided
from tests.services.lake import REPOSITORY, Lake, make_lake, open_lake

from ebbtide.core.manifest import Manifest
from ebbtide.engine.bin import RestoreChoice
from ebbtide.engine.restore import restore
from ebbtide.targets.lake.bin import LakeBin, lake_bin
from ebbtide.targets.repository.rules import RepositoryRules, SweepRules, stored_rules

pytestmark = [pytest.mark.spark, pytest.mark.long]

STEPS = 3
RULES = {"raw": {"prefix": "raw/", "days": 2, "recycle": {"days": 14}}, "tmp": {"prefix": "tmp/", "days": 1}}


def rules_of(lake: Lake, *, sweep: bool, clean: bool = False) -> RepositoryRules:
    """Ask for lifecycle and retention, or for garbage too."""
    rules = SweepRules(clean=clean) if sweep else None
    return stored_rules(lake.repository, lifecycle=True, retention=True, uncommitted=rules)


def live_a_day(lake: Lake, chance: random.Random, day: int) -> None:
    """Write, commit, drop what is staged, and let branches come and go."""
    lake.day(day)
    branch = f"b{day}"
    lake.upload(*(f"{chance.choice(['raw', 'tmp', 'keep'])}/{number}" for number in range(6)))
    lake.commit()
    lake.catalog.create_branch(REPOSITORY, branch, "main")
    lake.upload(*(f"raw/{day}-{number}" for number in range(3)), branch=branch)
    if chance.random() < 0.5:
        lake.commit(branch)
    if chance.random() < 0.5:
        lake.catalog.delete_branch(REPOSITORY, branch)


def restore_some(lake: Lake, chance: random.Random) -> int:
    """Bring back a folder of the bin, or a few items from anywhere in it."""
    contents = lake_bin(lake.catalog, REPOSITORY)
    labels = contents.labels(lambda broken: pytest.fail(str(broken)))
    if not labels:
        return 0
    label = chance.choice(labels)
    items = [item.address for item in contents.items(label)]
    some = tuple(chance.sample(items, chance.randint(0, len(items))))
    # A stranger does not know what is held because it was restored.
    return restore(LakeBin(lake.shop, REPOSITORY), RestoreChoice(label.folder, some, days=0)).back.objects


def rows_of(lake: Lake, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Give a plan's decisions by address."""
    return decided(lake.folder(manifest))


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_after_restores_is_what_a_look_at_the_store_says(spark, tmp_path, seed):
    """
    An incremental plan decides as a full one, and as a stranger does who has no ledger.

    The stranger knows nothing of removed items: of what it decides on, exactly what is stored remains. And an
    optimized sweep finds the garbage that a clean one finds, also where a restore brought it back.
    """
    chance = random.Random(seed)
    spark = quick(spark)
    lake = make_lake(spark, tmp_path)
    lake.policy(RULES)
    lake.retain({"default_days": 1})
    restored = 0
    for step in range(STEPS):
        live_a_day(lake, chance, day=3 * step)
        lake.apply(lake.plan(rules=rules_of(lake, sweep=step % 2 == 0)), override_breaker=True)
        restored += restore_some(lake, chance)
        lake.day(3 * step + 2)
        mine = rows_of(lake, lake.plan(rules=rules_of(lake, sweep=False)))
        stranger = open_lake(spark, _elsewhere(tmp_path, step), clock=lake.clock)
        stranger.shop.__dict__["catalog"] = lake.catalog
        alone = rows_of(stranger, stranger.plan(rules=rules_of(lake, sweep=False)))
        stored = lake.stored()
        optimized = lake.plan(rules=rules_of(lake, sweep=True))
        clean = lake.plan(rules=rules_of(lake, sweep=True, clean=True), full=True)

        assert {address: row for address, row in alone.items() if address in stored} == mine
        assert rows_of(lake, clean) == rows_of(lake, optimized)
        stranger.ledger.close()

    assert restored


def _elsewhere(folder, step):
    place = folder / f"stranger-{step}"
    place.mkdir()
    return place
