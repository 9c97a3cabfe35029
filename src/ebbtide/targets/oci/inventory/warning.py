"""What a scan says besides its tables: kinds that are not understood, and lists that look odd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebbtide.targets.oci.base import Ability, Capabilities
from ebbtide.targets.oci.inventory.engine import Scope, Tagged
from ebbtide.targets.oci.inventory.questions import WITHOUT_MANIFESTS


@dataclass(frozen=True)
class OddKind:
    """Manifests of a repository that are of a kind that Ebbtide does not understand."""

    repository: str
    media_type: str
    count: int

    @property
    def may_need_manifests(self) -> bool:
        """Tell whether they may point at manifests, as an index does: nobody here can say which."""
        return self.media_type not in WITHOUT_MANIFESTS

    def __str__(self) -> str:
        """Say what they are, and what follows from it."""
        what = f"{self.count} of the manifests of {self.repository} are of the kind {self.media_type!r}"
        if self.may_need_manifests:
            return f"{what}, which Ebbtide does not understand: no manifest of this repository is deleted"
        return f"{what}, which Ebbtide does not understand: they are not deleted"


def odd_kinds(counts: Mapping[tuple[str, str], int]) -> list[OddKind]:
    """Name the kinds that are not understood, by repository and kind."""
    return [OddKind(*name, count) for name, count in sorted(counts.items())]


def about_lists(scope: Scope, tagged: Tagged[Any]) -> Iterator[str]:
    """Tell of repositories that are known and not listed."""
    for name in scope.known:
        gone = name in tagged.absent
        yield f"{name} is gone" if gone else f"{name} is there, but the registry does not list it any more"


def about_tags(repositories: Sequence[str]) -> Iterator[str]:
    """Tell of repositories that have lost all their tags."""
    yield from (f"{name} had tags at the last scan and has none now" for name in repositories)


def about_referrers(able: Capabilities | None) -> Iterator[str]:
    """Tell that new signatures may not have been seen."""
    if able is not None and able.referrers_api in (Ability.DENIED, Ability.UNKNOWN):
        yield "the registry does not say what refers to an image: new signatures without a tag are not seen"
