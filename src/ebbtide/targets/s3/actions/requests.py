"""The requests that change a bucket; each gives the store's code and message, and no code means done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from ebbtide.core.instant import to_micros
from ebbtide.storage.s3_client import FAILURES, TRANSIENT, code_of
from ebbtide.targets.s3.actions.connection import Connection
from ebbtide.targets.s3.actions.judging import same_moment
from ebbtide.targets.s3.actions.planned import NULL, Planned

Said = tuple[str, str]
DONE: Said = ("", "")
CHANGED_CODE = "PreconditionFailed"
"""The code for what is not as it was a moment ago; the next look finds out how."""

_SILENT = "the store gave no answer for this key"
_NO_CONDITIONS = frozenset({"NotImplemented", "InvalidArgument", "InvalidRequest", "501"})
_NO_UPLOAD = frozenset({"NoSuchUpload"})
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fits_page(key: str) -> bool:
    """Tell whether a key can be written in a page of deletes: XML does not hold every character."""
    return not _NOT_XML.search(key)


class Requests:
    """Sends requests to one bucket; none raises."""

    def __init__(self, connection: Connection) -> None:
        self._client, self._bucket = connection.client, connection.bucket
        self._conditional = True

    def delete_page(self, items: Sequence[Planned]) -> dict[int, Said]:
        """Delete versions by their ids, which name the same content for ever, and read every answer."""
        objects = [{"Key": item.key, "VersionId": item.version} for item in items]
        asked: dict[str, Any] = {"Bucket": self._bucket, "Delete": {"Objects": objects, "Quiet": False}}
        try:
            answer = self._client.delete_objects(**asked)
        except FAILURES as error:
            return dict.fromkeys((item.number for item in items), _said(error))
        # SeaweedFS names a delete marker that it removed only as such.
        said: dict[tuple[str | None, str | None], Said] = {
            (one.get("Key"), one.get("VersionId") or one.get("DeleteMarkerVersionId")): DONE
            for one in answer.get("Deleted", [])
        }
        for wrong in answer.get("Errors", []):
            code, message = wrong.get("Code") or "Unknown", wrong.get("Message", "")
            said[wrong.get("Key"), wrong.get("VersionId")] = (code, message)
        silent = ("InternalError", _SILENT)
        return {item.number: said.get((item.key, item.version), silent) for item in items}

    def delete_version(self, item: Planned) -> Said:
        """Delete one version by its id, and one that can be replaced only if it has the content still."""
        etag = item.etag if item.version == NULL else None
        return self._delete({"Key": item.key, "VersionId": item.version}, etag)

    def expire(self, item: Planned) -> Said:
        """Delete a key if its current version is still the planned one; what that does, versioning says."""
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=item.key)
        except FAILURES as error:
            # What is not there has changed since the look, which knew a current version.
            return (CHANGED_CODE, "") if code_of(error) in {"404", "NoSuchKey", "405"} else _said(error)
        same = (
            (found.get("VersionId") or NULL) == item.version
            and item.etag in {None, found["ETag"].strip('"')}
            and same_moment(item.micros, to_micros(found["LastModified"]))
            and not found.get("DeleteMarker")
        )
        return self._delete({"Key": item.key}, found["ETag"].strip('"')) if same else (CHANGED_CODE, "")

    def abort(self, item: Planned) -> Said:
        """Abort an upload that is still there; some servers abort completed ones again without a word."""
        asked: dict[str, Any] = {"Bucket": self._bucket, "Key": item.key, "UploadId": item.version}
        try:
            self._client.list_parts(**asked, MaxParts=1)
            self._client.abort_multipart_upload(**asked)
        except FAILURES as error:
            return ("NotFound", "") if code_of(error) in _NO_UPLOAD else _said(error)
        return DONE

    def _delete(self, what: dict[str, str], etag: str | None) -> Said:
        """Delete on condition where the server knows conditions; else the look just before must do."""
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
            # The same without a condition went through, so it was the condition that the server refused.
            self._conditional = self._conditional and not etag
        except FAILURES as error:
            return _said(error)
        return DONE


def _said(error: Exception) -> Said:
    """Name an error by its code, and by its message only if the store wrote it."""
    if isinstance(error, TRANSIENT):
        return "RequestTimeout", code_of(error)
    message = error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else ""
    return code_of(error), message
