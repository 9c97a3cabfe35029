"""Doing a batch of a bucket's plan on an executor: deletes by one hand, moves by the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from ebbtide.targets.s3.actions.deleter import BucketDeleter
from ebbtide.targets.s3.model import Action
from ebbtide.targets.s3.transition.mover import Mover


@dataclass(frozen=True)
class BucketActor:
    """Does all that the rows of one task ask for, which are all the rows of their keys."""

    deleter: BucketDeleter
    mover: Mover

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Delete first: what is deleted need not be looked at by who moves."""
        gathered = list(batches)
        moving = [pc.equal(batch.column("action"), str(Action.TRANSITION)) for batch in gathered]
        rest = [batch.filter(pc.invert(moved)) for batch, moved in zip(gathered, moving, strict=True)]
        yield from self.deleter(batch for batch in rest if batch.num_rows)
        moves = [batch.filter(moved) for batch, moved in zip(gathered, moving, strict=True)]
        yield from self.mover(batch for batch in moves if batch.num_rows)
