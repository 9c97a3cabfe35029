"""Getting into a registry: nobody, by password, by token; and nothing that tells a secret."""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Callable
from urllib.parse import parse_qs

import pytest
from tests.contract.registry.conftest import connected
from tests.services.flaky_proxy import FlakyProxy, Request, Response, flaky_proxy
from tests.services.image_kit import fresh_repository, push_image
from tests.services.registry import PASSWORD, USER, RegistryServer, registry_server

from ebbtide.core.errors import Denied, EbbtideError, MetadataError
from ebbtide.targets.oci.client.credentials import Credentials
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.registry import RegistrySpec

KNOWN = Credentials(USER, PASSWORD)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Run a registry that wants a password."""
    with registry_server(tmp_path_factory.mktemp("guarded"), password=True) as server:
        yield server


def test_a_password_opens(guarded: RegistryServer):
    """With the right password everything works: pushing, listing, reading, deleting."""
    repository = fresh_repository()
    with connected(guarded.endpoint, KNOWN) as client:
        pushed = push_image(client, repository, ["v1"])

        assert ["v1"] == list(client.tags(repository))
        assert pushed.manifest == client.manifest(repository, "v1")
        assert client.delete_manifest(repository, pushed.digest)


@pytest.mark.parametrize("credentials", [Credentials(), Credentials(USER, "wrong " + PASSWORD)])
def test_no_password_or_a_wrong_one(guarded: RegistryServer, credentials: Credentials):
    """Without the right password the registry is Denied, and nothing that is said tells the password."""
    with connected(guarded.endpoint, credentials) as client, pytest.raises(Denied) as raised:
        list(client.repositories())

    assert PASSWORD not in "".join(traceback.format_exception(raised.value))


def test_a_password_is_sent_only_when_asked_for(registry: RegistryServer):
    """A registry that lets everybody in never sees the password."""
    with flaky_proxy(registry.endpoint) as proxy, connected(proxy.endpoint, KNOWN) as client:
        list(client.repositories())
        seen = [request.headers for request in proxy.requests]

    assert [] == [headers for headers in seen if "authorization" in map(str.lower, headers)]


class TokenGate:
    """Stands before a registry and lets in whoever shows the newest token for the scope."""

    def __init__(self, proxy: FlakyProxy, *, answer: object = None) -> None:
        self.proxy, self.given, self.answer = proxy, 0, answer
        self.asked: list[dict[str, list[str]]] = []
        self.shown: list[str] = []
        self.valid: dict[str, str] = {}
        proxy.inject(lambda request: request.path == "/token", self._give)
        proxy.inject(lambda request: not self._knows(request), self._refuse)

    def revoke(self) -> None:
        """Let no token of before open any more."""
        self.valid.clear()

    def _knows(self, request: Request) -> bool:
        return request.headers.get("Authorization", "").removeprefix("Bearer ") in self.valid

    def _refuse(self, request: Request, _forward: Callable[[], Response]) -> Response:
        name = request.path.removeprefix("/v2/").split("/manifests/")[0].split("/tags/")[0]
        challenge = (
            f'Bearer realm="{self.proxy.endpoint}/token",service="gate",scope="repository:{name}:pull"'
        )
        return Response(401, {"WWW-Authenticate": challenge}, b"{}")

    def _give(self, request: Request, _forward: Callable[[], Response]) -> Response:
        self.asked.append(parse_qs(request.query))
        self.shown.append(request.headers.get("Authorization", ""))
        self.given += 1
        token = f"token-{self.given}"
        self.valid[token] = token
        return Response(200, {}, json.dumps(self.answer or {"token": token}).encode())


@pytest.fixture
def pushed_repository(registry: RegistryServer) -> str:
    """Push an image past the gate."""
    repository = fresh_repository()
    with connected(registry.endpoint) as client:
        push_image(client, repository, ["v1"])
    return repository


def test_a_token_is_fetched_once_for_a_scope(proxy: FlakyProxy, pushed_repository: str):
    """A token is asked for with the service and scope of the challenge, and used until it is refused."""
    gate = TokenGate(proxy)
    with connected(proxy.endpoint, KNOWN) as client:
        for _ in range(3):
            list(client.tags(pushed_repository))
            client.manifest(pushed_repository, "v1")

    basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    scope = [f"repository:{pushed_repository}:pull"]

    assert [{"service": ["gate"], "scope": scope}] == gate.asked
    assert [basic] == gate.shown


def test_a_token_without_credentials(proxy: FlakyProxy, pushed_repository: str):
    """Nobody's token is asked for without a name, as public registries want it."""
    gate = TokenGate(proxy)
    with connected(proxy.endpoint) as client:
        found = list(client.tags(pushed_repository))

    assert (["v1"], [""]) == (found, gate.shown)


def test_a_token_that_ends_in_the_middle(proxy: FlakyProxy, pushed_repository: str):
    """A token that is refused in the middle of a scan is renewed once, and the scan goes on."""
    gate = TokenGate(proxy)
    with connected(proxy.endpoint, KNOWN) as client:
        list(client.tags(pushed_repository))
        gate.revoke()
        found = client.resolve(pushed_repository, "v1")

    assert found.digest
    assert 2 == gate.given


def test_a_token_that_never_opens(proxy: FlakyProxy, pushed_repository: str):
    """A new token that is refused like the old one is Denied, not tried for ever."""
    gate = TokenGate(proxy, answer={"access_token": "useless"})
    with connected(proxy.endpoint, KNOWN) as client, pytest.raises(Denied):
        list(client.tags(pushed_repository))

    assert 1 == gate.given


@pytest.mark.parametrize("answer", [{"tokens": 1}, [], {"token": 7}, {"token": "two\nlines"}])
def test_an_answer_without_a_token(proxy: FlakyProxy, pushed_repository: str, answer: object):
    """An answer that holds no usable token is an error that repeats nothing of it."""
    TokenGate(proxy, answer=answer or ["x"])
    with connected(proxy.endpoint, KNOWN) as client, pytest.raises(MetadataError, match="no token"):
        list(client.tags(pushed_repository))


def test_a_given_token_is_used_as_it_is(proxy: FlakyProxy, pushed_repository: str):
    """A token from the environment is shown to the registry, and no other is asked for."""
    gate = TokenGate(proxy)
    gate.valid["mine"] = "mine"
    with connected(proxy.endpoint, Credentials("", "", "mine")) as client:
        found = list(client.tags(pushed_repository))

    assert (["v1"], 0) == (found, gate.given)


def test_secrets_stay_out_of_errors(proxy: FlakyProxy, pushed_repository: str):
    """Whatever goes wrong with tokens, neither error nor traceback shows password or token."""

    def echo(request: Request, _forward: Callable[[], Response]) -> Response:
        return Response(
            403, {}, json.dumps({"errors": [{"code": "DENIED", "message": str(request.headers)}]}).encode()
        )

    proxy.inject(lambda request: request.path == "/token", echo)
    TokenGate(proxy)
    with connected(proxy.endpoint, KNOWN) as client, pytest.raises(EbbtideError) as raised:
        list(client.tags(pushed_repository))
    told = "".join(traceback.format_exception(raised.value)) + repr(client.__dict__) + repr(KNOWN)

    assert PASSWORD not in told
    assert base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode() not in told


def test_the_login_of_docker_opens(guarded: RegistryServer, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Without variables of ours, the login that docker login wrote is used."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    host = guarded.endpoint.rpartition("/")[2]
    (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    client = RegistryClient(RegistrySpec(guarded.url))

    assert isinstance(list(client.repositories()), list)
    client.close()


def test_our_own_variables_win(guarded: RegistryServer, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A login of docker does not replace what EBBTIDE_REGISTRY_USERNAME says."""
    (tmp_path / "config.json").write_text("no JSON: it must not be read")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("EBBTIDE_REGISTRY_USERNAME", USER)
    monkeypatch.setenv("EBBTIDE_REGISTRY_PASSWORD", PASSWORD)
    client = RegistryClient(RegistrySpec(guarded.url))

    assert isinstance(list(client.repositories()), list)
    client.close()
