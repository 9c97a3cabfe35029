"""One rig for each kind of store: the store itself, and ways to make it fail."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

import pytest
from tests.services.flaky_proxy import FlakyProxy, Request, Response, access_denied, flaky_proxy
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.storage.local import LocalStore
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3 import S3Store
from ebbtide.storage.store import Store, StoreSpec

FAST = Backoff(tries=3, first=0.001)
"""So that a test of back-off takes no time."""


@dataclass(frozen=True)
class Rig:
    """A store under test; `deny` lets it refuse a delete, `break_listing` breaks off the next listing."""

    store: Store
    deny: Callable[[str], None]
    break_listing: Callable[[], None]


@pytest.fixture(scope="session")
def store_bucket(s3_server: S3Server) -> Iterator[str]:
    """Give one bucket for all contract tests; each has a prefix of its own in it."""
    with fresh_bucket(s3_server) as name:
        yield name


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FlakyProxy]:
    """Run a proxy in front of the S3 server that does nothing yet but forward."""
    with flaky_proxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def s3_store(s3_server: S3Server, proxy: FlakyProxy, store_bucket: str) -> S3Store:
    """Open an S3 store through the proxy, below a prefix that needs escaping."""
    options = {**s3_server.options, "endpoint": proxy.endpoint}
    return S3Store(StoreSpec(f"s3://{store_bucket}/t%20{uuid.uuid4().hex}", options), FAST)


@pytest.fixture
def local_store(tmp_path) -> LocalStore:
    """Open a store on an empty folder."""
    root = tmp_path / "the store"
    root.mkdir()
    return LocalStore(StoreSpec(str(root)))


@pytest.fixture(params=["local", "s3"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Give each kind of store in turn."""
    return request.getfixturevalue(f"{request.param}_rig")


@pytest.fixture
def store(rig: Rig) -> Store:
    """Give the store alone, to tests that need no trouble."""
    return rig.store


@pytest.fixture
def local_rig(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Make trouble on disk: the tests may run as root, whom no permission stops."""
    unlink, scandir = os.unlink, os.scandir

    def deny(key: str) -> None:
        def refusing(path, **more):
            if str(path).startswith(local_store._root) and str(path).endswith("/" + key):
                raise PermissionError(13, "Permission denied")
            unlink(path, **more)

        monkeypatch.setattr(os, "unlink", refusing)

    def break_listing() -> None:
        def breaking(path):
            # Below the root folders are opened by number too; nobody else's are disturbed.
            mine = isinstance(path, int) or str(path).startswith(f"{local_store._root}/")
            if mine and str(path).rstrip("/") != local_store._root:
                raise OSError(5, "Input/output error")
            return scandir(path)

        monkeypatch.setattr(os, "scandir", breaking)

    return Rig(local_store, deny, break_listing)


@pytest.fixture
def s3_rig(s3_store: S3Store, proxy: FlakyProxy, s3_server: S3Server) -> Rig:
    """Make trouble between the client and the server."""

    def deny(key: str) -> None:
        proxy.inject(is_bulk_delete, refuse_keys(s3_server, {key: "AccessDenied"}))

    def break_listing() -> None:
        proxy.inject(is_listing, access_denied)

    return Rig(s3_store, deny, break_listing)


def is_bulk_delete(request: Request) -> bool:
    """Recognise a delete of many keys."""
    return request.method == "POST" and "delete" in request.query


def is_listing(request: Request) -> bool:
    """Recognise a page of a listing."""
    return request.method == "GET" and "list-type=2" in request.query


def refuse_keys(server: S3Server, codes: dict[str, str]):
    """Answer a bulk delete with 200 and errors inside for some keys, and really delete the others."""

    def answer(request: Request, _forward: Callable[[], Response]) -> Response:
        keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
        lines = []
        for key in keys:
            code = next((code for end, code in codes.items() if key.endswith("/" + end)), "")
            if code:
                lines.append(f"<Error><Key>{escape(key)}</Key><Code>{code}</Code></Error>")
            else:
                with contextlib.closing(server.client()) as client:
                    client.delete_object(Bucket=request.path.strip("/"), Key=key)
                lines.append(f"<Deleted><Key>{escape(key)}</Key></Deleted>")
        return Response(200, {}, f"<DeleteResult>{''.join(lines)}</DeleteResult>".encode())

    return answer
