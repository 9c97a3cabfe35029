"""The collector of a deleted repository: when a plan is stale."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from ebbtide.core.errors import StalePlan
from ebbtide.core.instant import format_instant
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.repository import DeletedCatalogRepository
from ebbtide.targets.repository.deleted_repository import DeletedRepositoryCollector
from ebbtide.targets.repository.model import DeletedRepository

DAY = datetime(2026, 1, 1, tzinfo=UTC)
GONE = DeletedRepository("lake", "1", "s3://bucket/ns", DAY)
PLANNED = SimpleNamespace(
    target="lake:lake",
    target_uid=GONE.uid,
    namespace=GONE.namespace,
    policy=f'{{"deleted": "{format_instant(DAY)}"}}',
)


def target(retired, *namespaces):
    """Give the target, with a catalog that knows these deleted and living repositories."""
    living = [Repository(f"r{number}", "9", place, "main", DAY) for number, place in enumerate(namespaces)]
    catalog = SimpleNamespace(
        deleted_repositories=lambda: retired,
        repositories=lambda: living,
        check_deleted_owner=lambda _uid: None,
    )
    return DeletedRepositoryCollector(SimpleNamespace(), DeletedCatalogRepository(catalog, GONE))


def test_a_plan_holds_while_nothing_has_changed():
    """Other repositories, living and deleted, are no reason to stop."""
    other = replace(GONE, uid="2", namespace="s3://bucket/other")
    target([other, GONE], "s3://bucket/ns2", "s3://elsewhere/ns").check_unchanged(PLANNED)


@pytest.mark.parametrize(
    ("retired", "living", "words"),
    [
        ([], [], "was forgotten"),
        ([replace(GONE, uid="2")], [], "was forgotten"),
        ([replace(GONE, namespace="s3://bucket/other")], [], "was in s3://bucket/other, not s3://bucket/ns"),
        ([replace(GONE, deleted=DAY.replace(day=2))], [], "was deleted at another time"),
        ([GONE], ["s3://bucket/ns"], "repository 'r0' has the namespace"),
        ([GONE], ["s3://bucket/a", "s3://bucket/ns/inside"], "repository 'r1' has the namespace"),
        ([GONE], ["s3://bucket"], "repository 'r0' has the namespace"),
    ],
)
def test_a_plan_for_something_else_is_stale(retired, living, words):
    """A repository that was forgotten, is another one, or whose place is taken stops the run."""
    with pytest.raises(StalePlan, match=words):
        target(retired, *living).check_unchanged(PLANNED)
