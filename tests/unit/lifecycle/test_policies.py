"""Step 1: the policy table and the current rules, by the seed's own example."""

from datetime import date

from ebbtide.core.instant import parse_instant
from ebbtide.targets.repository.lifecycle import CurrentRule, current_rules, policy_table
from ebbtide.targets.repository.policy import PolicyRun, lake_policy

RULE1 = {"prefix": "foo/bar", "days": 10, "enabled": True, "branch_days": {"b1": 5, "b2": 8}}
RULE2 = {"prefix": "foo/zoo", "enabled": True, "branch_days": {"b1": 5}}
FIRST = PolicyRun(1, parse_instant("1998-01-19"), lake_policy({"rule1": RULE1}), succeeded=True)
SECOND = PolicyRun(
    2, parse_instant("1998-01-20"), lake_policy({"rule1": RULE1, "rule2": RULE2}), succeeded=False
)


def test_the_policy_table_remembers_every_run():
    """Each run has its own rows with its own dates."""
    table = policy_table([FIRST, SECOND])
    actual = [(r.run_id, r.rule_id, r.branch, r.date_to_be_deleted.day) for r in table]
    expected = [
        (1, "rule1", "", 9),
        (1, "rule1", "b1", 14),
        (1, "rule1", "b2", 11),
        (2, "rule1", "", 10),
        (2, "rule1", "b1", 15),
        (2, "rule1", "b2", 12),
        (2, "rule2", "b1", 15),
    ]

    assert expected == actual


def test_current_rules_know_what_a_succeeded_run_reached():
    """The last deleted date comes from runs that succeeded; a new rule has none."""
    actual = current_rules(policy_table([FIRST, SECOND]), 2, succeeded=[1])
    expected = [
        CurrentRule("foo/bar", "", date(1998, 1, 10), date(1998, 1, 9)),
        CurrentRule("foo/bar", "b1", date(1998, 1, 15), date(1998, 1, 14)),
        CurrentRule("foo/bar", "b2", date(1998, 1, 12), date(1998, 1, 11)),
        CurrentRule("foo/zoo", "b1", date(1998, 1, 15), None),
    ]

    assert expected == actual


def test_a_run_that_did_not_succeed_reached_nothing():
    """A dry or failed run is in the table but moves no last deleted date."""
    actual = current_rules(policy_table([FIRST, SECOND]), 2, succeeded=[])

    assert [None] * 4 == [rule.last_deleted for rule in actual]


def test_two_rules_for_one_place_count_as_the_one_that_deletes_more():
    """Of two dates for one prefix and branch the later one is current."""
    policy = lake_policy({"a": {"prefix": "x", "days": 10}, "b": {"prefix": "x", "days": 3}})
    run = PolicyRun(1, parse_instant("1998-01-20"), policy, succeeded=False)
    actual = current_rules(policy_table([run]), 1, succeeded=[])

    assert [CurrentRule("x", "", date(1998, 1, 17), None)] == actual
