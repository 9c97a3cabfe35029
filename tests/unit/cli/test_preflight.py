"""What cannot succeed is refused before Spark starts, and a dead port is found out about at once."""

import pytest
from sqlalchemy.engine import make_url

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.state.database import connect_options
from ebbtide.state.locks import target_lock
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.s3.seaweedfs import reserved_ports


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    """Let no command start Spark."""

    def started(*_args, **_more):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("ebbtide.engine.spark.session.spark_session", started)


@pytest.fixture
def dead_port():
    """Give a port at which nobody answers."""
    with reserved_ports(1) as (port,):
        yield port


@pytest.mark.parametrize(
    ("words", "server"),
    [
        (["plan", "s3://logs"], "the store"),
        (["plan", "s3://logs", "--bin"], "the store"),
        (["explain", "s3://logs", "key"], "the store"),
        (["lake", "create", "far", "s3://logs/far"], "the store"),
        (["plan", "oci://127.0.0.1:{port}"], "the registry"),
        (["image", "scan", "oci://127.0.0.1:{port}"], "the registry"),
        (["recycle", "ls", "oci://127.0.0.1:{port}"], "the registry"),
        (["plan", "lake:sales", "--master", "spark://127.0.0.1:{port}"], "the Spark master"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_dead_port_is_named_at_once(lake, dead_port, capsys, monkeypatch, words, server):
    """Nobody answers: the error names host and port, and no request is tried again."""
    monkeypatch.setenv("EBBTIDE_STORE__ENDPOINT", f"http://127.0.0.1:{dead_port}")
    monkeypatch.setenv("EBBTIDE_STORE__ALLOW_HTTP", "true")
    monkeypatch.setattr("ebbtide.storage.rate_limit.Backoff.attempts", pytest.fail)
    code = run([word.format(port=dead_port) for word in words])
    error = capsys.readouterr().err

    assert 1 == code, error
    assert f"{server} does not answer at 127.0.0.1:{dead_port}" in error


def test_a_dead_database_is_named(lake, dead_port, capsys, monkeypatch):
    """PostgreSQL is given a few seconds to answer; the error names host and port, and not the password."""
    url = f"postgresql+psycopg://user:secret@127.0.0.1:{dead_port}/ledger"
    monkeypatch.setenv("EBBTIDE_LEDGER__URL", url)
    code = run(["runs"])
    error = capsys.readouterr().err

    assert 1 == code
    assert all(word in error for word in ("127.0.0.1", str(dead_port)))
    assert "secret" not in error
    assert {"connect_timeout": 5} == connect_options(make_url(url))
    assert {} == connect_options(make_url(f"{url}?connect_timeout=60"))


@pytest.mark.parametrize("options", [[], ["--uncommitted"], ["--bin"]], ids=" ".join)
def test_a_busy_target_is_refused(lake, capsys, options):
    """Another run is at work on the target."""
    with target_lock(lake / ".ebbtide", shared_catalog(State()).repository("sales").uid, "ebb apply 7"):
        code = run(["plan", "lake:sales", *options])

    assert 3 == code
    assert "in use by ebb apply 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan", "lake:nowhere"], "nowhere"),
        (["plan", "lake:sales", "--retention"], "retention"),
        (["plan", "lake:sales", "--branch", "main"], "--branch and --clean need --uncommitted"),
        (["plan", "lake:sales", "--rules", "rules.json"], "--rules applies to buckets only"),
        (["plan", "lake:sales", "--deleted"], "sales"),
        (["apply", "latest"], "there is no plan yet"),
        (["explain", "lake:nowhere", "a"], "nowhere"),
        (["lake", "check", "nowhere"], "nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_refused(lake, capsys, words, error):
    """What is wrong can be said without Spark."""
    code = run(words)

    assert 2 == code
    assert error in capsys.readouterr().err
