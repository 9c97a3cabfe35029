"""Credentials where Docker and Podman keep them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from ebbtide.core.errors import ConfigError
from ebbtide.targets.oci.client.credentials import Credentials, find_credentials

HOST = "r.example:5000"
ME = Credentials("me", "hush:hush")
OTHER = Credentials("other", "word")


def login(who: Credentials) -> dict[str, str]:
    """Write a login as Docker does."""
    return {"auth": base64.b64encode(f"{who.username}:{who.password}".encode()).decode()}


def write(file: Path, content: object) -> None:
    """Write a login file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def helper(folder: Path, name: str, script: str) -> None:
    """Write a credential helper."""
    program = folder / "bin" / f"docker-credential-{name}"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def home(tmp_path):
    """Give an empty home, and the environment of its user."""
    return {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("file", "variable", "value"),
    [
        (".docker/config.json", "", ""),
        (".config/containers/auth.json", "", ""),
        ("config/containers/auth.json", "XDG_CONFIG_HOME", "config"),
        ("run/containers/auth.json", "XDG_RUNTIME_DIR", "run"),
        ("elsewhere/config.json", "DOCKER_CONFIG", "elsewhere"),
        ("auth.json", "REGISTRY_AUTH_FILE", "auth.json"),
    ],
)
def test_logins_are_found_where_their_own_tools_look(tmp_path, home, file, variable, value):
    """The files of docker login and podman login count, wherever these tools put them."""
    write(tmp_path / file, {"auths": {HOST: login(ME), "else.example": login(OTHER)}})
    environment = home | ({variable: str(tmp_path / value)} if variable else {})

    assert ME == find_credentials(HOST, environment)
    assert Credentials() == find_credentials("r.example", environment)


def test_the_file_that_is_named_comes_first(tmp_path, home):
    """A file that a variable names beats those in their usual places, unless it has no login for the host."""
    write(tmp_path / ".docker/config.json", {"auths": {HOST: login(OTHER), "only.here": login(OTHER)}})
    write(tmp_path / "mine/config.json", {"auths": {HOST: login(ME)}})
    environment = home | {"DOCKER_CONFIG": str(tmp_path / "mine")}

    assert ME == find_credentials(HOST, environment)
    assert OTHER == find_credentials("only.here", environment)


@pytest.mark.parametrize("server", ["https://index.docker.io/v1/", "index.docker.io", "docker.io"])
def test_names_of_docker_hub(tmp_path, home, server):
    """Docker's own registry has several names, and old files write a URL."""
    write(tmp_path / ".docker/config.json", {"auths": {server: login(ME)}})

    assert (ME if server != "docker.io" else Credentials()) == find_credentials("registry-1.docker.io", home)


@pytest.mark.parametrize("content", [{"credHelpers": {HOST: "vault"}}, {"credsStore": "vault"}])
def test_a_helper_is_asked(tmp_path, home, content):
    """Helpers get the server's name on standard input and answer in JSON; they beat a login in the file."""
    helper(
        tmp_path,
        "vault",
        'test "$1" = get && s=$(cat) && echo "{\\"Username\\":\\"me\\",\\"Secret\\":\\"for $s\\"}"',
    )
    write(tmp_path / ".docker/config.json", {"auths": {HOST: login(OTHER)}, **content})

    assert Credentials("me", f"for {HOST}") == find_credentials(HOST, home)


def test_a_helper_that_knows_nothing_leaves_it_to_the_file(tmp_path, home):
    """A helper for all hosts need not have a login for this one."""
    helper(tmp_path, "vault", "echo credentials not found in native keychain; exit 1")
    write(tmp_path / ".docker/config.json", {"credsStore": "vault", "auths": {HOST: login(ME)}})

    assert ME == find_credentials(HOST, home)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"credHelpers": {HOST: "missing"}}, "docker-credential-missing"),
        ({"credHelpers": {HOST: "broken"}}, "docker-credential-broken"),
        ({"credHelpers": {HOST: "../sh"}}, "not the name of a helper"),
        ({"auths": {HOST: {"auth": "hush!"}}}, "not base64"),
        ({"auths": {HOST: {"identitytoken": "hush"}}}, "identity token"),
        ({"auths": {HOST: login(Credentials("me", "hush\r\nX-Other: 1"))}}, "cannot be sent"),
        (["hush"], "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_named_and_not_shown(tmp_path, home, content, words):
    """The error names the file or the helper, says how else to log in, and holds no secret."""
    helper(tmp_path, "broken", "echo hush; exit 3")
    write(tmp_path / ".docker/config.json", content)
    with pytest.raises(ConfigError, match=words) as raised:
        find_credentials(HOST, home)

    assert "hush" not in str(raised.value)
