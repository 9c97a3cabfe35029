"""The check of executors: who has another disk, build or Python, or no way to the target, stops the run."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from ebbtide.core.errors import ExecutorUnfit, MetadataError, StoreError
from ebbtide.engine import cluster_check
from ebbtide.engine.build import build_id, digest_of
from ebbtide.engine.cluster_check import StoreReach, check_cluster, check_executors, session_proof
from ebbtide.engine.executor_probe import Probe
from ebbtide.storage import executor_proof
from ebbtide.storage.executor_proof import PROOF, check_fitness, note_unfitness
from ebbtide.storage.store import StoreSpec, open_store

NONCE = "a nonce"


def cluster(master="spark://10.0.0.1:7077"):
    """Stand in for a session: of it the check needs the master alone, where nobody is asked."""
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


def answer(folder, **changes):
    """Let this process answer as an executor does."""
    (batch,) = Probe(str(folder), "127.0.0.1", digest_of)(iter(()))
    (row,) = batch.to_pylist()
    return row | changes


@pytest.fixture
def folder(tmp_path):
    """Make the folder of a check, with its nonce."""
    place = tmp_path / "state" / "executors" / "check-1"
    place.mkdir(parents=True)
    (place / "nonce").write_text(NONCE)
    return place


def test_who_shares_everything_lacks_nothing(folder):
    """An executor that reads the nonce, writes back and runs the same code may take part."""
    assert "" == cluster_check._lack(answer(folder), folder, NONCE)


def test_another_disk_is_noticed_by_reading(folder, tmp_path):
    """An executor that does not find the nonce has another disk, and the state root is named."""
    elsewhere = answer(tmp_path / "elsewhere")

    assert "" == elsewhere["seen"] == elsewhere["written"]
    assert f"another disk than the driver's under {tmp_path / 'state'}" == cluster_check._lack(
        elsewhere, folder, NONCE
    )


def test_another_disk_is_noticed_by_writing(folder):
    """What an executor writes back has to be found by the driver: a copy of the disk is not the disk."""
    found = answer(folder)
    (folder / found["written"]).unlink()

    assert "another disk" in cluster_check._lack(found, folder, NONCE)


@pytest.mark.parametrize(
    ("change", "lack"),
    [
        ({"build": "0.0.9 (0123456789abcdef)"}, "Ebbtide 0.0.9 (0123456789abcdef), where the driver has"),
        ({"python": "3.1"}, f"Python 3.1, where the driver has 3.{sys.version_info.minor}"),
    ],
    ids=["build", "python"],
)
def test_other_code_is_noticed(folder, change, lack):
    """An executor with another build or another Python is told apart."""
    assert lack in cluster_check._lack(answer(folder, **change), folder, NONCE)


def test_a_digest_tells_builds_apart(tmp_path):
    """One changed line is another build."""
    (tmp_path / "module.py").write_text("x = 1\n")
    before = digest_of(tmp_path)
    (tmp_path / "module.py").write_text("x = 2\n")

    assert before != digest_of(tmp_path)


def test_an_executor_that_lacks_something_stops_the_run(tmp_path, monkeypatch):
    """The error names the host and what it lacks, exits 3, and the check leaves nothing behind."""
    elsewhere = answer(tmp_path / "elsewhere", host="node7 (10.0.0.7)")
    monkeypatch.setattr(cluster_check, "_ask", lambda *_: [elsewhere])
    with pytest.raises(
        ExecutorUnfit, match=r"node7 \(10.0.0.7\) cannot take part: it has another disk"
    ) as no:
        check_executors(cluster(), tmp_path)

    assert 3 == no.value.exit_code
    assert not any((tmp_path / "executors").iterdir())


@pytest.mark.parametrize("master", ["spark://h:7077", "local-cluster[2,1,1024]", "yarn", "k8s://https://h"])
def test_every_cluster_is_asked(tmp_path, monkeypatch, master):
    """Whatever is not the driver's own process tree has to prove itself."""
    monkeypatch.setattr(cluster_check, "_ask", lambda *_: [answer(tmp_path / "elsewhere")])
    with pytest.raises(ExecutorUnfit):
        check_cluster(cluster(master), tmp_path)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_master_has_nobody_to_ask(tmp_path, master):
    """On one machine nothing is asked, written or set."""
    check_cluster(cluster(master), tmp_path)
    with session_proof(tmp_path, master) as conf:
        assert {} == conf
    assert not any(tmp_path.iterdir())


def joined(monkeypatch, proof):
    """Let this process be an executor that joined a session with such a proof."""
    monkeypatch.setenv(PROOF, proof)
    monkeypatch.setenv(executor_proof._UNFIT, "")


def test_who_joins_later_and_shares_all_may_open_stores(tmp_path, monkeypatch):
    """Python on a new executor finds the nonce of the session, and the same build."""
    with session_proof(tmp_path, "yarn") as conf:
        joined(monkeypatch, conf[f"spark.executorEnv.{PROOF}"])
        note_unfitness(build_id())
        check_fitness()
    assert not any((tmp_path / "executors").iterdir())


@pytest.mark.parametrize("lack", ["disk", "build"])
def test_who_joins_later_and_lacks_something_opens_no_store(tmp_path, monkeypatch, lack):
    """An executor that was not asked stops by itself before it reads or deletes anything."""
    with session_proof(tmp_path, "yarn") as conf:
        proof = json.loads(conf[f"spark.executorEnv.{PROOF}"])
        if lack == "disk":
            proof["file"] = str(tmp_path / "elsewhere" / "session")
        joined(monkeypatch, json.dumps(proof))
        note_unfitness(build_id() if lack == "disk" else "another")

        with pytest.raises(ExecutorUnfit, match=lack):
            open_store(str(tmp_path / "lake"))


def test_a_folder_without_its_witness_is_not_the_store(tmp_path):
    """On another disk a namespace looks empty: there it is not opened at all."""
    store = open_store(str(tmp_path / "lake"))
    store.write("_lakefs/committed/1.parquet", b"1")
    spec = StoreSpec(str(tmp_path / "lake"), witness="_lakefs/committed/1.parquet")
    StoreReach(spec)()

    with pytest.raises(MetadataError, match=r"does not see _lakefs/committed/1.parquet"):
        open_store(StoreSpec(str(tmp_path / "elsewhere"), witness="_lakefs/committed/1.parquet"))


def test_what_cannot_be_reached_is_said(tmp_path):
    """An executor says why it cannot open the target, in place of failing."""

    def unreachable():
        raise StoreError("s3://lake does not answer")

    (batch,) = cluster_check._Reacher(unreachable, "127.0.0.1")(iter(()))

    assert "no way to the target: s3://lake does not answer" == batch.to_pylist()[0]["lack"]
