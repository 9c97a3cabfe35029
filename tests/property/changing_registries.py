"""Registries that change at random: many small ones in one, each with repositories of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from tests.services.image_kit import Pushed, push_image, push_index, push_signature

from ebbtide.core.errors import Refused, Unsupported
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Registry
from ebbtide.targets.oci.inventory.events import DELETE, PUSH, Event

TAGS = ["v1", "v2", "dev", "latest"]
KINDS = ["application/vnd.example.bundle+json", "application/vnd.docker.distribution.manifest.v1+prettyjws"]


@dataclass
class ChangingRepository:
    """One repository, what was pushed into it, and what was told of that."""

    registry: Registry
    name: str
    random: Random
    home: Path
    """The folder that all that the registry knows of this repository is in."""
    pushed: list[Pushed] = field(default_factory=list)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    referrers: dict[str, list[Pushed]] = field(default_factory=dict)
    """What was pushed with a subject, by that."""

    def change(self) -> None:
        """Do one thing."""
        if not self.pushed or self.random.random() < 0.3:
            return self._push()
        pushes = [self._move, self._index, self._sign, self._refer, self._cosign, self._odd]
        return self.random.choice([*pushes, self._delete, self._delete, self._untag, self._lose_child])()

    def vanish(self) -> None:
        """Be removed as a whole, behind the registry's back."""
        shutil.rmtree(self.home)
        self.pushed.clear()

    def events(self, since: datetime) -> Iterator[Event]:
        """Tell of some of what happened, at times around the last scan, maybe twice."""
        for action, tag, digest in self.told:
            for _ in range(self.random.choice([0, 1, 1, 2])):
                later = timedelta(minutes=self.random.randint(-90, 90))
                yield Event(action, self.name, tag, digest, since + later)
        self.told.clear()

    def _note(self, found: Pushed, *tags: str) -> None:
        self.pushed.append(found)
        self.told += [(PUSH, tag, found.digest) for tag in tags or ("",)]

    def _push(self) -> None:
        tags = self.random.sample(TAGS, self.random.randint(0, 2))
        name = f"{self.name} {self.random.random()}"
        self._note(push_image(self.registry, self.name, tags, name=name), *tags)

    def _move(self) -> None:
        """Let a tag stand for something that is there, or was."""
        found, tag = self.random.choice(self.pushed), self.random.choice(TAGS)
        with suppress(Exception):  # its blobs or children may be gone
            self.registry.put_manifest(self.name, tag, found.manifest)
            self.told.append((PUSH, tag, found.digest))

    def _index(self) -> None:
        tags = self.random.sample(TAGS, self.random.randint(0, 1))
        children = self.random.sample(self.pushed, min(len(self.pushed), 2))
        with suppress(Exception):  # a child may be gone
            self._note(push_index(self.registry, self.name, tags, children), *tags)

    def _sign(self) -> None:
        subject = self.random.choice(self.pushed)
        self._note(push_signature(self.registry, self.name, subject))

    def _refer(self) -> None:
        """Push a referrer that no tag shows."""
        subject = self.random.choice(self.pushed)
        found = push_image(self.registry, self.name, name=f"{self.random.random()}", subject=subject)
        self.referrers.setdefault(subject.digest, []).append(found)
        self.pushed.append(found)

    def _cosign(self) -> None:
        tag = f"{self.random.choice(self.pushed).digest.replace(':', '-')}.sig"
        self._note(push_image(self.registry, self.name, [tag], name=f"{self.random.random()}"), tag)

    def _delete(self) -> None:
        """Delete a manifest; servers delete children under their indexes too."""
        found = self.random.choice(self.pushed)
        with suppress(Refused):
            self.registry.delete_manifest(self.name, found.digest)
            self.told.append((DELETE, "", found.digest))

    def _lose_child(self) -> None:
        """Delete the child of an index, which servers let happen and folders do not."""
        child = push_image(self.registry, self.name, name=f"child {self.random.random()}")
        self._note(push_index(self.registry, self.name, ["latest"], [child]), "latest")
        with suppress(Refused):
            self.registry.delete_manifest(self.name, child.digest)

    def _untag(self) -> None:
        with suppress(Unsupported):
            self.registry.delete_tag(self.name, self.random.choice(TAGS))

    def _odd(self) -> None:
        """Write a manifest of a kind that nobody knows, which only a folder takes, and seldom."""
        if isinstance(self.registry, ImageLayout) and self.random.random() < 0.3:
            write_odd(self.registry, self.name, self.random.choice(KINDS))


def write_odd(layout: ImageLayout, repository: str, media_type: str) -> str:
    """Write a manifest of another kind under the tag `odd`, as no tool of ours would."""
    body = json.dumps({"mediaType": media_type, "parts": []}).encode()
    layout.put_blob(repository, digest_of(body), len(body), lambda: [body])
    index = layout.root / repository / "index.json"
    document = json.loads(index.read_text())
    notes = {"org.opencontainers.image.ref.name": "odd"}
    row = {"mediaType": media_type, "digest": digest_of(body), "size": len(body), "annotations": notes}
    rest = [one for one in document["manifests"] if one.get("annotations") != notes]
    index.write_text(json.dumps({**document, "manifests": [*rest, row]}))
    return digest_of(body)
