"""
All interleavings of some actors, each with at most one crash anywhere, depth first.

A state is what the database and the store hold, where each actor stands, and what it has read so far. From
two equal states the same things can happen, so each is explored once: that is the only pruning, apart from
boundaries that need not be there (see the laboratory's store). A path is taken by replaying it from the
start.

A crash is a step only where it changes something: inside a write transaction, which it rolls back, and when
all others are done, so that what is left can be judged. Anywhere else an actor that crashed is one that is
not let on any more, and what the others do meanwhile is explored anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.explorer.laboratory import Laboratory, Moment
from tests.explorer.stepping import Actor, Script

Scripts = Callable[[Laboratory], dict[str, Script]]


@dataclass(frozen=True)
class Move:
    """One actor's next step, or its crash there."""

    actor: str
    crash: bool = False


@dataclass
class Explored:
    """What an exploration saw; a counterexample is the schedule that led to it, line by line."""

    states: int = 0
    transitions: int = 0
    schedules: int = 0
    replays: int = 0
    seconds: float = 0.0
    counterexample: list[str] = field(default_factory=list)

    @property
    def story(self) -> str:
        """The counterexample, readable."""
        return "\n".join(self.counterexample)

    def __str__(self) -> str:
        """Say how much was seen."""
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.schedules:,} schedules,"
            f" {self.replays:,} replays, {self.seconds:.1f} s"
        )


class _Violated(Exception):
    """An invariant does not hold."""


class Explorer:
    """Explores what can happen; `finish` is run alone when all actors are done, and must leave no garbage."""

    def __init__(
        self, lab: Laboratory, scripts: Scripts, finish: Callable[[], object], crashes: int = 1
    ) -> None:
        self._lab, self._scripts, self._finish, self._crashes = lab, scripts, finish, crashes
        self._visited: set[object] = set()
        self._done = Explored()

    def explore(self, most_states: int = 1_000_000) -> Explored:
        """Explore everything, up to the first counterexample."""
        began = time.monotonic()
        waiting: list[_Path] = [_Path()]
        try:
            while waiting and self._done.states < most_states:
                waiting.extend(self._follow(waiting.pop()))
                self._done.replays += 1
        except _Violated:
            pass
        self._done.seconds = time.monotonic() - began
        return self._done

    def _follow(self, path: _Path) -> list[_Path]:
        """Replay a path, go on from there to an end or a known state, and give what was left untried."""
        run = _Run(self._lab, self._scripts)
        untried: list[_Path] = []
        try:
            run.replay(path)
            if path.last is not None:
                self._take(run, path.last)
            while True:
                self._check(run)
                key = run.key()
                if key in self._visited:
                    return untried
                self._visited.add(key)
                self._done.states += 1
                moves = run.moves(self._crashes)
                if not moves:
                    break
                untried.extend(run.then(move) for move in reversed(moves[1:]))
                self._take(run, moves[0])
            self._done.schedules += 1
            self._check_end(run)
        finally:
            run.end()
        return untried

    def _take(self, run: _Run, move: Move) -> None:
        run.take(move)
        self._done.transitions += 1

    def _check(self, run: _Run) -> None:
        """No entry points at a deleted object, and no live object was deleted: the same thing seen twice."""
        if run.now.dangling:
            self._found(run, f"an entry points at {', '.join(sorted(run.now.dangling))}, which is not there")

    def _check_end(self, run: _Run) -> None:
        """In the end all that was referenced once and is no more is deleted, and nothing else."""
        self._finish()
        run.look("the end", "the reaper finishes")
        self._check(run)
        left = (run.now.stored - run.now.referenced) & run.ever_referenced
        waiting = [row for row in run.now.rows if row[0] == "queue" and row[2] != "gone"]
        if left:
            self._found(run, f"{', '.join(sorted(left))} is left, and nothing refers to it")
        if waiting:
            self._found(run, f"the queue still has {waiting}")

    def _found(self, run: _Run, problem: str) -> None:
        self._done.counterexample = [*run.story, f"==> {problem}"]
        raise _Violated


@dataclass(frozen=True)
class _Path:
    """How to come to a state, and what was seen on the way; then one more move."""

    moves: tuple[Move, ...] = ()
    story: tuple[str, ...] = ()
    ever_referenced: frozenset[str] = frozenset()
    now: Moment | None = None
    last: Move | None = None


class _Run:
    """One run of all actors along one path."""

    def __init__(self, lab: Laboratory, scripts: Scripts) -> None:
        lab.restore()
        self._lab = lab
        self.moves_made: tuple[Move, ...] = ()
        self.story: tuple[str, ...] = ()
        self.now: Moment = lab.frozen
        self.ever_referenced = self.now.referenced
        self.actors = {name: Actor(name, script) for name, script in scripts(lab).items()}
        for actor in self.actors.values():
            actor.step()

    def moves(self, crashes: int) -> list[Move]:
        """Say what may happen next."""
        alive = [actor for actor in self.actors.values() if not actor.finished and not actor.crashed]
        free = self._lab.database.writer is None
        steps = [Move(a.name) for a in alive if free or a.at is None or a.at.kind != "write"]
        used = sum(actor.crashed for actor in self.actors.values())
        last = [actor for actor in alive if actor is self._lab.database.writer or len(alive) == 1]
        return steps + ([Move(actor.name, crash=True) for actor in last] if used < crashes else [])

    def replay(self, path: _Path) -> None:
        """Do again what was done on a path, without a look: everything is as it was then."""
        for move in path.moves:
            actor = self.actors[move.actor]
            actor.end(crash=True) if move.crash else actor.step()
        self.moves_made, self.story = path.moves, path.story
        self.now = path.now or self.now
        self.ever_referenced |= path.ever_referenced

    def then(self, move: Move) -> _Path:
        """Give the path to here, and one more move."""
        return _Path(self.moves_made, self.story, self.ever_referenced, self.now, move)

    def take(self, move: Move) -> None:
        """Let it happen."""
        actor = self.actors[move.actor]
        what = f"{actor.doing}: {actor.at.what if actor.at else ''}"
        if move.crash:
            actor.end(crash=True)
            what = f"crashes in {actor.doing}, before {actor.at.what if actor.at else 'its end'}"
        else:
            actor.step()
        self.moves_made = (*self.moves_made, move)
        self.look(move.actor, what)

    def look(self, who: str, what: str) -> None:
        """Look what has changed, and write it down."""
        before, self.now = self.now, self._lab.look()
        self.ever_referenced |= self.now.referenced
        changes = [f"+{_shown(row)}" for row in sorted(self.now.rows - before.rows, key=str)]
        changes += [f"-{_shown(row)}" for row in sorted(before.rows - self.now.rows, key=str)]
        changes += [f"+object {name}" for name in sorted(self.now.stored - before.stored)]
        changes += [f"-object {name}" for name in sorted(before.stored - self.now.stored)]
        line = f"{len(self.story) + 1:3}. {who:<10} {what:<60} {'; '.join(changes)}".rstrip()
        self.story = (*self.story, line)

    def key(self) -> object:
        """Say all that matters for what can happen from here on."""
        return (
            self.now.rows,
            self.now.stored,
            self.ever_referenced,
            tuple(actor.position for actor in self.actors.values()),
        )

    def end(self) -> None:
        """Stop all actors."""
        for actor in self.actors.values():
            actor.end()


def _shown(row: tuple[object, ...]) -> str:
    return " ".join(str(value) for value in row)
