"""Tags that users put or move between the scan before a batch and its deletes are never lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pytest
from tests.services.bin_kit import tags_of, whole
from tests.services.image_kit import Pushed, push_image, push_index

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import NotFound
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.policies.policy import RECYCLE_BIN
from ebbtide.targets.oci.purge.actor import Action, PlannedItem, Remover, bin_entry
from ebbtide.targets.oci.purge.recheck import TagRecheck

APP = "app"
NOW = datetime(2026, 1, 6, tzinfo=UTC)


@dataclass
class Model:
    """A repository as its users know it; it shares no code with what is tested."""

    client: ImageLayout
    random: Random
    pushed: dict[str, Pushed] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    subject: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    count: int = 0

    def fill(self) -> None:
        """Push images, two indexes of them, a signature, and tags."""
        for number in range(5):
            self._add(push_image(self.client, APP, name=str(number)))
        images = list(self.pushed)
        for _ in range(2):
            self.push_index(self.random.sample(images, 2))
        about = self.random.choice(images)
        self._add(push_image(self.client, APP, name="signature", subject=self.pushed[about]), about)
        for number in range(self.random.randint(0, 9)):
            self.put(f"t{number}", self.random.choice(list(self.pushed)))

    def _add(self, pushed: Pushed, subject: str = "") -> str:
        self.pushed[pushed.digest] = pushed
        self.children.setdefault(pushed.digest, [])
        self.subject[pushed.digest] = subject
        return pushed.digest

    def push_index(self, children: list[str]) -> str:
        """Push an index of images that are there."""
        digest = self._add(push_index(self.client, APP, [], [self.pushed[one] for one in children]))
        self.children[digest] = children
        return digest

    def put(self, tag: str, digest: str) -> None:
        """Put or move a tag."""
        self.client.put_manifest(APP, tag, self.pushed[digest].manifest)
        self.tags[tag] = digest

    def reached(self, digest: str) -> set[str]:
        """Return a manifest with its children."""
        return {digest}.union(*(self.reached(child) for child in self.children[digest]))

    def draw_plan(self) -> list[str]:
        """Draw manifests that go: no index that stays lists one of them; indexes come first."""
        going = {digest for digest in self.pushed if self.random.random() < 0.7}
        for digest, children in self.children.items():
            if digest not in going:
                going.difference_update(children)
        return sorted(going, key=lambda digest: (not self.children[digest], digest))

    def change(self, kinds: tuple[str, ...]) -> None:
        """Do what a user may do meanwhile."""
        there = sorted(self.pushed.keys() - self.gone)
        whole_ones = [one for one in there if not self.gone & self.reached(one)]
        kind, self.count = self.random.choice(kinds), self.count + 1
        if kind == "new" and whole_ones:
            self.put(f"new{self.count}", self.random.choice(whole_ones))
        elif kind == "index" and whole_ones:
            digest = self.push_index([self.random.choice(whole_ones)])
            self.put(f"index{self.count}", digest)
        elif kind == "move" and whole_ones and self.tags:
            self.put(self.random.choice(sorted(self.tags)), self.random.choice(whole_ones))
        elif kind == "delete" and self.tags:
            tag = self.random.choice(sorted(self.tags))
            self.client.delete_tag(APP, tag)
            del self.tags[tag]

    def must_stay(self, digest: str, scanned: dict[str, str]) -> bool:
        """Return True if a new or moved tag needs a manifest, or the subject of its signature."""
        changed = [one for tag, one in self.tags.items() if scanned.get(tag) != one]
        needed = set().union(*map(self.reached, changed))
        return digest in needed or self.subject[digest] in needed

    def delete(self, digest: str) -> None:
        """Forget a manifest and its tags."""
        self.gone.add(digest)
        self.tags = {tag: one for tag, one in self.tags.items() if one != digest}


class Busy:
    """A registry whose users do something before each list of tags."""

    def __init__(self, model: Model, chance: float) -> None:
        self.model, self.chance = model, chance

    def __getattr__(self, name: str):
        """Return the tags and manifests of the registry."""
        return getattr(self.model.client, name)

    def tags(self, repository: str):
        """List, after a user did something; a list alone shows new tags, so that is what users put."""
        if repository == APP and self.model.random.random() < self.chance:
            self.model.change(("new", "index"))
        return self.model.client.tags(repository)


def planned(digest: str, tags: dict[str, str], action: Action) -> list[PlannedItem]:
    """Plan for a manifest with all its tags."""
    names = ["", *(tag for tag, one in tags.items() if one == digest)]
    return [
        PlannedItem(number, APP, digest, tag, action, "Default", (), NOW, None)
        for number, tag in enumerate(names)
    ]


@pytest.mark.parametrize("action", [Action.DELETE, Action.RECYCLE])
@pytest.mark.parametrize("seed", range(25))
def test_no_tag_that_is_there_before_a_delete_is_lost(tmp_path, seed, action):
    """Whatever users push between scan and delete is whole afterwards, and all other planned images go."""
    random = Random(seed)
    model = Model(ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}")), random)
    model.fill()
    scanned, plan = dict(model.tags), model.draw_plan()
    for _ in range(random.randint(0, 3)):
        model.change(("new", "index", "move", "delete"))
    busy = Busy(model, random.choice([0, 0.3]))
    recheck = TagRecheck(busy, {APP: scanned})
    remover = Remover(busy, recheck, lambda group: bin_entry(group, RECYCLE_BIN, 7, NOW), again=False)
    for digest in plan:
        result = remover.remove(planned(digest, scanned, action))[0]
        went = result.outcome in (Outcome.DELETED, Outcome.RECYCLED)

        assert went is not model.must_stay(digest, scanned), result
        if went:
            model.delete(digest)
        assert model.tags == tags_of(model.client, APP)
    for digest in model.tags.values():
        assert whole(model.client, APP, digest)
    for digest in model.gone:
        with pytest.raises(NotFound):
            model.client.resolve(APP, digest)
