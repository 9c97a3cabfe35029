"""A prefix of an S3 bucket as an object store, on any server that speaks S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow.compute as pc
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from ebbtide.storage.address import locate
from ebbtide.storage.listing import BATCH_ROWS, joined_batches, listing_batch, sorted_listing
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3_client import CHANGED, FAILURES, S3Options, call, code_of, connect, fail
from ebbtide.storage.s3_copy import ObjectMover
from ebbtide.storage.s3_listing import Page, check_order, pages, speed_up
from ebbtide.storage.s3_objects import ObjectDeleter, S3Objects
from ebbtide.storage.store import (
    DeleteRequest,
    DeleteResult,
    MoveRequest,
    ObjectInfo,
    RecordBatch,
    StoreSpec,
    check_folder,
    check_key,
)

T = TypeVar("T")

_ONE_COPY = 5 * 1024**3  # the largest object that S3 copies in one request
_TRANSFER = TransferConfig(multipart_threshold=_ONE_COPY, multipart_chunksize=1024**3, use_threads=False)


class S3Store:
    """
    The objects below one prefix; the options are those of :class:`ebbtide.storage.s3_client.S3Options`.

    A folder marker at the root itself (``prefix/``) has no key below the root, so it is not listed.
    """

    reports_absence = False

    def __init__(self, spec: StoreSpec, backoff: Backoff | None = None) -> None:
        place = locate(spec.url)
        options = S3Options.parse(spec.options)
        self.spec = StoreSpec(place.url, dict(spec.options))
        self._bucket = place.host
        self._root = f"{place.path}/" if place.parts else ""
        self._ordered = options.ordered
        self._backoff = backoff or Backoff(tries=options.retries)
        self._client = connect(options)
        speed_up(self._client)
        self._deleter = ObjectDeleter(
            self._client, self._bucket, self._root, options.delete_page, self._backoff
        )
        self._mover = ObjectMover(S3Objects(self.spec, self._backoff, self._client))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[RecordBatch]:
        """Stream the objects in key order; with ordered=no they are sorted here."""
        if self._ordered:
            yield from joined_batches(self._batches(prefix, start_after))
            return
        table = sorted_listing(self._batches(prefix, ""))
        if start_after:
            table = table.filter(pc.greater(table["key"], start_after))
        yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def children(self, prefix: str) -> Iterator[str]:
        """Stream the names below a folder in key order, without the folder's own marker."""
        check_folder(prefix)
        whole = self._root + prefix
        found = self._names(whole) if self._ordered else sorted(set(self._names(whole)))
        yield from (name[len(whole) :] for name in found if name != whole)

    def stat(self, key: str) -> ObjectInfo:
        """Describe one object by a HEAD request."""
        answer = self._run(key, lambda: self._client.head_object(Bucket=self._bucket, Key=self._root + key))
        etag = answer.get("ETag", "").strip('"') or None
        return ObjectInfo(key, answer["ContentLength"], answer["LastModified"], etag)

    def read(self, key: str) -> bytes:
        """Read one whole object, again from the start if the connection breaks."""

        def whole() -> bytes:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._root + key)
            return answer["Body"].read()

        return self._run(key, whole)

    def write(self, key: str, data: bytes, *, unknown: bool = False) -> ObjectInfo:  # noqa: ARG002 (all are whole)
        """Write one whole object in one request, which S3 makes visible at once or not at all."""
        self._run(
            key,
            lambda: self._client.put_object(Bucket=self._bucket, Key=self._root + key, Body=data),
        )
        return self.stat(key)

    def create(self, key: str, data: bytes) -> bool:
        """Write on the condition that the key is free; S3 answers 412 if it is not."""
        tries = 0

        def put() -> bool:
            nonlocal tries
            tries += 1
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._root + key, Body=data, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) in CHANGED:
                    return False
                raise
            return True

        # A retry after a lost response may find the object that the first try wrote.
        return self._run(key, put) or (tries > 1 and self.read(key) == data)

    def copy(self, source: str, target: str) -> None:
        """Copy on the server, in parts above 5 GiB."""
        check_key(target)
        self._run(
            source,
            lambda: self._client.copy(
                {"Bucket": self._bucket, "Key": self._root + source},
                self._bucket,
                self._root + target,
                Config=_TRANSFER,
            ),
        )

    def delete(self, requests: Sequence[DeleteRequest]) -> Sequence[DeleteResult]:
        """Delete in bulk; requests with an etag are sent one by one, compared first and then on condition."""
        return self._deleter.delete(requests)

    def move(self, requests: Sequence[MoveRequest]) -> Sequence[DeleteResult]:
        """Copy on the server, prove the copy, and only then delete the source, if it is still the same."""
        return self._mover.move(requests)

    def _run(self, key: str, operation: Callable[[], T]) -> T:
        """Check the key, make the request with retries, and raise our errors."""
        check_key(key)
        try:
            return call(self._backoff, operation)
        except FAILURES as error:
            fail(error, repr(key))

    def _batches(self, prefix: str, start_after: str) -> Iterator[RecordBatch]:
        """Stream the pages as batches with keys below the root."""
        whole = self._root + prefix
        last = after = self._root + start_after if start_after else ""
        for page in pages(self._client, self._bucket, whole, self._backoff, start_after=after):
            if self._ordered:
                last = check_order(page.keys, last)
            yield self._batch(page)

    def _names(self, folder: str) -> Iterator[str]:
        """Stream the full names one level below a folder, in the order of the pages."""
        last = ""
        for page in pages(self._client, self._bucket, folder, self._backoff, delimiter="/"):
            if self._ordered:
                last = check_order(page.names, last)
            yield from page.names

    def _batch(self, page: Page) -> RecordBatch:
        """Remove the root from the keys of a page, and the root's own marker, whose key would be empty."""
        cut = len(self._root)
        batch = listing_batch([key[cut:] for key in page.keys], page.sizes, page.micros, page.etags)
        if self._root and self._root in page.keys:
            return batch.filter(pc.not_equal(batch["key"], ""))
        return batch
