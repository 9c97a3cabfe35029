"""Delete from S3: in bulk with each key's answer read, or one by one if the content must be the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from ebbtide.core.decision import Outcome
from ebbtide.storage.backoff import Backoff
from ebbtide.storage.base import DeleteRequest, DeleteResult
from ebbtide.storage.keys import key_problem
from ebbtide.storage.s3_client import ABSENT, BUSY, CHANGED, DENIED, FAILURES, TRANSIENT, call, code_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_THREADS = 8
_SILENT = "the store gave no answer for this key"


@dataclass(frozen=True)
class Deleter:
    """Deletes keys below one root of one bucket."""

    client: S3Client
    bucket: str
    root: str
    page: int
    backoff: Backoff

    def delete(self, requests: Sequence[DeleteRequest]) -> list[DeleteResult]:
        """Give one result for each request, in their order; nothing that a single key does raises."""
        safe = [request for request in requests if not key_problem(request.key)]
        plain = list(dict.fromkeys(request.key for request in safe if request.etag is None))
        results: dict[DeleteRequest, DeleteResult] = {}
        for start in range(0, len(plain), self.page):
            for result in self._delete_page(plain[start : start + self.page]):
                results[DeleteRequest(result.key)] = result
        careful = list(dict.fromkeys(request for request in safe if request.etag is not None))
        if careful:
            with ThreadPoolExecutor(min(_THREADS, len(careful))) as threads:
                results.update(zip(careful, threads.map(self._delete_if_same, careful), strict=True))
        return [
            results.get(request) or DeleteResult(request.key, Outcome.FAILED, key_problem(request.key))
            for request in requests
        ]

    def _delete_page(self, keys: Sequence[str]) -> Iterable[DeleteResult]:
        """Ask for one page, and again for the keys that the store was too busy for."""
        results: dict[str, DeleteResult] = {}
        pending = list(keys)
        for _ in self.backoff.attempts():
            answers = self._ask(pending)
            results.update({key: result_of(key, *answers[key]) for key in pending})
            pending = [key for key in pending if answers[key][0] in BUSY]
            if not pending:
                break
        return results.values()

    def _ask(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Send one bulk request and give each key's code and message; no code means deleted."""
        objects = [{"Key": self.root + key} for key in keys]
        try:
            answer = self.client.delete_objects(
                Bucket=self.bucket,
                Delete={"Objects": objects, "Quiet": False},  # type: ignore[typeddict-item]
            )
        except TRANSIENT as error:
            return dict.fromkeys(keys, ("RequestTimeout", code_of(error)))
        except FAILURES as error:
            return dict.fromkeys(keys, (code_of(error), ""))
        cut = len(self.root)
        said = {one.get("Key", "")[cut:]: ("", "") for one in answer.get("Deleted", [])}
        for one in answer.get("Errors", []):
            said[one.get("Key", "")[cut:]] = (one.get("Code") or "Unknown", one.get("Message", ""))
        return {key: said.get(key, ("InternalError", _SILENT)) for key in keys}

    def _delete_if_same(self, request: DeleteRequest) -> DeleteResult:
        """Compare first, then delete on condition: some servers ignore the condition, some the absence."""
        key, etag = request.key, (request.etag or "").strip('"')
        try:
            if self._etag(key) != etag:
                return DeleteResult(key, Outcome.CHANGED, "the content is another than was listed")
            call(
                self.backoff,
                lambda: self.client.delete_object(
                    Bucket=self.bucket, Key=self.root + key, IfMatch=f'"{etag}"'
                ),
            )
        except ClientError as error:
            refused = result_of(key, code_of(error), error.response.get("Error", {}).get("Message", ""))
            return self._look_again(refused, etag) if refused.outcome is Outcome.CHANGED else refused
        except FAILURES as error:
            return result_of(key, code_of(error), "")
        return DeleteResult(key, Outcome.DELETED)

    def _etag(self, key: str) -> str:
        """Ask for the object's present etag."""
        answer = call(self.backoff, lambda: self.client.head_object(Bucket=self.bucket, Key=self.root + key))
        return answer["ETag"].strip('"')

    def _look_again(self, refused: DeleteResult, etag: str) -> DeleteResult:
        """
        Find out why the condition was refused: a server may do so for an object that is not there.

        `changed` is final, so it is said only of what was seen to be another content; else it is tried again.
        """
        try:
            changed = self._etag(refused.key) != etag
        except FAILURES as error:
            return result_of(refused.key, code_of(error), "")
        return refused if changed else replace(refused, outcome=Outcome.FAILED)


def result_of(key: str, code: str, message: str) -> DeleteResult:
    """Turn the store's code for one key into an outcome; no code means deleted."""
    if not code:
        return DeleteResult(key, Outcome.DELETED)
    if code in ABSENT:
        return DeleteResult(key, Outcome.ABSENT)
    outcome = Outcome.FAILED
    if code in DENIED:
        outcome = Outcome.DENIED
    elif code in CHANGED:
        outcome = Outcome.CHANGED
    return DeleteResult(key, outcome, f"{code}: {message}" if message else code)
