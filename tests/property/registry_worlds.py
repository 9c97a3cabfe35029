"""
Registries drawn at random: few manifests, tied together in every way, and many of them in one registry.

Every world has repositories and digests of its own, so that what runs in one says nothing of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ebbtide.core.instant import NEVER, days_after, parse_instant
from ebbtide.targets.oci.model import Image, Quarantine, QuarantineState, RunningImages, RunningReference, Tag
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Assigned, Policies

START = parse_instant("2018-01-01")
NOW = days_after(START, 10)
LETTERS = "abcdef"
TAGS = ["s1", "s2", "r1", "k1", "k2", "k3", "k4", "m1", "m-1", "abc-12", "d1", "ü"]
ENDS = ["", ".sig", ".att", ".sbom", ".other"]
NAMED = [None, "default", "Untagged", "Released", "quarantine-failed", "Forever", "Scrap", "Gone"]

_POLICIES = {
    "Scrap": {"days": 1, "recycle": False},
    "Zapped": {"days": 5, "recycle": False},
    "Forever": {"never": True},
    "Month": {"months": 1, "can_delete_prior": False},
}
_ASSIGN = [
    {"repository": "*", "tag": "s.*", "policy": "Scrap"},
    {"repository": "*/app", "tag": "r.*", "policy": "Released"},
    {"repository": "*/lib", "tag": "[dr].*", "policy": "Zapped"},
    {"repository": "*", "tag": "(m|x)+.*", "policy": "Month"},
]
_NEWEST = [
    {"repository": "*/app", "tag": "k.*", "count": 1},
    {"repository": "*", "tag": "k.*", "count": 2},
    {"repository": "*1*", "tag": ".*", "count": 3},
]
DOCUMENTS = [
    {"policies": _POLICIES, "assign": _ASSIGN},
    {"policies": _POLICIES, "assign": _ASSIGN[::-1], "keep_newest": _NEWEST, "unmatched": "Zapped"},
    {
        "policies": {**_POLICIES, "Untagged": {"days": 2, "recycle": False}},
        "keep_newest": _NEWEST[:2],
        "assign": _ASSIGN[:1],
        "unmatched": "keep",
    },
]


@dataclass(frozen=True)
class RegistryWorld:
    """A registry of many small ones, and what is asked of it."""

    policies: Policies
    images: tuple[Image, ...]
    running: RunningImages | None


def registry_world(document: dict[str, object], numbers: range) -> RegistryWorld:
    """Draw a registry for each number, and what runs in them."""
    images, references = list[Image](), list[RunningReference]()
    for number in numbers:
        random = Random(number)
        found = _World(random, number).images()
        images += found
        references += [_reference(random, found) for _ in range(random.choice([0, 0, 1, 2]))]
    return RegistryWorld(read_policies(document), tuple(images), RunningImages(tuple(references)))


def digest(letter: str, number: int) -> str:
    """Make a digest that no other world has."""
    return f"sha256:{f'{letter}{number:03x}' * 16}"


@dataclass(frozen=True)
class _World:
    """Draws one world."""

    random: Random
    number: int

    def images(self) -> list[Image]:
        repositories = [f"w{self.number}/app", f"w{self.number}/lib"][: self.random.choice([1, 1, 2])]
        return [image for repository in repositories for image in self._repository(repository)]

    def _repository(self, repository: str) -> list[Image]:
        letters = self.random.sample(LETTERS, self.random.randint(1, 6))
        stems = [digest(letter, self.number).replace(":", "-") for letter in LETTERS]
        names = [*TAGS, *(self.random.choice(stems) + end for end in ENDS)]
        chosen = self.random.sample(names, self.random.randint(0, 9))
        places = [self.random.choice(letters) for _ in set(chosen)]
        tags = list(zip(sorted(set(chosen)), places, strict=True))
        return [
            self._image(repository, letter, tuple(self._tag(name) for name, place in tags if place == letter))
            for letter in letters
        ]

    def _image(self, repository: str, letter: str, tags: tuple[Tag, ...]) -> Image:
        one = self.random
        children = [digest(one.choice(LETTERS), self.number) for _ in range(one.choice([0, 0, 0, 1, 2, 3]))]
        subject = digest(one.choice(LETTERS), self.number) if one.random() < 0.25 else None
        return Image(
            repository,
            digest(letter, self.number),
            tags,
            tuple(children),
            subject,
            self._time(),
            self._time(),
            self._quarantine(),
            self._assigned(),
            one.random() < 0.1,
            "application/vnd.oci.image.manifest.v1+json",
            one.choice([None, 0, 400]),
            self._time(),
            one.choice([None, *(days_after(START, days) for days in (-3, -2, -1))]),
        )

    def _tag(self, name: str) -> Tag:
        asked, copied = self.random.random() < 0.1, self.random.random() < 0.4
        return Tag(name, self._time(), self._assigned(), asked, self._time(), copied)

    def _time(self):
        return self.random.choice(
            [None, None, *(days_after(START, days) for days in (0, 1, 2, 5, 8, 10, 12))]
        )

    def _quarantine(self) -> Quarantine | None:
        if self.random.random() < 0.8:
            return None
        return Quarantine(self.random.choice(list(QuarantineState)), self._time())

    def _assigned(self) -> Assigned:
        one = self.random
        if one.random() < 0.6:
            return Assigned()
        prior, recycle = one.choice([None, None, True, False]), one.choice([None, True, False])
        return Assigned(one.choice(NAMED), one.choice([self._time(), self._time(), NEVER]), prior, recycle)


def _reference(random: Random, images: list[Image]) -> RunningReference:
    """Name something of a world, or nearly so, in one of the ways in which runtimes do."""
    image = random.choice(images)
    repository = random.choice(["", "host.example/", "localhost:5000/library/"]) + image.repository
    tag = random.choice([one.name for one in image.tags] or ["gone"])
    return random.choice(
        [
            RunningReference(repository, tag),
            RunningReference(repository, None, image.digest),
            RunningReference(None, None, image.digest),
            RunningReference(repository, tag, random.choice(images).digest),
        ]
    )
