"""A registry that for a moment does not know what somebody else is just writing, as docker-registry may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.services.bin_kit import entry_of, tags_of, whole
from tests.services.image_kit import push_image, push_index

from ebbtide.core.errors import NotFound, StoreError
from ebbtide.targets.oci.bin.entry import bin_repository, is_bin
from ebbtide.targets.oci.bin.moves import set_aside
from ebbtide.targets.oci.client.registry import Registry


class Forgetful:
    """Refuses one request of a kind as a registry does that does not know a blob, some times over."""

    def __init__(self, inner: Registry, method: str, reference: str, times: int) -> None:
        self._inner, self._method, self._reference, self.left = inner, method, reference, times

    def __getattr__(self, name: str) -> Any:
        """Pass calls on to the wrapped registry; refuse the first such request."""
        found = getattr(self._inner, name)
        return self._refusing(found) if name == self._method else found

    def _refusing(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(repository: str, reference: str, *rest: Any) -> Any:
            in_bin = is_bin(repository)
            if not self.left or not in_bin or not reference.startswith(self._reference):
                return request(repository, reference, *rest)
            self.left -= 1
            if self._method == "manifest":
                raise NotFound(f"{repository} has no manifest {reference}")
            raise StoreError("the registry answered 400 MANIFEST_BLOB_UNKNOWN")

        return refuse


@pytest.mark.parametrize(
    ("method", "reference", "times"),
    [("put_manifest", "m-", 1), ("put_manifest", "e-", 3), ("manifest", "m-", 6)],
)
def test_what_a_registry_forgets_for_a_moment(
    images: Registry, repository: str, method: str, reference: str, times: int
):
    """Setting aside goes on when the registry knows again what another task was just writing."""
    child = push_image(images, repository, layers=[b"one"])
    index = push_index(images, repository, ["v1"], [child])
    waits: list[float] = []
    forgetful: Any = Forgetful(images, method, reference, times)
    set_aside(forgetful, entry_of(repository, index, ["v1"]), sleep=waits.append)

    assert 0 == forgetful.left
    assert waits
    assert {f"e-{index.digest[7:]}", f"m-{index.digest[7:]}", f"m-{child.digest[7:]}"} == set(
        tags_of(images, bin_repository(repository))
    )
    assert whole(images, repository, index.digest) == whole(images, bin_repository(repository), index.digest)


def test_what_a_registry_never_knows_again(images: Registry, repository: str):
    """A registry that does not come to its senses ends it with what it said, and no entry is written."""
    pushed = push_image(images, repository, ["v1"])
    forgetful: Any = Forgetful(images, "put_manifest", "e-", 100)
    with pytest.raises(StoreError, match="BLOB_UNKNOWN"):
        set_aside(forgetful, entry_of(repository, pushed, ["v1"]), sleep=lambda _: None)

    assert {f"m-{pushed.digest[7:]}"} == set(tags_of(images, bin_repository(repository)))
