"""Random histories with reaps in between: what a plain model needs is there, and in the end nothing else."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stress import REPO, referenced, stored

from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.reaper import Reaper, ReapOptions

KEYS = st.sampled_from(["a", "b", "ab"])
BRANCHES = st.sampled_from(["main", "side"])
STEPS = st.one_of(
    st.tuples(st.just("upload"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("copy"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("move"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("delete"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("reset"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("commit"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("remake"), BRANCHES, KEYS, KEYS),
    st.tuples(st.just("reap"), BRANCHES, KEYS, KEYS),
)


class History:
    """A catalog, and what its versions must hold: key to bytes."""

    def __init__(self, folder: str) -> None:
        self.catalog = Catalog(f"sqlite:///{folder}/catalog.db", range_keys=2)
        self.catalog.create_repository(REPO, f"{folder}/lake")
        self.catalog.create_branch(REPO, "side", "main")
        self.heads: dict[str, dict[str, bytes]] = {"main": {}, "side": {}}
        self.views: dict[str, dict[str, bytes]] = {"main": {}, "side": {}}
        self.commits: dict[str, dict[str, bytes]] = {}
        self._written = 0

    def take(self, step: str, branch: str, key: str, other: str) -> None:
        """Do one step on both sides; one that the model knows to be impossible is left out."""
        view = self.views[branch]
        if step == "upload":
            self._written += 1
            view[key] = str(self._written).encode()
            self.catalog.upload(REPO, branch, key, view[key])
        elif step in {"copy", "move", "delete"} and key in view:
            self._rearrange(step, branch, key, other)
        elif step == "reset":
            self.catalog.reset(REPO, branch, key)
            head = self.heads[branch]
            kept = {k: v for k, v in view.items() if not k.startswith(key)}
            self.views[branch] = kept | {k: v for k, v in head.items() if k.startswith(key)}
        elif step == "commit":
            made = self.catalog.commit(REPO, branch, f"{self._written}", allow_empty=True)
            self.commits[made.id] = self.heads[branch] = dict(view)
        elif step == "remake":
            self.catalog.delete_branch(REPO, "side")
            self.catalog.create_branch(REPO, "side", "main")
            self.heads["side"] = dict(self.heads["main"])
            self.views["side"] = dict(self.heads["main"])
        elif step == "reap":
            self.reap()

    def _rearrange(self, step: str, branch: str, key: str, other: str) -> None:
        view = self.views[branch]
        if step == "delete":
            self.catalog.delete(REPO, branch, key)
            del view[key]
            return
        getattr(self.catalog, step)(REPO, branch, key, other)
        view[other] = view[key]
        if step == "move" and key != other:
            del view[key]

    def reap(self) -> None:
        """Reap all that is queued."""
        options = ReapOptions(grace=timedelta(0), batch=2)
        Reaper(self.catalog, options).reap(self.catalog.reclaim_target(REPO))

    def held(self) -> dict[str, dict[str, bytes]]:
        """Read every version that the model knows, byte for byte."""
        return {
            ref: {entry.key: self.catalog.read(REPO, ref, entry.key) for entry in self.catalog.ls(REPO, ref)}
            for ref in (*self.views, *self.commits)
        }


@settings(max_examples=25)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_reaping_loses_nothing_and_leaves_nothing(steps):
    """After any history every version is as a plain model says, and the store has what is referenced."""
    memory = Path("/dev/shm")  # noqa: S108 - scratch, and much faster than a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        history = History(folder)
        for step in steps:
            history.take(*step)
        history.reap()
        there = stored(history.catalog)
        history.catalog.close()

        assert history.views | history.commits == history.held()
        assert referenced(history.catalog) == there
        assert [] == list(history.catalog.reclaim_queue(history.catalog.reclaim_target(REPO)))
        history.catalog.close()
