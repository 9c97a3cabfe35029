"""Hosts on one machine: network namespaces behind a bridge, each with disks of its own where a test wants."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest
from tests.services.spark import QUICK
from tests.setup import install

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
READY_SECONDS = 240


@dataclass(frozen=True)
class Host:
    """A network namespace with an address that the others reach."""

    name: str
    address: str

    def command(self, *command: str | Path, other_disks: Sequence[Path] = ()) -> list[str]:
        """Give a command that runs on this host; each of the other disks is empty there, and its own."""
        # `ip netns exec` gives the process mounts of its own, so that nothing is mounted for anybody else.
        mounts = [f"mount -t tmpfs -o size=64m none '{place}'" for place in other_disks]
        script = " && ".join([*mounts, 'exec "$@"'])
        return ["ip", "netns", "exec", self.name, "sh", "-c", script, "sh", *map(str, command)]


@dataclass
class Hosts:
    """Hosts behind one bridge; they and it are gone when the block ends."""

    bridge: str
    network: int
    made: list[Host] = field(default_factory=list)

    def add(self) -> Host:
        """Make a host."""
        number = len(self.made) + 1
        host = Host(f"{self.bridge}h{number}", f"10.231.{self.network}.{number + 1}")
        inside, outside = f"{self.bridge}i{number}", f"{self.bridge}o{number}"
        _ip("netns", "add", host.name)
        self.made.append(host)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside)
        _ip("link", "set", inside, "netns", host.name)
        _ip("link", "set", outside, "master", self.bridge, "up")
        _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", inside)
        _ip("-n", host.name, "link", "set", inside, "up")
        _ip("-n", host.name, "link", "set", "lo", "up")
        return host

    def remove(self) -> None:
        """Remove all that was made; with a namespace goes its end of each cable, and so the other end."""
        for host in self.made:
            subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def some_hosts() -> Iterator[Hosts]:
    """Make room for hosts; where namespaces cannot be had the test is skipped, and fails in CI."""
    # Names of interfaces have at most 15 characters; the process's number keeps tests apart.
    hosts = Hosts(f"eb{os.getpid()}", os.getpid() % 200 + 20)
    try:
        install("iproute2")
        _ip("link", "add", hosts.bridge, "type", "bridge")
        _ip("link", "set", hosts.bridge, "up")
        hosts.add()
    except (OSError, subprocess.CalledProcessError) as broken:
        hosts.remove()
        said = getattr(broken, "stderr", "") or str(broken)
        told = f"NETWORK NAMESPACES CANNOT BE HAD HERE, so no test with several hosts ran: {said.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)
    try:
        yield hosts
    finally:
        hosts.remove()


@contextmanager
def running(command: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Run a program until the block ends."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=os.environ | dict(env), stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(log: Path, words: str) -> None:
    """Wait until a daemon has said that it is ready."""
    deadline = time.monotonic() + READY_SECONDS
    while words not in log.read_text(errors="replace"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


@dataclass(frozen=True)
class StandaloneCluster:
    """A master of Spark on one host, to which workers on others are added for as long as a test wants."""

    head: Host
    folder: Path

    @property
    def url(self) -> str:
        """Where the master listens: its host is nobody else's, so the usual port is free."""
        return f"spark://{self.head.address}:7077"

    @contextmanager
    def worker(
        self, host: Host, *, other_disks: Sequence[Path] = (), env: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Run a worker with one core on a host, which may have disks or an environment of its own."""
        log = self.folder / f"worker-{host.name}-{time.monotonic_ns()}.log"
        size = ["--cores", "1", "--memory", "700m", "--webui-port", "0"]
        command = [_spark_class(), WORKER, "--host", host.address, *size, self.url]
        work = self.folder / f"work-{log.stem}"
        settings = _daemon(host) | {"SPARK_WORKER_DIR": str(work)} | dict(env or {})
        with running(host.command(*command, other_disks=other_disks), log, settings):
            wait_until(log, "Successfully registered with master")
            yield


@contextmanager
def standalone_cluster(head: Host, folder: Path) -> Iterator[StandaloneCluster]:
    """Run a master of Spark on a host."""
    log = folder / "master.log"
    command = [_spark_class(), MASTER, "--host", head.address, "--port", "7077", "--webui-port", "0"]
    with running(head.command(*command), log, _daemon(head)):
        wait_until(log, "New state: ALIVE")
        yield StandaloneCluster(head, folder)
    shutil.rmtree(folder, ignore_errors=True)


def _spark_class() -> Path:
    return Path(pyspark.__file__).parent / "bin" / "spark-class"


def _daemon(host: Host) -> dict[str, str]:
    return {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }
