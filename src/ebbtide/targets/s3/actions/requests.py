"""
The requests that change a bucket, and the rows of a plan that they are for.

A request returns the error code and message of the store; an empty code means success.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import ClientError

from ebbtide.core.instant import to_micros
from ebbtide.storage.s3_bucket import VersionedBucket
from ebbtide.storage.s3_client import FAILURES, TRANSIENT, code_of
from ebbtide.targets.s3.model import NULL

if TYPE_CHECKING:
    pass


class PlannedItem(NamedTuple):
    """One row of the plan, and what must still be true for it; None means unknown."""

    number: int
    """Its index among the rows of the task."""
    key: str
    action: str | None
    version: str
    """The id of the version or upload."""
    etag: str | None = None
    micros: int | None = None
    """When it was written."""
    latest: bool = False
    newer: int = 0
    """The number of newer noncurrent versions of its key that must exist."""
    kept: str | None = None
    """Why it must not be touched."""


def planned_items(batches: Iterable[Any]) -> Iterator[PlannedItem]:
    """Read the rows of a task, numbered from 0."""
    number = 0
    for batch in batches:
        required = batch.column("condition")
        parts = [
            *(batch.column(name).to_pylist() for name in ("action", "version")),
            *(
                pc.struct_field(required, name).to_pylist()
                for name in ("etag", "is_latest", "newer_versions")
            ),
        ]
        written = batch.column("created").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        keys, kept = batch.column("address").to_pylist(), batch.column("kept_because").to_pylist()
        for key, action, version, etag, latest, newer, micros, why in zip(
            keys, *parts, written, kept, strict=True
        ):
            tag = (etag or "").strip('"') or None
            yield PlannedItem(
                number, key, action, version or NULL, tag, micros, bool(latest), newer or 0, kept=why
            )
            number += 1


_SECOND, _MILLISECOND = 1_000_000, 1_000

Answer = tuple[str, str]
DONE: Answer = ("", "")
CHANGED_CODE = "PreconditionFailed"
"""The code for an item that just changed; the next listing shows how."""

_SILENT = "the store did not answer for this key"
_NO_CONDITIONS = frozenset({"NotImplemented", "InvalidArgument", "InvalidRequest", "501"})
_NO_UPLOAD = frozenset({"NoSuchUpload"})
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fits_page(key: str) -> bool:
    """Return True if XML can hold a key, so that it can be part of a bulk delete."""
    return not _NOT_XML.search(key)


class Requests:
    """Sends requests to one bucket. They return errors and do not raise."""

    def __init__(self, bucket: VersionedBucket) -> None:
        self._client, self._bucket = bucket.client, bucket.name
        self._conditional = True

    def delete_page(self, items: Sequence[PlannedItem]) -> dict[int, Answer]:
        """Delete versions by id in one request, and read the answer for each. Ids are never reused."""
        objects = [{"Key": item.key, "VersionId": item.version} for item in items]
        asked: dict[str, Any] = {"Bucket": self._bucket, "Delete": {"Objects": objects, "Quiet": False}}
        try:
            answer = self._client.delete_objects(**asked)
        except FAILURES as error:
            return dict.fromkeys((item.number for item in items), _answer(error))
        # SeaweedFS reports a removed delete marker only as DeleteMarkerVersionId.
        answers: dict[tuple[str | None, str | None], Answer] = {
            (one.get("Key"), one.get("VersionId") or one.get("DeleteMarkerVersionId")): DONE
            for one in answer.get("Deleted", [])
        }
        for wrong in answer.get("Errors", []):
            code, message = wrong.get("Code") or "Unknown", wrong.get("Message", "")
            answers[wrong.get("Key"), wrong.get("VersionId")] = (code, message)
        silent = ("InternalError", _SILENT)
        return {item.number: answers.get((item.key, item.version), silent) for item in items}

    def delete_version(self, item: PlannedItem) -> Answer:
        """Delete one version by id; the null version only if it still has the same content."""
        etag = item.etag if item.version == NULL else None
        return self._delete({"Key": item.key, "VersionId": item.version}, etag)

    def expire(self, item: PlannedItem) -> Answer:
        """Delete a key if its current version is still the planned one; versioning decides what this does."""
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=item.key)
        except FAILURES as error:
            # It is gone, so it changed since the listing, which had a current version.
            return (CHANGED_CODE, "") if code_of(error) in {"404", "NoSuchKey", "405"} else _answer(error)
        same = (
            (found.get("VersionId") or NULL) == item.version
            and item.etag in {None, found["ETag"].strip('"')}
            and same_moment(item.micros, to_micros(found["LastModified"]))
            and not found.get("DeleteMarker")
        )
        return self._delete({"Key": item.key}, found["ETag"].strip('"')) if same else (CHANGED_CODE, "")

    def abort(self, item: PlannedItem) -> Answer:
        """Abort an upload if it still exists: some servers report success for completed uploads."""
        asked: dict[str, Any] = {"Bucket": self._bucket, "Key": item.key, "UploadId": item.version}
        try:
            self._client.list_parts(**asked, MaxParts=1)
            self._client.abort_multipart_upload(**asked)
        except FAILURES as error:
            return ("NotFound", "") if code_of(error) in _NO_UPLOAD else _answer(error)
        return DONE

    def _delete(self, what: dict[str, str], etag: str | None) -> Answer:
        """Delete with If-Match if the server supports it; otherwise the check just before must do."""
        asked: dict[str, Any] = {"Bucket": self._bucket, **what}
        try:
            if etag and self._conditional:
                try:
                    self._client.delete_object(**asked, IfMatch=f'"{etag}"')
                except ClientError as error:
                    if code_of(error) not in _NO_CONDITIONS:
                        raise
                else:
                    return DONE
            self._client.delete_object(**asked)
            # The same request without a condition succeeded, so the server refuses conditions.
            self._conditional = self._conditional and not etag
        except FAILURES as error:
            return _answer(error)
        return DONE


def _answer(error: Exception) -> Answer:
    """Return the code of an error, and its message if the store sent one."""
    if isinstance(error, TRANSIENT):
        return "RequestTimeout", code_of(error)
    message = error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else ""
    return code_of(error), message


def same_moment(planned: int | None, seen: int | None) -> bool:
    """Compare two times in microseconds at the coarser precision: some answers have only seconds."""
    if planned is None or seen is None:
        return True
    for unit in (_SECOND, _MILLISECOND):
        if planned % unit == 0 or seen % unit == 0:
            return planned // unit == seen // unit
    return planned == seen
