"""The recycle bin, cut off after every single change: nothing is lost, and the same call finishes."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.contract.registry.conftest import connected
from tests.services.bin_kit import DAY, NOON, Team, entry_of, push_team, recycle_all, tags_of, whole
from tests.services.crashing_registry import CrashingRegistry, CutOffError, crash_everywhere
from tests.services.image_kit import Pushed, fresh_repository, push_image, push_index
from tests.services.registry import RegistryServer

from ebbtide.core.errors import NotFound
from ebbtide.targets.oci.bin.contents import (
    clear_leftovers,
    discard,
    entries,
    free_blobs,
    leftovers,
    read_entry,
)
from ebbtide.targets.oci.bin.entry import BinEntry, bin_repository
from ebbtide.targets.oci.bin.image_copy import closure_of
from ebbtide.targets.oci.bin.moves import restore, set_aside
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec

BIN = bin_repository("app")


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """
    Fill a folder of layouts once, and give a way to make copies of it.

    A process that is killed loses nothing that it has written, so the disk need not be waited for.
    """
    monkeypatch.setattr("os.fsync", lambda _file: None)
    numbers = itertools.count()

    def fill(push: Callable[[ImageLayout], Any]) -> tuple[Any, Callable[[], ImageLayout]]:
        (tmp_path / "first").mkdir()
        pushed = push(ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}/first")))

        def copy() -> ImageLayout:
            folder = shutil.copytree(tmp_path / "first", tmp_path / f"copy{next(numbers)}")
            return ImageLayout(RegistrySpec(f"oci-layout:{folder}"))

        return pushed, copy

    return fill


def inner(registry: Registry) -> Registry:
    """Look at a registry without being counted."""
    return registry.inner if isinstance(registry, CrashingRegistry) else registry


def is_safe(registry: Registry, team: Team, bytes_of: dict[str, dict[str, bytes]]) -> None:
    """Check that every image is whole in its place or whole in the bin under a sound entry."""
    for digest, expected in bytes_of.items():
        try:
            found = whole(registry, team.repository, digest)
        except NotFound:
            read_entry(registry, team.repository, digest)
            found = whole(registry, bin_repository(team.repository), digest)
        assert expected == found


def test_setting_aside(copies):
    """Cut off while it is set aside, an image has an entry only if its copy is whole."""

    def push(layout: ImageLayout) -> tuple[Team, dict[str, bytes]]:
        team = push_team(layout, "app")
        set_aside(layout, entry_of("app", team.sibling, ["v2"]))
        return team, whole(layout, "app", team.multi.digest)

    (team, expected), copy = copies(push)
    digest = team.multi.digest

    def act(registry: Registry) -> None:
        real = inner(registry)
        try:
            set_aside(registry, entry_of("app", team.multi, ["v1"]))
        finally:
            assert expected == whole(real, "app", digest)
            if digest in {entry.digest for entry in entries(real, "app")}:
                assert expected == whole(real, BIN, digest)
        assert ("v1",) == read_entry(real, "app", digest).tag_names
        assert [] == leftovers(real, BIN)

    assert 5 == crash_everywhere(copy, act)


def test_setting_aside_again(copies):
    """Cut off while an entry is replaced by a later one, the bin has the one or the other."""

    def push(layout: ImageLayout) -> Pushed:
        pushed = push_image(layout, "app", ["v1"])
        set_aside(layout, entry_of("app", pushed, ["v1"]))
        return pushed

    pushed, copy = copies(push)
    later = entry_of("app", pushed, ["v2"], NOON + DAY)

    def act(registry: Registry) -> None:
        real = inner(registry)
        try:
            set_aside(registry, later)
        finally:
            assert read_entry(real, "app", pushed.digest).tag_names in {("v1",), ("v1", "v2")}
        entry = read_entry(real, "app", pushed.digest)
        assert ("v1", "v2") == entry.tag_names
        discard(real, entry)
        assert {} == tags_of(real, BIN)
        assert [] == list(real.untagged(BIN))

    assert 2 == crash_everywhere(copy, act)


@dataclass(frozen=True)
class Recycled:
    """A team whose images lie in the bin, and all that they were before."""

    team: Team
    bytes_of: dict[str, dict[str, bytes]]
    tags: dict[str, str]
    multi: BinEntry

    @classmethod
    def push(cls, layout: Registry, repository: str = "app") -> Recycled:
        """Push a team and recycle all but one image."""
        team = push_team(layout, repository)
        bytes_of = {entry.digest: whole(layout, repository, entry.digest) for entry in team.entries}
        tags = tags_of(layout, repository)
        kept = recycle_all(layout, team.entries)
        return cls(team, bytes_of, tags, next(e for e in kept if e.digest == team.multi.digest))


def test_restoring(copies):
    """Cut off while they are restored, images are whole in their place or in the bin; again finishes it."""
    known, copy = copies(Recycled.push)
    others = {known.team.sibling.digest, known.team.old.digest}

    def act(registry: Registry) -> None:
        real = inner(registry)
        try:
            done = restore(registry, known.multi)
        finally:
            is_safe(real, known.team, known.bytes_of)
        assert ("latest", "v1") == done.tags
        assert {tag: d for tag, d in known.tags.items() if tag != "v2"} == tags_of(real, "app")
        assert others == {entry.digest for entry in entries(real, "app")}
        clear_leftovers(real, BIN)
        assert len(tags_of(real, BIN)) == len(others) + len(
            {d for digest in others for d in closure_of(real, BIN, digest).digests}
        )

    assert crash_everywhere(copy, act) > 18


def test_discarding(copies):
    """Cut off while an image is discarded, all others in the bin stay whole; again leaves nothing of it."""
    known, copy = copies(Recycled.push)
    digest = known.team.multi.digest
    others = {name: found for name, found in known.bytes_of.items() if name != digest}

    def act(registry: Registry) -> None:
        real = inner(registry)
        try:
            discard(registry, known.multi)
        finally:
            is_safe(real, known.team, others)
        assert [] == leftovers(real, BIN) == free_blobs(real, BIN)
        with pytest.raises(NotFound):
            real.manifest(BIN, digest)

    assert crash_everywhere(copy, act) > 3


@pytest.mark.parametrize(("at", "after"), [(3, True), (14, False), (27, True), (40, False)])
def test_restoring_on_a_server(registry: RegistryServer, at: int, after: bool):  # noqa: FBT001 (a column)
    """On a server too, a restore that was cut off loses nothing and is finished by the same call."""
    with connected(registry.endpoint) as client:
        known = Recycled.push(client, fresh_repository())
        with pytest.raises(CutOffError):
            restore(CrashingRegistry(client, at, after), known.multi)
        is_safe(client, known.team, known.bytes_of)
        done = restore(client, known.multi)

        assert ("latest", "v1") == done.tags
        assert known.bytes_of[known.multi.digest] == whole(client, known.team.repository, known.multi.digest)


@pytest.mark.parametrize("at", range(0, 12, 2))
def test_setting_aside_on_a_server(registry: RegistryServer, at: int):
    """On a server too, an entry appears only when the copy is whole, and the same call finishes it."""
    with connected(registry.endpoint) as client:
        name = fresh_repository()
        pushed = push_image(client, name, ["v1"], layers=[b"one", b"two"])
        expected = whole(client, name, pushed.digest)
        with pytest.raises(CutOffError):
            set_aside(CrashingRegistry(client, at, after=True), entry_of(name, pushed, ["v1"]))
        for entry in entries(client, name):
            assert expected == whole(client, entry.bin, pushed.digest)
        entry = set_aside(client, entry_of(name, pushed, ["v1"]))

        assert [entry] == list(entries(client, name))
        assert expected == whole(client, name, pushed.digest) == whole(client, entry.bin, pushed.digest)


@pytest.mark.parametrize("change", range(3))
def test_discarding_on_a_server(registry: RegistryServer, change: int):
    """On a server too, a discard that was cut off spares what is shared and is finished by the next."""
    with connected(registry.endpoint) as client:
        name = fresh_repository()
        children = [push_image(client, name, name=arch) for arch in ("amd64", "arm64")]
        index = push_index(client, name, ["v1"], children)
        kept = set_aside(client, entry_of(name, children[0], ["child"]))
        doomed = set_aside(client, entry_of(name, index, ["v1"]))
        deletes = itertools.count()

        class Killed:
            """The registry, until its n-th delete has been done."""

            def __getattr__(self, name: str):
                return getattr(client, name)

            def delete_manifest(self, repository: str, digest: str) -> bool:
                """Delete it, and be killed."""
                done = client.delete_manifest(repository, digest)
                if next(deletes) == change:
                    raise CutOffError
                return done

        with pytest.raises(CutOffError):
            discard(Killed(), doomed)
        discard(client, doomed)

        assert [] == leftovers(client, doomed.bin)
        assert [kept] == list(entries(client, name))
        assert {children[0].digest, client.resolve(kept.bin, kept.tag).digest} == set(
            tags_of(client, kept.bin).values()
        )
        assert whole(client, name, children[0].digest) == whole(client, kept.bin, children[0].digest)
