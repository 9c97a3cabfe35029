"""
Moving one version to a location: copy, verify, write down, and only then remove.

Whatever is interrupted, the original is whole until a whole copy was proven and written down, and another
attempt goes on from what it finds. A copy that is there already is taken over if it carries the mark of this
very version and is proven like a new one; anything else under its name is never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.core.instant import format_instant
from ebbtide.engine.layout import OnStep
from ebbtide.storage.s3_copy import CopyProof, Sizes, simple
from ebbtide.storage.s3_objects import S3Object
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.transition.moves import Move, Moves, Stage, others_hold, others_withdrew, standing
from ebbtide.targets.s3.transition.naming import Identity, target_name
from ebbtide.targets.s3.transition.originals import Item, Originals, Standing
from ebbtide.targets.s3.transition.places import Held, Original, Place, Taken

COPIED, VERIFIED, RECORDED, REMOVED = "copied", "verified", "recorded", "removed"


@dataclass(frozen=True)
class Copy:
    """A copy at a location, and what must be true of it."""

    name: str
    proof: CopyProof
    ours: bool
    """This attempt made it, so it may remove it again."""
    held: Held | None = None
    """What was found there and proven."""


@dataclass(frozen=True)
class Journey:
    """Moves versions to one location."""

    originals: Originals
    place: Place
    location: str
    moves: Moves
    writer: str
    run: int | None
    sizes: Sizes
    clock: Callable[[], datetime]
    on_step: OnStep

    def move(self, item: Item) -> DeleteResult:
        """Move one version, or say why not."""
        objects = self.originals.objects
        if self.place.holds(objects, item.key):
            why = f"it lies in the location {self.location} already"
            return DeleteResult(item.key, Outcome.CHANGED, why)
        now = self.originals.look(item)
        before = self._recorded(item) if now.problem else []
        if before:
            now = self.originals.look(item, may_be_hidden=True)
        if now.found is None or now.problem:
            return self._moved_before(item, now, before) or DeleteResult(item.key, now.outcome, now.problem)
        known = Identity(objects.bucket, item.key, item.version, now.found.etag, now.found.modified)
        name = target_name(known, self.place.root)
        original = Original(objects, now.found, known.mark)
        copy = self._copy(name, original)
        if isinstance(copy, str):
            return self._not_copied(item, copy)
        self.on_step(COPIED)
        held = self.place.find(name)
        if held is None or not self._is_whole(held, copy.proof, original):
            return self._broken(item, copy, held, original)
        self.on_step(VERIFIED)
        copy = replace(copy, held=replace(held, version=copy.proof.version or held.version))
        return self._switch(item, now, copy, self._line(item, now.found, name))

    def _copy(self, name: str, original: Original) -> Copy | str:
        """Take over a copy that is there, or make one; or say what is in the way."""
        held = self.place.find(name)
        if held is None:
            try:
                proof = self.place.fill(name, original)
            except Taken:
                # By somebody else, or by a request of ours whose answer was lost.
                held = self.place.find(name)
            else:
                return Copy(name, proof, ours=True)
        if held is None:
            return f"{self.place.url(name)} was taken and is free again"
        if held.mark != original.mark:
            return f"{self.place.url(name)} holds something else, which is not overwritten"
        return Copy(name, CopyProof(etag=simple(original.found.etag)), ours=False)

    def _is_whole(self, held: Held, proof: CopyProof, original: Original) -> bool:
        """Prove that the copy has the original's bytes: by the store's checksum, or by reading it back."""
        found = original.found
        if held.size != found.size or held.mark != original.mark:
            return False
        if proof.etag and held.etag == proof.etag:
            return True
        expected = proof.sha256 or original.objects.digest(found, self.sizes.part_of(found.size))
        return self.place.digest(held) == expected

    def _switch(self, item: Item, now: Standing, copy: Copy, line: Move) -> DeleteResult:
        """Write down where the version is, for good, and then remove the original."""
        self.moves.append(line)
        self.on_step(RECORDED)
        if not copy.ours and others_withdrew(self.moves.lines(line.bucket, line.key), line):
            # The attempt that made the copy may be removing it; it looks for our line before it does.
            self.moves.append(replace(line, stage=Stage.WITHDRAWN))
            return DeleteResult(item.key, Outcome.FAILED, f"another attempt withdraws {line.url}; try again")
        result = self.originals.remove(item, now, self.on_step)
        if result.outcome.is_gone:
            # It was there a moment ago: our own request removed it, though its answer may have been lost.
            self.on_step(REMOVED)
            self.moves.append(replace(line, stage=Stage.MOVED, at=self._time()))
            return DeleteResult(item.key, Outcome.DELETED, f"moved to {line.url}")
        if result.outcome is Outcome.CHANGED:
            self._withdraw(item, copy, line)
        return result

    def _withdraw(self, item: Item, copy: Copy, line: Move) -> None:
        """
        Remove the copy of an original that stays, if this attempt made it and nobody else counts on it.

        First we say so and then we look; others first write their line and then look whether we said so. So
        one of the two always sees the other, and a copy that somebody counts on is not removed.
        """
        if not copy.ours or copy.held is None or self.originals.is_gone(item):
            return
        self.moves.append(replace(line, stage=Stage.WITHDRAWN))
        if not others_hold(self.moves.lines(line.bucket, line.key), line):
            self.place.remove(copy.held)

    def _not_copied(self, item: Item, why: str) -> DeleteResult:
        """Find out whether the original changed, which the copy's condition cannot tell from a taken name."""
        now = self.originals.look(item, may_be_hidden=True)
        if now.problem:
            return DeleteResult(item.key, now.outcome, now.problem)
        return DeleteResult(item.key, Outcome.FAILED, why)

    def _broken(self, item: Item, copy: Copy, held: Held | None, original: Original) -> DeleteResult:
        """Give up a copy that is not whole; the original was not touched."""
        url = self.place.url(copy.name)
        if held is None:
            return DeleteResult(item.key, Outcome.FAILED, f"the copy at {url} vanished")
        if copy.ours and held.mark == original.mark:
            self.place.remove(held)
            return DeleteResult(item.key, Outcome.FAILED, f"the copy at {url} was not whole and is removed")
        why = f"what is at {url} is not a whole copy; look at it and remove it"
        return DeleteResult(item.key, Outcome.FAILED, why)

    def _recorded(self, item: Item) -> list[Move]:
        """Find what earlier attempts of this run wrote down."""
        lines = self.moves.lines(self.originals.objects.bucket, item.key)
        return [
            move
            for move in standing(lines)
            if (move.version, move.etag, move.run) == (item.version, item.etag, self.run)
        ]

    def _moved_before(self, item: Item, now: Standing, before: list[Move]) -> DeleteResult | None:
        """See whether an earlier attempt of this run moved what is not in the bucket any more."""
        if now.found is not None and now.found.etag == item.etag:
            return None
        for move in before:
            if self._is_held(item, move):
                if move.stage is not Stage.MOVED:
                    self.moves.append(replace(move, stage=Stage.MOVED, writer=self.writer, at=self._time()))
                return DeleteResult(item.key, Outcome.DELETED, f"moved to {move.url}")
        return None

    def _is_held(self, item: Item, move: Move) -> bool:
        modified = datetime.fromisoformat(move.modified)
        known = Identity(move.bucket, item.key, item.version, item.etag, modified)
        held = self.place.find(target_name(known, self.place.root))
        return held is not None and (held.mark, held.size) == (known.mark, move.size)

    def _line(self, item: Item, found: S3Object, name: str) -> Move:
        return Move(
            bucket=self.originals.objects.bucket,
            key=item.key,
            version=item.version,
            etag=item.etag,
            size=found.size,
            modified=format_instant(found.modified),
            location=self.location,
            url=self.place.url(name),
            rules=item.rules,
            run=self.run,
            wave=item.wave,
            stage=Stage.COPIED,
            at=self._time(),
            writer=self.writer,
        )

    def _time(self) -> str:
        return format_instant(self.clock())


def refused(item: Item, broken: EbbtideError) -> DeleteResult:
    """Say of an item what an error means for it."""
    outcome = getattr(broken, "outcome", Outcome.FAILED)
    return DeleteResult(item.key, outcome, str(broken))
