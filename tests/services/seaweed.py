"""A real S3 server for tests: SeaweedFS on 127.0.0.1, with its data in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from ebbtide.targets.s3.seaweedfs import S3Server, seaweed

__all__ = ["S3Server", "bucket", "fresh_bucket", "s3_server", "seaweed"]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Run an S3 server, with its credentials in the environment, for the rest of the session."""
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        for name in set(os.environ) & {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"}:
            patch.delenv(name)
        yield server


@contextlib.contextmanager
def fresh_bucket(server: S3Server) -> Iterator[str]:
    """Make a bucket and remove it afterwards: each holds volumes, of which the server has not many."""
    name = f"ebb-{uuid.uuid4().hex[:12]}"
    server.client().create_bucket(Bucket=name)
    yield name
    with contextlib.suppress(ClientError):
        server.client().delete_bucket(Bucket=name)


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[str]:
    """Give the name of a fresh bucket."""
    with fresh_bucket(s3_server) as name:
        yield name
