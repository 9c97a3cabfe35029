"""Generated repositories, written to, planned and applied in any order: nothing needed is ever lost."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.machine.generating import many_histories, run_engine
from tests.machine.judging import judge

HISTORIES = 48
RULES = 7
"""How many rules a machine runs here; most of them plan."""
SEED = 3
ENGINES = 2
ENGINE_RULES = 5
ENGINE_SEED = 3


@pytest.fixture(scope="module")
def histories():
    """Generate many histories from one seed; after every step of them all that is needed was readable."""
    return many_histories(HISTORIES, SEED, RULES)


def counted(histories):
    """Count what happened in some histories."""
    return sum((history.counts for history in histories), Counter())


def test_the_histories_are_worth_judging(histories):
    """
    Enough of everything happens in them, or to judge them would say little.

    What optimized sweeps did not see came past the catalog: that is all they may miss, and they did.
    """
    wanted = {
        "plan done": 200,
        "due": 300,
        "held": 400,
        "back": 20,
        "apply finished": 15,
        "apply succeeded": 5,
        "apply stale": 2,
        "apply looks again": 1,
        "apply deleted, some are needed again": 1,
        "crashes": 2,
        "resumed": 1,
        "waits for the gate": 6,
        "object is gone": 1,
        "ChangePolicy done": 30,
        "DeleteBranch done": 15,
        "RenameBranch done": 1,
        "CreateBranch done": 60,
        "ResetTo done": 6,
        "Merge done": 4,
        "Revert done": 5,
        "Tag done": 15,
        "Copy done": 10,
        "CrashedCommit done": 1,
        "Reset done": 15,
        "GetAddress done": 20,
        "AbandonedUpload done": 10,
        "UploadTo done": 1,
        "LateUpload done": 10,
        "Link done": 3,
        "Link refused": 5,
        "LinkedUpload done": 10,
        "LinkedUpload waits for the gate": 1,
        "Import done": 5,
        "ChangeRetention done": 8,
        "kind lifecycle": 80,
        "kind clean": 10,
        "kind optimized": 40,
        "kind retention": 10,
        "kind all": 25,
        "swept clean": 40,
        "swept optimized": 30,
        "garbage of optimized": 15,
        "unseen by optimized": 1,
    }
    found = counted(histories)

    assert HISTORIES == len(histories)
    assert {} == {what: found[what] for what, least in wanted.items() if found[what] < least}


@pytest.mark.spark
@pytest.mark.slow
def test_all_agree_about_every_world(spark, histories):
    """Spark in full equals the oracle, and run by run, each building on the last, equals Spark in full."""
    assert [] == [str(found) for found in judge(spark, histories)][:1]


@pytest.mark.spark
@pytest.mark.long
def test_the_engine_among_writers_and_crashes(spark):
    """Real plans and applies do as the oracle says, the ledger equals the store, all is readable."""
    found = counted(run_engine(spark, ENGINES, ENGINE_RULES, ENGINE_SEED))

    assert found["outcome deleted"] >= 2
    assert found["crashes"] >= 1
    assert found["plans compared"] >= 1
    assert found["swept clean"] + found["swept optimized"] >= 2


def test_the_same_seed_gives_the_same_histories():
    """A seed is all that it takes to play a failure again."""
    one, other = (many_histories(8, 7, 4) for _ in range(2))

    assert [history.story for history in one] == [history.story for history in other]
    assert [history.worlds for history in one] == [history.worlds for history in other]
