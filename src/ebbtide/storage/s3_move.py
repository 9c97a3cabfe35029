"""Giving S3 objects other keys: copy on the server, prove the copy, and only then delete the source."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.storage.base import DeleteResult, MoveRequest
from ebbtide.storage.keys import key_problem
from ebbtide.storage.s3_copy import copy_to_key, has_same_bytes
from ebbtide.storage.s3_objects import Refusal, S3Object, S3Objects
from ebbtide.storage.s3_transfer import Sizes

_THREADS = 8
_TAKEN = "there is another content in its place"


@dataclass(frozen=True)
class Mover:
    """Moves objects below one root of one bucket."""

    objects: S3Objects
    sizes: Sizes = field(default_factory=Sizes)

    def move(self, requests: Sequence[MoveRequest]) -> list[DeleteResult]:
        """Give one result for each request, in their order; nothing that a single object does raises."""
        if not requests:
            return []
        with ThreadPoolExecutor(min(_THREADS, len(requests))) as threads:
            return list(threads.map(self._move_one, requests))

    def _move_one(self, request: MoveRequest) -> DeleteResult:
        key = request.source
        problem = key_problem(key) or key_problem(request.target)
        if problem:
            return DeleteResult(key, Outcome.FAILED, problem)
        try:
            root = self.objects.root
            outcome, reason = self._move(root + key, root + request.target, request.etag)
        except Refusal as no:
            # A condition that did not hold says that something else came first: another look will tell.
            return DeleteResult(key, Outcome.FAILED if no.changed else no.outcome, str(no))
        except EbbtideError as broken:
            return DeleteResult(key, Outcome.FAILED, str(broken))
        return DeleteResult(key, outcome, reason)

    def _move(self, source: str, target: str, etag: str | None) -> tuple[Outcome, str]:
        found, held = self.objects.describe(source), self.objects.describe(target)
        if found is None:
            # A server says the same of an object that is in no bucket.
            self.objects.check_bucket()
            return (Outcome.DELETED, "it was moved before") if held else (Outcome.ABSENT, "")
        if etag is not None and found.etag != etag.strip('"'):
            return Outcome.CHANGED, "the content is another than was listed"
        ours = held is None
        if held is None:
            copy_to_key(self.objects, found, target, self.sizes)
            held = self.objects.describe(target)
        if held is None:
            return Outcome.FAILED, "the copy vanished"
        if not has_same_bytes(self.objects, found, held, self.sizes):
            return self._give_up(held, ours=ours)
        removed = self.objects.remove_same(source, found.etag)
        if removed.outcome.is_gone:
            return Outcome.DELETED, ""
        if removed.outcome is Outcome.CHANGED and ours:
            self.objects.remove_same(target, held.etag)
        return removed.outcome, removed.reason

    def _give_up(self, held: S3Object, *, ours: bool) -> tuple[Outcome, str]:
        if not ours:
            return Outcome.TAKEN, _TAKEN
        self.objects.remove_same(held.key, held.etag)
        return Outcome.FAILED, "the copy was not whole and is removed"
