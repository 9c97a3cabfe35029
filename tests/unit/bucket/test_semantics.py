"""The rows of S3 semantics that engines get wrong, each by its number, through the oracle."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.worlds_of_s3.rows import CASES, cases_of

from ebbtide.targets.s3.model import Action, Hold
from ebbtide.targets.s3.oracle import evaluate

ROWS = [
    *("1", "2", "4", "5", "6", "7", "8", "8a", "8b", "8c", "9", "10", "11", "12", "13", "14", "15", "16"),
    *("17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "29a", "31", "35"),
    "7b",
]


def row(number):
    """Run a test over the cases of a row."""
    return pytest.mark.parametrize("case", cases_of(number), ids=lambda case: case.name)


def check(case):
    """Compare all verdicts of a case with those that are right."""
    assert case.expected == case.verdicts(evaluate)


@row("1")
def test_row_01_an_empty_filter_is_about_everything(case):
    """A rule without conditions is about every version, marker and upload."""
    check(case)


@row("2")
def test_row_02_the_old_place_of_a_prefix(case):
    """A prefix at the rule itself counts like one in its filter."""
    check(case)


@row("4")
def test_row_04_and_asks_for_all_of_its_parts(case):
    """An object that misses one condition of And is left alone."""
    check(case)


@row("5")
def test_row_05_tags_are_a_subset_and_exact(case):
    """All tags of the rule, with their very values, must be on the object."""
    check(case)


@row("6")
def test_row_06_sizes_are_strict_and_markers_have_none(case):
    """Bounds are exclusive; markers are not measured and have no tags."""
    check(case)


@row("7")
def test_row_07_a_prefix_is_plain_text(case):
    """A prefix is compared character by character, with no patterns."""
    check(case)


@row("8")
def test_row_08_days_round_up_to_midnight(case):
    """Days count from the writing and end at the next midnight UTC."""
    check(case)


@row("8a")
def test_row_08a_an_exact_midnight_stays(case):
    """What was written at midnight is due at a midnight, not a day later."""
    check(case)


@row("8b")
def test_row_08b_not_after_24_hours(case):
    """So many times 24 hours are not yet enough."""
    check(case)


@row("8c")
def test_row_08c_midnight_is_that_of_utc(case):
    """No time zone moves the midnight that counts."""
    check(case)


@row("9")
def test_row_09_a_date_is_for_every_object(case):
    """At its date a rule takes effect, also on what is written later."""
    check(case)


@row("10")
def test_row_10_no_days_means_the_next_midnight(case):
    """A transition after zero days waits for midnight."""
    check(case)


@row("11")
def test_row_11_expiration_is_of_current_versions(case):
    """Only a current version expires, in each state of versioning."""
    check(case)


@row("12")
def test_row_12_a_marker_before_versions_stays(case):
    """A current delete marker that hides something is left alone."""
    check(case)


@row("13")
def test_row_13_a_sole_marker_goes_at_once(case):
    """ExpiredObjectDeleteMarker takes a marker without versions at once."""
    check(case)


@row("14")
def test_row_14_days_take_sole_markers_too(case):
    """Days count from the marker's own time."""
    check(case)


@row("15")
def test_row_15_noncurrent_since_the_successor(case):
    """A version is noncurrent since its successor was written."""
    check(case)


@row("16")
def test_row_16_days_and_newer_versions_both(case):
    """A noncurrent version goes if it is old enough and behind enough."""
    check(case)


@row("17")
def test_row_17_a_noncurrent_marker_is_a_version(case):
    """A noncurrent marker is deleted and counted, and never moved."""
    check(case)


@row("18")
def test_row_18_an_unknown_rank_deletes_nothing(case):
    """The place among all versions of a key counts; in doubt all stay."""
    check(case)


@row("19")
def test_row_19_noncurrent_transitions_count_too(case):
    """A noncurrent transition waits for newer versions as well."""
    check(case)


@row("20")
def test_row_20_uploads_are_aborted(case):
    """An upload ends days after it began; no other action is about it."""
    check(case)


@row("21")
def test_row_21_small_objects_do_not_move(case):
    """Below 128 KiB nothing moves, unless the rule or the default says so."""
    check(case)


@row("22")
def test_row_22_never_up_and_never_in_place(case):
    """An object goes only down the waterfall."""
    check(case)


@row("23")
def test_row_23_the_cheapest_of_several_classes(case):
    """Of several transitions that are due the cheapest class is taken."""
    check(case)


@row("24")
def test_row_24_deletion_before_transition_before_marker(case):
    """The table of precedence holds, then the earliest."""
    check(case)


@row("25")
def test_row_25_disabled_rules_are_none(case):
    """A disabled rule is as good as none."""
    check(case)


@row("26")
def test_row_26_null_versions_are_versions(case):
    """A null version is current or noncurrent like any other."""
    check(case)


@row("27")
def test_row_27_object_lock_keeps_data(case):
    """A lock keeps a version from destruction, and from nothing else."""
    check(case)


@row("28")
def test_row_28_pending_replication_holds(case):
    """Nothing is done to a version whose replication is pending."""
    check(case)


@row("7b")
def test_row_07b_a_lake_holds(case):
    """Nothing is done to what lies in a lake, whatever the rules of its bucket say."""
    check(case)


@row("29")
def test_row_29_a_restore_holds(case):
    """Nothing is done to a version while it is being restored."""
    check(case)


@row("29a")
def test_row_29a_what_was_restored_from_the_bin_is_held(case):
    """Until the end of its hold no action is taken on a version that was restored from the recycle bin."""
    check(case)


@row("31")
def test_row_31_markers_do_not_stack(case):
    """A key that ended with a marker gets no second one."""
    check(case)


@row("35")
def test_row_35_the_next_action_is_announced(case):
    """What is not due is told its next action's time and rule."""
    check(case)


def test_no_case_is_forgotten():
    """Every case belongs to a row that has a test, every such row has cases, and no two share a name."""
    counted = Counter(case.row for case in CASES)

    assert set(ROWS) == set(counted)
    assert len(CASES) == len({(case.row, case.name) for case in CASES})
    assert all(len(case.items) == len(case.expected) for case in CASES)


def test_the_cases_show_every_action_and_every_hold():
    """Together the rows expect each action and each hold at least once, or they would say little."""
    expected = [verdict for case in CASES for verdict in case.expected]

    assert set(Action) == {verdict.action for verdict in expected}
    assert {None, *Hold} == {verdict.held_by for verdict in expected}
