"""Writers and reapers at once on real connections: nothing is lost, nothing is left."""

from tests.stress import Stress

SECONDS = 4


def test_writers_and_reapers_at_once_lose_and_leave_nothing(open_catalog, tmp_path):
    """Three writers and two reapers, one of which dies now and then, end with exactly what is referenced."""
    stress = Stress(lambda: open_catalog(range_keys=4), str(tmp_path / "lake"), seed=1)
    found = stress.run(SECONDS, writers=3, reapers=2)
    print(found)  # noqa: T201 - how much was done is worth knowing when it fails

    assert ([], [], 0) == (found.lost, found.left, found.waiting)
    assert found.reaped["deleted"] > 0
    assert found.referenced > 0
