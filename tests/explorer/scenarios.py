"""What the explorer explores: the races of seed 002 by their names, others, and larger scenarios."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from tests.explorer.exploring import Explored, Explorer
from tests.explorer.laboratory import Laboratory
from tests.explorer.stepping import Script

from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.lake.reaper import Reaped, Reaper, ReapOptions, StoreRemover

AT_ONCE = ReapOptions(grace=timedelta(0), lease=timedelta(0), retry=timedelta(0), batch=10)
"""No grace period: whatever is queued is due, and a fence is taken over at once."""

Operations = dict[str, list[str]]
Preparation = Callable[[Laboratory], None]


@dataclass(frozen=True)
class Scenario:
    """Some actors with something to do each, and what is there before they begin."""

    name: str
    prepare: Preparation
    actors: Operations
    abandons_imports: bool = False
    """An import that crashed over a day ago stops the reaper until a person says that it is not wanted."""

    def explore(self, folder: Path, kind: type[Catalog] = Catalog, crashes: int = 1) -> Explored:
        """Explore everything that can happen."""
        folder.mkdir(parents=True, exist_ok=True)
        lab = Laboratory(folder, kind)
        self.prepare(lab)
        lab.freeze()
        with closing(lab):
            return Explorer(lab, self._scripts, lambda: self._finish(lab), crashes).explore()

    def _finish(self, lab: Laboratory) -> None:
        """Reap all that is left."""
        if self.abandons_imports:
            lab.catalog.forget_history("lake", None, "operator")
        Reaper(lab.catalog, AT_ONCE, StoreRemover(page=1)).reap(lab.target)

    def _scripts(self, lab: Laboratory) -> dict[str, Script]:
        return {name: [operation(lab, words) for words in wanted] for name, wanted in self.actors.items()}


def operation(lab: Laboratory, words: str) -> tuple[str, Callable[[], object]]:
    """Turn words, as in `move a b`, into a call of the catalog."""
    verb, *rest = words.split()
    catalog = lab.catalog
    calls: dict[str, Callable[..., object]] = {
        "upload": lambda key: catalog.upload("lake", "main", key, b"x"),
        "copy": lambda source, target: catalog.copy("lake", "main", source, target),
        "move": lambda source, target: catalog.move("lake", "main", source, target),
        "delete": lambda key: catalog.delete("lake", "main", key),
        "reset": lambda prefix=None: catalog.reset("lake", "main", prefix),
        "commit": lambda: catalog.commit("lake", "main", "m"),
        "link": lambda: catalog.link_physical_address("lake", "main", "k", lab.token, size=1),
        "import": lambda: catalog.import_entries("lake", "main", [lab.imported], "import"),
        "reap": lambda: _reap_batch(lab),
        "tidy": lambda: catalog.tidy_queue(lab.target, timedelta(days=7)),
    }
    return words, lambda: calls[verb](*rest)


def _reap_batch(lab: Laboratory) -> None:
    reaper = Reaper(lab.catalog, AT_ONCE, StoreRemover(page=1))
    reaper.owner = "reaper"
    reaper.reap_batch(lab.target, Reaped("lake"))


def staged(*keys: str) -> Preparation:
    """Stage keys, with an object each."""

    def prepare(lab: Laboratory) -> None:
        for key in keys:
            lab.catalog.upload("lake", "main", key, b"x")

    return prepare


def committed(*keys: str, then: Preparation | None = None) -> Preparation:
    """Commit keys, with an object each; then do something else."""

    def prepare(lab: Laboratory) -> None:
        staged(*keys)(lab)
        lab.catalog.commit("lake", "main", "before")
        if then is not None:
            then(lab)

    return prepare


def with_token(lab: Laboratory) -> None:
    """Upload to a physical address whose token is open by all clocks but the reaper's."""
    given = lab.catalog.get_physical_address("lake", "main", "k")
    lab.catalog.store("lake").write(given.address, b"x")
    lab.token = given.token
    lab.ahead = {"reaper": timedelta(days=2)}


def with_import(lab: Laboratory) -> None:
    """Stage an object, and have an entry for it that is to be imported."""
    entry = lab.catalog.upload("lake", "main", "a", b"x")
    row = {"key": "z", "address": entry.address, "created": entry.created, "size": 1, "checksum": ""}
    lab.imported = pa.Table.from_pylist([row], schema=ENTRIES)


def with_old_fence(lab: Laboratory) -> None:
    """Have the last fence be so old that the reaper, whose clock is ahead, forgets it; then with_import."""
    lab.catalog.upload("lake", "main", "old", b"x")
    lab.catalog.delete("lake", "main", "old")
    _reap_batch(lab)
    with_import(lab)
    lab.ahead = {"reaper": timedelta(days=8)}


COMMIT_MOVE = Scenario(
    "commit-move", staged("a"), {"committer": ["commit"], "mover": ["move a b", "reset"], "reaper": ["reap"]}
)
DELETE_MOVE = Scenario(
    "delete-move", staged("a"), {"deleter": ["delete a"], "mover": ["move a b"], "reaper": ["reap"]}
)
CONCURRENT_MOVE = Scenario(
    "concurrent move",
    staged("a"),
    {"one": ["move a b"], "other": ["move a c", "delete c"], "reaper": ["reap"]},
)
STALE_LOCK = Scenario(
    "stale lock",
    staged("a", "a"),
    {"writer": ["upload a"], "reaper": ["reap"], "successor": ["reap"]},
)
LINK = Scenario("link", with_token, {"linker": ["link", "commit"], "reaper": ["tidy", "reap"]})
IMPORT = Scenario("import", with_import, {"importer": ["import"], "resetter": ["reset"], "reaper": ["reap"]})
IMPORT_LATE = Scenario(
    "import while fences are forgotten",
    with_old_fence,
    {"importer": ["import"], "resetter": ["reset"], "reaper": ["tidy", "reap"]},
    abandons_imports=True,
)
RACES = (COMMIT_MOVE, DELETE_MOVE, CONCURRENT_MOVE, STALE_LOCK, LINK, IMPORT, IMPORT_LATE)

MEDIUM = Scenario(
    "a writer, a committer and a reaper",
    committed("a", then=staged("b")),
    {"writer": ["copy a c", "upload b", "reset"], "committer": ["commit"], "reaper": ["reap"]},
)
LARGE = Scenario(
    "two writers, a committer and a reaper, three objects",
    committed("a", then=staged("b")),
    {
        "one": ["copy a c", "upload b"],
        "other": ["move b d", "delete c"],
        "committer": ["commit"],
        "reaper": ["reap"],
    },
)
EVERYTHING = (*RACES, MEDIUM, LARGE)
