"""
Actors that run real code, one at a time, from one boundary to the next.

Each is a greenlet: a stack of its own in one and the same thread, so that to change over costs nothing and no
operating system has a say in who goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from greenlet import getcurrent, greenlet

from ebbtide.core.errors import EbbtideError


class Ended(BaseException):
    """Raised at a boundary in an actor that crashes there, or whose run is over; no handler catches it."""


@dataclass(frozen=True)
class Boundary:
    """Where an actor stands: it is about to do this."""

    kind: str
    """`read` or `write` for a transaction, `store` for a request to the store."""
    what: str


Script = Sequence[tuple[str, Callable[[], object]]]
"""The operations of an actor in their order, each with its name."""


class Actor(greenlet):
    """Does what its script says, and stops at every boundary until it is let go on."""

    def __init__(self, name: str, script: Script) -> None:
        super().__init__(self._run)
        self.name = name
        self._script = script
        self.at: Boundary | None = None
        self.doing = ""
        self.finished = False
        self.crashed = False
        self._done = 0
        self._seen = b""

    def step(self) -> None:
        """Run from this boundary to the next one, or to the end; the first time up to the first boundary."""
        self.switch()

    def end(self, *, crash: bool = False) -> None:
        """Stop for ever, here; an open transaction is rolled back, as the database would do."""
        self.crashed = self.crashed or crash
        if not self.dead:
            self.throw(Ended)

    def pause(self, kind: str, what: str) -> None:
        """Stand at a boundary until let go; called by the code that the actor runs."""
        self.at = Boundary(kind, what)
        assert self.parent is not None
        self.parent.switch()

    def saw(self, *things: object) -> None:
        """Take in what the database or the store answered: all that the actor can base its doings on."""
        self._seen = blake2b(self._seen + repr(things).encode(), digest_size=12).digest()

    @property
    def position(self) -> tuple[object, ...]:
        """Say all that matters of this actor's past for its future."""
        return (self.name, self.crashed, self.finished, self._done, self.at, self._seen)

    def _run(self) -> None:
        for number, (name, operation) in enumerate(self._script):
            self.doing, self._done = name, number
            # What an operation read it has forgotten when the next one begins, but for how it ended.
            self._seen = b""
            try:
                operation()
            except EbbtideError as refused:
                self.saw(type(refused).__name__)
            except Ended:
                return
        self.finished, self.at, self.doing, self._seen = True, None, "", b""


def current() -> Actor | None:
    """Give the actor that this is; None for the explorer itself."""
    found = getcurrent()
    return found if isinstance(found, Actor) else None


def boundary(kind: str, what: str) -> None:
    """Let the explorer choose who goes on here."""
    actor = current()
    if actor is not None:
        actor.pause(kind, what)


def seen(*things: object) -> None:
    """Take in an answer, if this is an actor."""
    actor = current()
    if actor is not None:
        actor.saw(*things)
