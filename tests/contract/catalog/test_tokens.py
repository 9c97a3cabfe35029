"""Physical addresses: uploads that bypass the catalog and are linked afterwards."""

from datetime import timedelta

import pytest

from ebbtide.core.errors import NotFound, Refused
from ebbtide.targets.lake.catalog import uploads


@pytest.fixture
def issued(catalog):
    """Issue a token for key `k` on main and upload its object."""
    made = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(made.address, b"12345")
    return made


def test_a_linked_object_is_staged(catalog, issued, clock):
    """An upload to the address, linked with its token, is an entry like any other."""
    clock.advance(hours=23)

    entry = catalog.link_physical_address("lake", "main", "k", issued.token, size=5, checksum="c")

    assert (issued.address, clock(), 5, "c") == (entry.address, entry.created, entry.size, entry.checksum)
    assert catalog.read("lake", "main", "k") == b"12345"


def test_an_address_is_in_the_branches_path_and_expires_after_a_day(catalog, issued, clock):
    """The address follows the path convention; the token lives for 24 hours."""
    uid = catalog.repository("lake").uid

    assert issued.address.startswith(f"repos/{uid}/branches/main-")
    assert clock() + timedelta(hours=24) == issued.expires


def test_a_token_works_once(catalog, issued):
    """A second link with the same token is refused."""
    catalog.link_physical_address("lake", "main", "k", issued.token, size=5)

    with pytest.raises(Refused, match="used before"):
        catalog.link_physical_address("lake", "main", "k", issued.token, size=5)


def test_a_token_expires(catalog, issued, clock):
    """At the very moment of its expiry a token is good no more."""
    clock.advance(hours=24)

    with pytest.raises(Refused, match=r"expired at 2026-01-02T00:00:00Z.*What to do: ask for a new"):
        catalog.link_physical_address("lake", "main", "k", issued.token, size=5)


@pytest.mark.parametrize(
    ("repo", "branch", "key"), [("lake", "main", "other"), ("lake", "b1", "k"), ("lake2", "main", "k")]
)
def test_a_token_is_bound_to_its_place(catalog, issued, tmp_path, repo, branch, key):
    """A token links only on the repository, branch and key it was issued for."""
    catalog.create_branch("lake", "b1", "main")
    catalog.create_repository("lake2", str(tmp_path / "lake2"))

    with pytest.raises(Refused, match="issued for another"):
        catalog.link_physical_address(repo, branch, key, issued.token, size=5)


def test_an_unknown_token_is_refused(catalog):
    """A token that nobody issued links nothing."""
    with pytest.raises(Refused, match="never issued"):
        catalog.link_physical_address("lake", "main", "k", "invented", size=5)


def test_the_object_must_be_there_and_whole(catalog):
    """Linking before the upload, or with another size, is refused and does not use the token up."""
    made = catalog.get_physical_address("lake", "main", "k")
    with pytest.raises(Refused, match="no object at"):
        catalog.link_physical_address("lake", "main", "k", made.token, size=5)
    catalog.store("lake").write(made.address, b"123")
    with pytest.raises(Refused, match="has 3 bytes, not 5"):
        catalog.link_physical_address("lake", "main", "k", made.token, size=5)

    entry = catalog.link_physical_address("lake", "main", "k", made.token, size=3)

    assert made.address == entry.address


def test_a_token_dies_with_its_branch(catalog):
    """A branch made anew under the same name does not take the old one's tokens."""
    catalog.create_branch("lake", "b1", "main")
    made = catalog.get_physical_address("lake", "b1", "k")
    catalog.delete_branch("lake", "b1")
    with pytest.raises(NotFound, match="no branch"):
        catalog.link_physical_address("lake", "b1", "k", made.token, size=0)
    catalog.create_branch("lake", "b1", "main")

    with pytest.raises(Refused, match="never issued"):
        catalog.link_physical_address("lake", "b1", "k", made.token, size=0)


def _open(catalog):
    """Read the open uploads as (address, expiry), in order."""
    rows = (row for page in catalog.open_uploads("lake") for row in page.to_pylist())
    return sorted((row["address"], row["expires"]) for row in rows)


def test_open_uploads_are_those_that_can_still_be_linked(catalog, issued, clock):
    """A run can ask which addresses wait for their link: not those linked or expired."""
    clock.advance(hours=12)
    linked = catalog.get_physical_address("lake", "main", "x")
    catalog.store("lake").write(linked.address, b"")
    catalog.link_physical_address("lake", "main", "x", linked.token, size=0)
    waiting = catalog.get_physical_address("lake", "main", "y")
    both = _open(catalog)
    clock.advance(hours=12)

    assert sorted([(issued.address, issued.expires), (waiting.address, waiting.expires)]) == both
    assert [(waiting.address, waiting.expires)] == _open(catalog)


def test_a_token_that_can_be_linked_is_open_to_the_last(catalog, issued, clock):
    """A microsecond before its expiry a token is listed as open and still links."""
    clock.advance(hours=24, microseconds=-1)
    listed = _open(catalog)

    entry = catalog.link_physical_address("lake", "main", "k", issued.token, size=5)

    assert [(entry.address, issued.expires)] == listed
    assert [] == _open(catalog)


def test_a_token_that_expires_while_it_is_linked_is_refused(catalog, issued, clock, monkeypatch):
    """The time that counts is that of the lock: what a run may take for expired is never linked after."""
    real = catalog._check_uploaded

    def slowly(*args):
        real(*args)
        clock.advance(hours=24)

    monkeypatch.setattr(catalog, "_check_uploaded", slowly)

    with pytest.raises(Refused, match="expired"):
        catalog.link_physical_address("lake", "main", "k", issued.token, size=5)
    assert () == catalog.prepare_uncommitted("lake")


def test_what_is_linked_after_the_open_uploads_were_read_is_in_the_snapshot(catalog, issued):
    """A run that asks for open uploads first and for a snapshot then misses no upload in flight."""
    before = _open(catalog)
    entry = catalog.link_physical_address("lake", "main", "k", issued.token, size=5)

    snapshot = catalog.snapshot("lake")

    assert [issued.address] == [address for address, _ in before] == [entry.address]
    assert [("main", 1)] == [(staged.branch, staged.count) for staged in snapshot.staged]


def test_open_uploads_come_in_pages_of_one_moment(catalog, monkeypatch):
    """Tokens that are issued or used while the pages are read change nothing in them."""
    monkeypatch.setattr(uploads, "PAGE", 4)
    made = [catalog.get_physical_address("lake", "main", f"k{i}") for i in range(10)]
    catalog.store("lake").write(made[-1].address, b"")
    pages = catalog.open_uploads("lake")
    first = next(pages)
    catalog.get_physical_address("lake", "main", "late")
    catalog.link_physical_address("lake", "main", "k9", made[-1].token, size=0)

    rest = list(pages)

    assert [4, 4, 2] == [page.num_rows for page in (first, *rest)]
    assert {uploads.OPEN_UPLOADS} == {page.schema for page in (first, *rest)}
    listed = [address for page in (first, *rest) for address in page.column("address").to_pylist()]
    assert sorted(one.address for one in made) == sorted(listed)


def test_open_uploads_are_of_one_repository(catalog, issued, tmp_path):
    """Every branch counts, other repositories and branches that are gone do not."""
    catalog.create_repository("other", str(tmp_path / "other"))
    catalog.get_physical_address("other", "main", "k")
    for branch in ("b1", "b2"):
        catalog.create_branch("lake", branch, "main")
    kept = catalog.get_physical_address("lake", "b1", "k")
    catalog.get_physical_address("lake", "b2", "k")
    catalog.delete_branch("lake", "b2")

    assert sorted([issued.address, kept.address]) == [address for address, _ in _open(catalog)]
