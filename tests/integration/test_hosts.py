"""
Several hosts, as network namespaces: an executor that does not share what the driver has stops the run.

One host has the master of Spark and the driver; two others have a worker each. What differs on a worker is
the disk under the state root, the disk under the lake, the build of Ebbtide, or the way to the store.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.services.hosts import Hosts, StandaloneCluster, some_hosts, standalone_cluster
from tests.services.lake import RAW_30_DAYS, make_lake, open_lake

import ebbtide
from ebbtide.state.runs import RunState

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = """
root = "{folder}/state"
catalog.url = "sqlite:///{folder}/catalog.db"
ledger.url = "sqlite:///{folder}/ledger.db"

[spark]
driver_memory = "700m"
shuffle_partitions = 2
java_options = "{quick}"

[spark.conf]
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "{quick}"
"spark.cores.max" = "2"
"""
DAY_40 = "2026-02-10T12:00:00Z"


class Site:
    """A lake in a folder, and the hosts that look after it."""

    def __init__(self, folder: Path, hosts: Hosts, cluster: StandaloneCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.head, self.one, self.two = hosts.made
        self.root, self.objects = folder / "state", folder / "objects"

    def fill(self) -> None:
        """Make a lake with seven objects, of which five are due on day 40."""
        self.root.mkdir()
        lake = make_lake(None, self.folder)
        lake.policy(RAW_30_DAYS)
        lake.upload(*(f"raw/{number}" for number in range(5)), "keep/1", "keep/2")
        lake.commit()
        lake.close()
        (self.folder / "ebbtide.toml").write_text(CONF.format(folder=self.folder, quick=QUICK))

    def plan(
        self, master: str, *target: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Plan the lake, or another target, on the first host."""
        ebb = Path(sys.executable).with_name("ebb")
        asked = [*(target or ("lake:lake", "--full")), "--json", "--now", DAY_40, "--master", master]
        return subprocess.run(
            self.head.command(ebb, "plan", *asked),
            env=os.environ | dict(env or {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def plans(self) -> int:
        """Count the plans that were made."""
        lake = open_lake(None, self.folder)
        try:
            return sum(run.state is not RunState.ABANDONED for run in lake.ledger.runs())
        finally:
            lake.close()

    def stopped(self, *target: str, env: Mapping[str, str] | None = None) -> str:
        """Plan on the cluster, see that it stops without a plan, and give what is said."""
        before = self.plans()
        done = self.plan(self.cluster.url, *target, env=env)

        assert 3 == done.returncode, done.stdout + done.stderr
        assert before == self.plans()
        assert not any(self.root.glob("executors/*"))
        return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    """Three hosts, the master of a cluster on one of them, and a lake."""
    folder = tmp_path_factory.mktemp("site")
    with some_hosts() as hosts:
        hosts.add()
        hosts.add()
        (folder / "spark").mkdir()
        with standalone_cluster(hosts.made[0], folder / "spark") as cluster:
            made = Site(folder, hosts, cluster)
            made.fill()
            yield made


def test_hosts_that_share_everything_make_the_local_plan(site):
    """Two hosts with the same disks and the same Ebbtide make the plan that one machine makes alone."""
    with site.cluster.worker(site.one), site.cluster.worker(site.two):
        on_cluster = site.plan(site.cluster.url)
    alone = site.plan("local[2]")

    assert (0, 0) == (on_cluster.returncode, alone.returncode), on_cluster.stderr + alone.stderr
    assert json.loads(alone.stdout)["plan_hash"] == json.loads(on_cluster.stdout)["plan_hash"]
    assert 5 == json.loads(on_cluster.stdout)["summary"]["due"]["objects"]


def test_the_only_worker_has_another_disk_under_the_state_root(site):
    """Nothing is planned, and the error names the host, the folder and what to do."""
    with site.cluster.worker(site.one, other_disks=[site.root]):
        said = site.stopped()

    assert f"({site.one.address}) cannot take part: it has another disk than the driver's" in said
    assert str(site.root) in said
    assert "mount the same 'root'" in said


def test_one_of_two_workers_has_another_disk_under_the_state_root(site):
    """The one that does not share it is named, and the one that does is not."""
    with site.cluster.worker(site.one), site.cluster.worker(site.two, other_disks=[site.root]):
        said = site.stopped()

    assert f"({site.two.address}) cannot take part" in said
    assert site.one.address not in said


def test_a_worker_has_another_disk_under_the_lake(site):
    """A folder that looks empty to a worker is no lake whose objects are gone."""
    with site.cluster.worker(site.one, other_disks=[site.objects]):
        said = site.stopped()

    assert f"({site.one.address}) cannot take part" in said
    assert "does not see _lakefs/" in said


def test_a_worker_runs_another_build(site, tmp_path):
    """Another Ebbtide, be it in one line, would decide by another code."""
    package = tmp_path / "ebbtide"
    shutil.copytree(Path(ebbtide.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "core" / "decision.py").open("a") as file:
        file.write("\n# changed\n")
    with site.cluster.worker(site.one, env={"PYTHONPATH": str(tmp_path)}):
        said = site.stopped()

    assert f"({site.one.address}) cannot take part: it has Ebbtide {ebbtide.__version__} (" in said


def test_a_worker_has_no_ebbtide(site, tmp_path):
    """The error says which module is missing and what to do, not which call of Spark's met that."""
    (tmp_path / "ebbtide").mkdir()
    (tmp_path / "ebbtide" / "__init__.py").write_text("")
    with site.cluster.worker(site.one, env={"PYTHONPATH": str(tmp_path)}):
        said = site.stopped()

    assert "No module named ebbtide.worker_daemon" in said
    assert "install the same Ebbtide" in said
    assert "An error occurred while calling" not in said


def test_a_lost_executor_is_named(site):
    """That an executor died is the root cause, and its host is said."""
    program = Path(__file__).with_name("losing.py")
    with site.cluster.worker(site.one):
        done = subprocess.run(
            site.head.command(sys.executable, program, site.folder, site.cluster.url),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    assert "a Spark job failed: ExecutorLostFailure" in done.stdout, done.stderr
    assert f"(on host {site.one.address})" in done.stdout
    assert f"the whole text is in {site.folder / 'spark.log'}" in done.stdout


@contextmanager
def s3_of(site: Site, folder: Path, bucket: str) -> Iterator[dict[str, Any]]:
    """Serve S3 on the loopback of the first host, where no other host gets; give where, and credentials."""
    program = Path(__file__).with_name("serving.py")
    command = site.head.command(sys.executable, program, folder, bucket)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.stdin.close()


def test_a_worker_has_no_way_to_the_store(site, tmp_path):
    """A store that answers the driver and not a worker stops the plan before anything is listed."""
    rules = [{"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}]
    (tmp_path / "rules.json").write_text(json.dumps({"Rules": rules}))
    with s3_of(site, tmp_path, "far") as server, site.cluster.worker(site.one, env=server["env"]):
        store = {"EBBTIDE_STORE__ENDPOINT": server["endpoint"], "EBBTIDE_STORE__ALLOW_HTTP": "true"}
        store |= {"EBBTIDE_STORE__PATH_STYLE": "true", "EBBTIDE_STORE__ORDERED": "false"}
        said = site.stopped("s3://far", "--rules", str(tmp_path / "rules.json"), env=server["env"] | store)

    assert f"({site.one.address}) cannot take part: it has no way to the target" in said
