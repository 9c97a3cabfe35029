"""What is true of the oracle for buckets by itself, on every generated bucket."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.property.bucket_worlds import TICK, BucketWorld, bucket_worlds, rules

from ebbtide.targets.s3.model import Action, Hold, Upload, Verdict, Version, Versioning
from ebbtide.targets.s3.oracle import evaluate
from ebbtide.targets.s3.rules.configuration import Configuration
from ebbtide.targets.s3.rules.storage_classes import may_go

LATER = st.sampled_from(
    (TICK, timedelta(hours=12), timedelta(days=1), timedelta(days=3), timedelta(days=4000))
)


def judged(world: BucketWorld) -> list[Verdict]:
    """Ask the oracle about a world."""
    return evaluate(world.configuration, world.items, world.now, world.versioning)


def is_permanent(verdict: Verdict, world: BucketWorld) -> bool:
    """Tell whether a verdict destroys something by the table of precedence."""
    expires = verdict.action is Action.EXPIRE and world.versioning is Versioning.DISABLED
    return expires or verdict.action is Action.DELETE_VERSION


@given(bucket_worlds(ties=False), st.randoms(use_true_random=False))
def test_the_order_of_the_items_does_not_matter(world, random):
    """Without equal times each item gets the same verdict wherever it stands in the list."""
    order = list(range(len(world.items)))
    random.shuffle(order)
    expected = judged(world)
    turned = judged(replace(world, items=tuple(world.items[number] for number in order)))

    assert [expected[number] for number in order] == turned


@given(bucket_worlds())
def test_without_enabled_rules_nothing_happens(world):
    """Where all rules are disabled nothing is done, announced or held."""
    off = tuple(replace(rule, enabled=False) for rule in world.configuration.rules)
    quiet = replace(world, configuration=replace(world.configuration, rules=off))

    assert [Verdict()] * len(world.items) == judged(quiet)
    assert [Verdict()] * len(world.items) == judged(replace(world, configuration=Configuration(())))


@given(bucket_worlds())
def test_disabled_rules_are_as_good_as_none(world):
    """Leaving out the disabled rules changes no verdict."""
    without = replace(world.configuration, rules=world.configuration.enabled)

    assert judged(world) == judged(replace(world, configuration=without))


@given(bucket_worlds(), LATER)
def test_what_is_due_stays_due(world, later):
    """Later each permanent deletion is still to be made, and whatever had an action or hold still has one."""
    before, after = judged(world), judged(replace(world, now=world.now + later))

    for one, other in zip(before, after, strict=True):
        if is_permanent(one, world):
            assert one == other
        if one.action is not Action.NONE:
            assert other.action is not Action.NONE or other.held_by is not None
        if one.held_by not in {None, Hold.RETENTION, Hold.RESTORED, Hold.LEGAL_HOLD}:
            assert one.held_by is other.held_by


@given(bucket_worlds())
def test_what_is_announced_comes_true(world):
    """At the moment that a verdict announces something is due, and a microsecond before nothing is."""
    for number, verdict in enumerate(judged(world)):
        if verdict.action is Action.NONE and verdict.held_by is None and verdict.due is not None:
            then = judged(replace(world, now=verdict.due))[number]

            assert world.now < verdict.due
            assert verdict == judged(replace(world, now=verdict.due - TICK))[number]
            assert verdict.due == then.due
            assert then.action is not Action.NONE or then.held_by is not None


@given(bucket_worlds(), rules("added"), st.integers(0, 6))
def test_another_rule_takes_back_no_deletion(world, added, position):
    """A permanent deletion stays one whatever rule is added, and is due no later."""
    more = list(world.configuration.rules)
    more.insert(position, added)
    before = judged(world)
    after = judged(replace(world, configuration=replace(world.configuration, rules=tuple(more))))

    for one, other in zip(before, after, strict=True):
        if is_permanent(one, world):
            assert one.action is other.action
            assert other.due <= one.due


@given(bucket_worlds())
def test_what_is_held_has_no_action(world):
    """A hold and an action exclude each other, and an action has a rule and a moment that has come."""
    enabled = {rule.id for rule in world.configuration.enabled}

    for verdict in judged(world):
        assert verdict.held_by is None or verdict.action is Action.NONE
        if verdict.action is not Action.NONE:
            assert verdict.rule_id in enabled
            assert verdict.due <= world.now


@given(bucket_worlds())
def test_doubt_never_acts(world):
    """An item without a time, or of a key with two current versions or none, has no action."""
    said = Counter((item.key, item.is_latest) for item in world.items if isinstance(item, Version))

    for item, verdict in zip(world.items, judged(world), strict=True):
        if isinstance(item, Upload):
            doubtful = item.initiated is None
        else:
            missing = said[item.key, False] > 0 and said[item.key, True] == 0
            doubtful = item.last_modified is None or said[item.key, True] > 1 or missing
        assert not doubtful or verdict.action is Action.NONE


@given(bucket_worlds())
def test_marks_on_a_version_keep_it(world):
    """Pending replication and a restore keep from everything, a lock from losing a noncurrent version."""
    for item, verdict in zip(world.items, judged(world), strict=True):
        if isinstance(item, Version):
            busy = (item.replication_status or "").upper() in {"PENDING", "PROCESSING"} or item.restoring
            locked = item.legal_hold or (item.retain_until is not None and item.retain_until > world.now)
            assert not busy or verdict.action is Action.NONE
            assert not locked or item.is_delete_marker or not is_permanent(verdict, world)


@given(bucket_worlds())
def test_each_action_is_done_to_what_it_is_for(world):
    """No action meets an item that it is not for."""
    for item, verdict in zip(world.items, judged(world), strict=True):
        if isinstance(item, Upload):
            assert verdict.action in {Action.NONE, Action.ABORT_UPLOAD}
            continue
        moved = verdict.action is Action.TRANSITION
        assert verdict.action is not Action.ABORT_UPLOAD
        assert not item.is_latest or verdict.action is not Action.DELETE_VERSION
        assert item.is_latest is not False or verdict.action not in {
            Action.EXPIRE,
            Action.REMOVE_DELETE_MARKER,
        }
        assert item.is_delete_marker or verdict.action is not Action.REMOVE_DELETE_MARKER
        assert not item.is_delete_marker or verdict.action not in {Action.EXPIRE, Action.TRANSITION}
        assert moved == (verdict.storage_class is not None)
        assert not moved or may_go(item.storage_class, verdict.storage_class)


@given(bucket_worlds())
def test_keys_do_not_touch_each_other(world):
    """Judging the items of each key by themselves gives the same verdicts."""
    expected = judged(world)
    for key in {item.key for item in world.items}:
        numbers = [number for number, item in enumerate(world.items) if item.key == key]
        alone = judged(replace(world, items=tuple(world.items[number] for number in numbers)))

        assert [expected[number] for number in numbers] == alone


@given(bucket_worlds(doubts=False))
def test_knowledge_leaves_no_doubt(world):
    """Where all times and latest versions are known nothing is held for doubt."""
    assert {Hold.UNKNOWN_RANK, Hold.UNKNOWN_TIME}.isdisjoint(verdict.held_by for verdict in judged(world))


@given(bucket_worlds(), st.data())
def test_knowing_less_never_acts_more(world, data):
    """Taking a time away may turn a version's deletion into a hold, and no other verdict into a deletion."""
    versions = [number for number, item in enumerate(world.items) if isinstance(item, Version)]
    lost = data.draw(st.sampled_from(versions))
    assume(world.items[lost].last_modified is not None)
    fewer = tuple(
        replace(item, last_modified=None) if number == lost else item
        for number, item in enumerate(world.items)
    )
    before, after = judged(world), judged(replace(world, items=fewer))

    for one, other in zip(before, after, strict=True):
        assert not is_permanent(other, world) or one == other


def test_the_generated_buckets_are_worth_judging():
    """Every action, every hold and something announced occur often enough, or the properties say little."""
    found: Counter[object] = Counter()

    @settings(max_examples=500, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(bucket_worlds())
    def collect(world):
        for verdict in evaluate(
            world.configuration, world.items, world.now, world.versioning, world.protected
        ):
            found[verdict.action] += 1
            found[verdict.held_by] += 1
            found["announced"] += verdict.due is not None and verdict.due > world.now

    collect()

    assert all(found[wanted] > 10 for wanted in (*Action, *Hold, "announced")), found


@given(bucket_worlds())
def test_nothing_is_done_in_a_lake(world):
    """Below a protected prefix no item has an action; elsewhere lakes change nothing."""
    free = evaluate(world.configuration, world.items, world.now, world.versioning)
    held = evaluate(world.configuration, world.items, world.now, world.versioning, world.protected)
    inside = [any(item.key.startswith(one.prefix) for one in world.protected) for item in world.items]

    assert {Action.NONE} >= {verdict.action for verdict, there in zip(held, inside, strict=True) if there}
    assert [v for v, there in zip(free, inside, strict=True) if not there] == [
        v for v, there in zip(held, inside, strict=True) if not there
    ]
