"""Ways in which a rehearsal left the machine: proxies, redirects, and what PostgreSQL's library reads."""

from __future__ import annotations

import pytest
from tests.services.flaky_proxy import Response, flaky_proxy

from ebbtide.cli.main import run
from ebbtide.core.errors import NotFound, SafetyStop, StoreError
from ebbtide.state.database import check_local_database
from ebbtide.storage.network import LOCAL_ONLY, check_answers, quick_first_contact
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry
from ebbtide.targets.s3.seaweedfs import reserved_ports

FAR = "http://192.0.2.1"
LOCAL = {LOCAL_ONLY: "yes"}
QUICK = {"timeout": "1", "patience": "1", "retries": "1"}
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture
def server():
    """Run a server that knows nothing, unless a test injects an answer."""
    with flaky_proxy("http://127.0.0.1:1") as found:
        yield found


@pytest.fixture
def proxy(monkeypatch):
    """Run a proxy that the environment names for everything."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with flaky_proxy("http://127.0.0.1:1") as found:
        found.inject(lambda _: True, lambda *_: Response(404))
        for name in PROXIES:
            monkeypatch.setenv(name, found.endpoint)
        yield found


def answer(server, status, headers=None):
    """Let a server answer every request in one way."""
    server.inject(lambda _: True, lambda *_: Response(status, headers or {}))


@pytest.mark.parametrize("options", [LOCAL, {}], ids=["rehearsal", "real"])
def test_s3_on_this_machine_is_reached_without_a_proxy(server, proxy, options):
    """Requests to an S3 server on a loopback address go there, whatever proxy the environment names."""
    answer(server, 404)
    store = open_store(StoreSpec("s3://data", {"endpoint": server.endpoint, "allow_http": "yes", **options}))
    with pytest.raises(NotFound):
        store.stat("key")

    assert [] == proxy.requests
    assert ["/data/key"] == [request.path for request in server.requests]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1"])
def test_a_registry_of_a_rehearsal_is_reached_without_a_proxy(server, proxy, host):
    """Requests of a rehearsal go to the registry itself, also where its name does not look like loopback."""
    answer(server, 404)
    port = server.endpoint.rpartition(":")[2]
    registry = open_registry(RegistrySpec(f"oci://{host}:{port}", {"allow_http": "yes", **QUICK, **LOCAL}))
    with pytest.raises(NotFound):
        registry.resolve("app", "v1")
    registry.close()

    assert [] == proxy.requests
    assert {"/v2/app/manifests/v1"} == {request.path for request in server.requests}


def test_a_local_server_is_asked_for_itself_despite_a_proxy(proxy):
    """First contact with a server on this machine finds out that it is down, also where a proxy is named."""
    with (
        reserved_ports(1) as (port,),
        quick_first_contact(),
        pytest.raises(StoreError, match="does not answer"),
    ):
        check_answers(f"http://127.0.0.1:{port}", "the store")


def test_an_s3_request_that_is_turned_elsewhere(server, proxy):
    """A request to S3 that something has turned to another host is not sent in a rehearsal."""
    options = {"endpoint": server.endpoint, "allow_http": "yes", "retries": "1", **LOCAL}
    store = open_store(StoreSpec("s3://data", options))

    def turn(request, **_):
        request.url = f"{FAR}/data/key"

    store._client.meta.events.register("before-sign.s3", turn)
    with pytest.raises(SafetyStop, match=r"192\.0\.2\.1 is not on this machine"):
        store.stat("key")


def test_no_server_is_asked_for_credentials(server, tmp_path, monkeypatch):
    """In a rehearsal credentials come from variables and files; nobody asks the role of the machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.endpoint)
    answer(server, 404)
    options = {"endpoint": "http://127.0.0.1:1", "allow_http": "yes", "retries": "1", **LOCAL}
    with pytest.raises(StoreError, match="no credentials"):
        open_store(StoreSpec(f"s3://data/{tmp_path.name}", options)).stat("key")

    assert [] == server.requests


def redirected(registry):
    """Read a manifest."""
    registry.manifest("app", "v1")


def uploaded(registry):
    """Upload a blob."""
    registry.put_blob("app", digest_of(b"x"), 1, lambda: [b"x"])


WAYS = {
    "redirect": (redirected, "GET", 307, {"Location": f"{FAR}/x"}),
    "upload": (uploaded, "POST", 202, {"Location": f"{FAR}/x"}),
    "token": (redirected, "GET", 401, {"WWW-Authenticate": f'Bearer realm="{FAR}/token"'}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_registry_that_sends_a_rehearsal_elsewhere(server, way):
    """A redirect, an upload or a token from a host that is not this machine stops the rehearsal."""
    act, method, status, headers = WAYS[way]
    server.inject(lambda request: request.method == method, lambda *_: Response(status, headers))
    answer(server, 404)
    url = server.endpoint.replace("http://", "oci://")
    registry = open_registry(RegistrySpec(url, {**QUICK, **LOCAL}))
    with pytest.raises(SafetyStop, match=r"192\.0\.2\.1.* is not on this machine"):
        act(registry)
    registry.close()


def test_a_cluster_elsewhere_is_not_asked_what_runs(tmp_path, monkeypatch, capsys):
    """A rehearsal does not ask a Kubernetes API on another machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()

    assert 0 == run(["init", "--rehearsal"])
    assert 3 == run(["plan", f"oci-layout:{tmp_path}/images", "--running", "https://192.0.2.1"])
    assert "the cluster at 192.0.2.1 is not on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "environment"),
    [
        ("postgresql+psycopg://u@127.0.0.1/x", {"PGHOSTADDR": "192.0.2.1"}),
        ("postgresql+psycopg://u@localhost/x", {"PGHOSTADDR": "127.0.0.1,192.0.2.1"}),
        ("postgresql+psycopg:///x?host=/var/run/postgresql", {"PGHOSTADDR": "192.0.2.1"}),
        ("postgresql+psycopg://u@127.0.0.1/x", {"PGSERVICE": "production"}),
        ("postgresql+psycopg://u@127.0.0.1/x", {"PGSERVICE": "localhost"}),
        ("postgresql+psycopg:///x?service=localhost", {}),
        ("postgresql+psycopg:///x", {"PGHOST": "127.0.0.1", "PGHOSTADDR": "192.0.2.1"}),
    ],
)
def test_a_database_that_the_environment_moves(url, environment, monkeypatch):
    """An address or service that PostgreSQL's library takes from the environment must be local, too."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SafetyStop):
        check_local_database(url)


def test_a_local_address_in_the_environment(monkeypatch):
    """A loopback address in PGHOSTADDR is allowed, and one in the URL takes its place."""
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    check_local_database("postgresql+psycopg://u@localhost/x")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    check_local_database("postgresql+psycopg://u@localhost/x?hostaddr=127.0.0.1")
