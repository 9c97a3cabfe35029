"""Whether a planned item is still what it was: what no real store is easily brought to show."""

from __future__ import annotations

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.actions.recheck import OVERTAKEN, PROMOTED, UNCLEAR, find_changes
from ebbtide.targets.s3.actions.requests import PlannedItem, same_moment
from ebbtide.targets.s3.model import Action

SECOND = 1_000_000


def row(version: str, second: int, *, latest: bool = False, marker: bool = False) -> VersionRow:
    """List one version of the key, or a delete marker."""
    etag = None if marker else "etag"
    return VersionRow("key", version, latest, marker, 1, second * SECOND, etag, "STANDARD")


def item(number: int, version: str, second: int, action: Action, newer: int = 0) -> PlannedItem:
    """Plan something for one version of the key."""
    latest = action == Action.EXPIRE
    return PlannedItem(number, "key", action, version, "etag", second * SECOND, latest, newer)


@pytest.mark.parametrize(
    ("planned", "seen", "expected"),
    [
        pytest.param(5_123_456, 5_123_456, True, id="the same"),
        pytest.param(5_123_456, 5_123_457, False, id="a microsecond apart"),
        pytest.param(5_123_456, 5_123_000, True, id="the store knows the millisecond"),
        pytest.param(5_123_000, 5_124_000, False, id="a millisecond apart"),
        pytest.param(5_123_456, 5_000_000, True, id="the store knows the second"),
        pytest.param(5_000_000, 6_000_000, False, id="a second apart"),
        pytest.param(None, 6_000_000, True, id="the plan knows nothing"),
    ],
)
def test_times_are_compared_as_precisely_as_both_are_known(
    planned: int | None, seen: int, *, expected: bool
) -> None:
    """A listing, an inventory report and a header give the same time at different precisions."""
    assert expected == same_moment(planned, seen)


@pytest.mark.parametrize("latest", [[], [0, 1]])
def test_a_key_without_one_current_version_is_not_touched(latest: list[int]) -> None:
    """If the store does not know which version is the current one, none may go; it is tried again."""
    found = [row(f"v{n}", 9 - n, latest=n in latest) for n in range(3)]
    planned = [item(0, "v2", 7, Action.DELETE_VERSION)]

    assert {0: DeleteResult("key", Outcome.FAILED, UNCLEAR)} == find_changes(planned, planned, found)


def test_deleted_siblings_count_as_newer_and_what_was_expired_does_not() -> None:
    """Versions that the run itself deleted still count; a current version that is gone never did."""
    found = [row("now", 9, latest=True), row("v1", 3)]
    gone = item(1, "v2", 5, Action.DELETE_VERSION)
    expired = item(2, "v3", 7, Action.EXPIRE)
    enough, too_many = (item(n, "v1", 3, Action.DELETE_VERSION, newer=n + 1) for n in (0, 1))

    assert {} == find_changes([enough], [enough, gone, expired], found)
    assert [Outcome.CHANGED] == [
        result.outcome for result in find_changes([too_many], [too_many, gone, expired], found).values()
    ]


@pytest.mark.parametrize(
    ("planned", "found", "expected"),
    [
        pytest.param(
            item(0, "v1", 3, Action.DELETE_VERSION),
            [row("v1", 3, latest=True)],
            DeleteResult("key", Outcome.CHANGED, PROMOTED),
            id="a noncurrent version that is live data now",
        ),
        pytest.param(
            item(0, "v1", 3, Action.EXPIRE),
            [row("v2", 5, latest=True), row("v1", 3)],
            DeleteResult("key", Outcome.CHANGED, OVERTAKEN),
            id="a current version that was overwritten",
        ),
        pytest.param(
            item(0, "v1", 3, Action.EXPIRE),
            [row("m", 5, latest=True, marker=True), row("v1", 3)],
            DeleteResult("key", Outcome.ABSENT),
            id="a key that has its marker",
        ),
        pytest.param(
            item(0, "v1", 3, Action.EXPIRE), [], DeleteResult("key", Outcome.ABSENT), id="a key that is gone"
        ),
        pytest.param(
            item(0, "v1", 3, Action.DELETE_VERSION),
            [row("v2", 5, latest=True)],
            DeleteResult("key", Outcome.ABSENT),
            id="a version that is gone",
        ),
        pytest.param(
            item(0, "v1", 3, Action.DELETE_VERSION, newer=1),
            [row("v3", 7, latest=True), row("v2", 5), row("v1", 3)],
            None,
            id="as it was planned",
        ),
    ],
)
def test_what_became_of_a_version_since_the_plan(
    planned: PlannedItem, found: list[VersionRow], expected: DeleteResult | None
) -> None:
    """What changed its place stays, what is done or gone is absent, and only what is the same may go."""
    assert expected == find_changes([planned], [planned], found).get(0)
