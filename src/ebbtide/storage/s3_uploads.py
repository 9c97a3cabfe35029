"""
List the multipart uploads that were begun and not completed.

SeaweedFS says that the keys of this listing are encoded when they are not: decoding would turn ``a+b`` into
``a b``. So a page whose keys would change is asked for a second time without the encoding. Where the keys are
the same both times, the server encodes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ebbtide.core.instant import to_micros
from ebbtide.storage.backoff import Backoff
from ebbtide.storage.s3_client import FAILURES, call, fail
from ebbtide.storage.s3_names import NameReader, UntrustedName, is_printable, page_root, stop_for
from ebbtide.storage.s3_version_pages import nonsense

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BODY = "EbbtideBody"


class UploadRow(NamedTuple):
    """One multipart upload."""

    key: str
    upload_id: str
    micros: int


def watch_uploads(client: S3Client) -> None:
    """Let this client refuse pages of uploads with characters that XML does not allow."""
    client.meta.events.register("before-parse.s3.ListMultipartUploads", _check_page)


def _check_page(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if page_root(response_dict) is not None:
        customized_response_dict[_BODY] = response_dict["body"]


def upload_rows(client: S3Client, bucket: str, prefix: str, backoff: Backoff) -> Iterator[list[UploadRow]]:
    """Stream the pages of uploads below a prefix; one that cannot be had, or that leads nowhere, raises."""
    markers: dict[str, str] = {}
    seen: set[tuple[str, ...]] = set()
    while True:
        asked = {"Bucket": bucket, "Prefix": prefix, **markers}
        try:
            answer = _page(client, asked, backoff)
        except UntrustedName as problem:
            raise stop_for(problem, bucket, prefix, markers.get("KeyMarker", "")) from None
        except FAILURES as error:
            fail(error, f"the uploads of {bucket}/{prefix}")
        if "IsTruncated" not in answer:
            raise nonsense(bucket, "no listing of uploads")
        found = answer.get("Uploads", [])
        if not all(one["Key"].startswith(prefix) for one in found):
            raise nonsense(bucket, "uploads that were not asked for")
        yield [UploadRow(one["Key"], one["UploadId"], to_micros(one["Initiated"])) for one in found]
        if not answer["IsTruncated"]:
            return
        names = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        # SeaweedFS orders uploads by their ids alone and gives no key to go on from.
        markers = {name: answer[said] for name, said in names.items() if answer.get(said)}
        place = tuple(markers.values())
        if not place or place in seen:
            raise nonsense(bucket, "that there are more uploads, but not where")
        seen.add(place)


def _page(client: S3Client, asked: dict[str, Any], backoff: Backoff) -> Any:
    """Ask for one page and read its names."""
    answer: Any = call(backoff, lambda: client.list_multipart_uploads(**asked, EncodingType="url"))
    encoded = answer.get("EncodingType") == "url"
    doubtful = {upload: key for upload, key in _keys(answer).items() if _would_change(key)}
    if encoded and doubtful:
        encoded = not _are_same_without_encoding(client, asked, backoff, doubtful)
    names = NameReader(encoded=encoded, body=answer.get(_BODY, b""))
    for one in answer.get("Uploads", []):
        one["Key"] = names.read(one["Key"])
    if answer.get("NextKeyMarker"):
        answer["NextKeyMarker"] = names.read(answer["NextKeyMarker"])
    return answer


def _would_change(key: str) -> bool:
    """Tell whether decoding changes a key, or fails."""
    return "%" in key or "+" in key or not is_printable(key)


def _are_same_without_encoding(
    client: S3Client, asked: dict[str, Any], backoff: Backoff, doubtful: dict[str, str]
) -> bool:
    """
    Tell whether these keys are the same when nobody asks for an encoding.

    If XML cannot hold them as they are, they were encoded. Uploads that ended between the two requests do not
    count; if nothing is left to compare, nobody can tell.
    """
    try:
        plain = _keys(call(backoff, lambda: client.list_multipart_uploads(**asked)))
    except UntrustedName:
        return False
    both = [(key, plain[upload]) for upload, key in doubtful.items() if upload in plain]
    if not both:
        raise UntrustedName("", "the uploads changed while they were listed, and none could be compared")
    return all(key == other for key, other in both)


def _keys(answer: Any) -> dict[str, str]:
    return {one["UploadId"]: one["Key"] for one in answer.get("Uploads", [])}
