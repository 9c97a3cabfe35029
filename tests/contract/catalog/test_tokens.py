"""Physical addresses: uploads that bypass the catalog and are linked afterwards."""

from datetime import timedelta

import pytest

from ebbtide.errors import NotFound, Refused


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


def test_open_addresses_are_those_that_can_still_be_linked(catalog, issued, clock):
    """A run can ask which addresses wait for their link: not those linked or expired."""
    clock.advance(hours=12)
    linked = catalog.get_physical_address("lake", "main", "x")
    catalog.store("lake").write(linked.address, b"")
    catalog.link_physical_address("lake", "main", "x", linked.token, size=0)
    waiting = catalog.get_physical_address("lake", "main", "y")
    both = catalog.open_addresses("lake")
    clock.advance(hours=12)

    assert sorted([(issued.address, issued.expires), (waiting.address, waiting.expires)]) == both
    assert [(waiting.address, waiting.expires)] == catalog.open_addresses("lake")
