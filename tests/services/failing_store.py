"""
A store that fails on purpose: a proxy in front of a real S3 server that follows a fault plan.

What it says was done was done by the server, and what it says was not done was not; faults are in between.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from xml.sax.saxutils import escape, unescape

import pytest
from botocore.exceptions import ClientError
from tests.services.failing_listing import Row, faulty_page, question
from tests.services.fault_plan import NO_FAULTS, Fault, FaultPlan, Operation
from tests.services.flaky_proxy import (
    FlakyProxy,
    Request,
    Response,
    What,
    dropped,
    error,
    flaky_proxy,
    truncated,
)
from tests.services.seaweed import S3Server

_LOG = logging.getLogger(__name__)
Forward = Callable[[], Response]

_BEFORE: dict[Fault, What] = {
    Fault.SLOW_DOWN: error(503, "SlowDown"),
    Fault.BROKEN: error(500, "InternalError"),
    Fault.RESET: lambda _request, _forward: Response(0, sent=None, reset=True),
}


@dataclass(frozen=True, order=True)
class Injected:
    """One fault that was made: to what, and how many times that was asked before."""

    fault: Fault
    operation: Operation
    name: str
    seen: int


class FailingStore:
    """The proxy and the plan that it follows; to begin with none."""

    def __init__(self, server: S3Server, proxy: FlakyProxy) -> None:
        self.server, self.proxy = server, proxy
        self.client = server.client()
        self._lock = threading.Lock()
        self.follow(NO_FAULTS)
        proxy.inject(lambda _request: True, self._answer)

    @property
    def options(self) -> dict[str, str]:
        """The options of a StoreSpec that goes through here; few tries, so that some faults get through."""
        return {**self.server.options, "endpoint": self.proxy.endpoint, "retries": "3"}

    def follow(self, plan: FaultPlan) -> None:
        """Make trouble by this plan from now on, as if nothing had been asked before."""
        self.plan = plan
        self.log: list[Injected] = []
        self._seen: Counter[tuple[Operation, str]] = Counter()
        self._new: set[tuple[str, str]] = set()
        self._gone: dict[tuple[str, str], Row] = {}

    def behave(self) -> None:
        """Make no more trouble; the log stays, to be looked at, and pytest shows it where a test fails."""
        if self.plan == NO_FAULTS:
            return
        _LOG.warning("the store followed %s:\n%s", self.plan, "\n".join(map(str, sorted(self.log))))
        log = self.log
        self.follow(NO_FAULTS)
        self.log = log

    def real(self, bucket: str, prefix: str = "") -> dict[str, Row]:
        """List what is really there, past all faults."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        found = (one for page in pages for one in page.get("Contents", []))
        rows = (Row(one["Key"], one["Size"], one["ETag"].strip('"'), one["LastModified"]) for one in found)
        return {row.key: row for row in rows}

    def _answer(self, request: Request, forward: Forward) -> Response:
        """Answer one request by the plan."""
        operation = _operation(request)
        if operation is None or self.plan == NO_FAULTS:
            return forward()
        name = _name(operation, request)
        seen = self._count(operation, name)
        fault = self.plan.trouble(operation, name, seen)
        if fault is not None:
            self._note(fault, operation, name, seen)
            if fault in _BEFORE:
                return _BEFORE[fault](request, forward)
        if operation is Operation.LIST:
            answer = self._list(request, seen) if self.plan.page else forward()
        else:
            answer = self._change(operation, request, forward) if operation.has_effect else forward()
        if fault is Fault.LOST:
            return dropped(request, forward)
        skewed = _skewed(answer, self.plan.skew(name, seen))
        return truncated(request, lambda: skewed) if fault is Fault.CUT else skewed

    def _change(self, operation: Operation, request: Request, forward: Forward) -> Response:
        """Let the server do what was asked, and remember what listings need not have heard of yet."""
        bucket, key = _place(request)
        keys = _keys(request) if operation is Operation.BULK else [key]
        watched = keys if self.plan.stale else []
        before = {key: self._row(bucket, key) for key in watched}
        answer = self._delete_some(bucket, keys, forward) if operation is Operation.BULK else forward()
        for key, row in before.items():
            is_there = self._row(bucket, key) is not None
            if is_there and row is None:
                self._new.add((bucket, key))
            elif row is not None and not is_there:
                self._gone[bucket, key] = row
        return answer

    def _delete_some(self, bucket: str, keys: Sequence[str], forward: Forward) -> Response:
        """Delete in bulk but for the keys that the plan refuses, which the 200 names with their codes."""
        refused = {}
        for key in keys:
            seen = self._count(Operation.BULK, key)
            if code := self.plan.refusal(key, seen):
                refused[key] = code
                self._note(Fault.REFUSED, Operation.BULK, f"{key} ({code})", seen)
        if not refused:
            return forward()
        done = [key for key in keys if key not in refused]
        if done:
            # The client signed the whole body, so what is left of it has to be a request of our own.
            self.client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in done]})
        deleted = (f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in done)
        errors = (f"<Error><Key>{escape(k)}</Key><Code>{code}</Code></Error>" for k, code in refused.items())
        return Response(200, {}, f"<DeleteResult>{''.join((*deleted, *errors))}</DeleteResult>".encode())

    def _list(self, request: Request, seen: int) -> Response:
        """Answer a page of a listing in key order, as S3 keeps it."""
        asked = question(request)
        rows = self._remembered(_place(request)[0], asked.prefix, seen)
        page = faulty_page(self.plan, asked, seen, rows.values())
        for fault in page.faults:
            self._note(fault, Operation.LIST, asked.name, seen)
        return Response(200, {"Content-Type": "application/xml"}, page.xml(asked))

    def _remembered(self, bucket: str, prefix: str, seen: int) -> dict[str, Row]:
        """Give the rows below a prefix as a listing knows them that is behind on some keys."""
        rows = self.real(bucket, prefix)
        for place in self._new & {(bucket, key) for key in rows}:
            if self.plan.is_stale(place[1], seen):
                del rows[place[1]]
                self._note(Fault.HIDDEN, Operation.LIST, place[1], seen)
        for place, row in list(self._gone.items()):
            known = place[0] == bucket and row.key.startswith(prefix) and row.key not in rows
            if known and self.plan.is_stale(row.key, seen):
                rows[row.key] = row
                self._note(Fault.GHOST, Operation.LIST, row.key, seen)
        return rows

    def _row(self, bucket: str, key: str) -> Row | None:
        try:
            found = self.client.head_object(Bucket=bucket, Key=key)
        except ClientError:
            return None
        return Row(key, found["ContentLength"], found["ETag"].strip('"'), found["LastModified"])

    def _count(self, operation: Operation, name: str) -> int:
        """Say how many times this was asked before."""
        with self._lock:
            self._seen[operation, name] += 1
            return self._seen[operation, name] - 1

    def _note(self, fault: Fault, operation: Operation, name: str, seen: int) -> None:
        with self._lock:
            self.log.append(Injected(fault, operation, name, seen))


def _operation(request: Request) -> Operation | None:
    """Tell what a request asks for; None is what no plan touches, such as making a bucket."""
    if not _place(request)[1]:
        if request.method == "GET" and "list-type=2" in request.query:
            return Operation.LIST
        return Operation.BULK if request.method == "POST" and "delete" in request.query else None
    if request.method == "PUT" and "x-amz-copy-source" in {name.lower() for name in request.headers}:
        return Operation.COPY
    known = {"GET": Operation.GET, "HEAD": Operation.HEAD, "PUT": Operation.PUT, "DELETE": Operation.DELETE}
    return known.get(request.method)


def _name(operation: Operation, request: Request) -> str:
    """Name a request without its bucket, whose name is another in every session."""
    if operation is Operation.LIST:
        return question(request).name
    if operation is Operation.BULK:
        return "\n".join(("keys:", *sorted(_keys(request))))
    return _place(request)[1]


def _place(request: Request) -> tuple[str, str]:
    """Give the bucket and the key that a request names."""
    bucket, _, key = request.path.removeprefix("/").partition("/")
    return bucket, key


def _keys(request: Request) -> list[str]:
    """Read the keys of a bulk delete."""
    return [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", request.body.decode(), re.DOTALL)]


def _skewed(answer: Response, shift: timedelta) -> Response:
    """Move the times in an answer's headers."""
    moved = {
        name: format_datetime(parsedate_to_datetime(value) + shift, usegmt=True)
        for name, value in answer.headers.items()
        if name.lower() in {"date", "last-modified"}
    }
    return replace(answer, headers={**answer.headers, **moved})


@pytest.fixture(scope="session")
def failing_store(s3_server: S3Server) -> Iterator[FailingStore]:
    """Run one failing store for the session; who gives it a plan lets it behave again."""
    with flaky_proxy(s3_server.endpoint) as proxy:
        yield FailingStore(s3_server, proxy)
