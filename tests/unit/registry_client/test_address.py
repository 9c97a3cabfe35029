"""Addresses of registries, and their options and credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.config import Settings, load_settings
from ebbtide.core.errors import BadInput, ConfigError
from ebbtide.targets.oci.client.address import LayoutPath, RegistryUrl, parse_address
from ebbtide.targets.oci.client.credentials import Credentials
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistryOptions, RegistrySpec, open_registry


@pytest.mark.parametrize(
    ("text", "expected", "origin"),
    [
        ("oci://registry.example", RegistryUrl("registry.example"), "https://registry.example"),
        ("oci://registry.example/", RegistryUrl("registry.example"), "https://registry.example"),
        ("oci://R.example:5000/a/b", RegistryUrl("r.example:5000", "a/b"), "https://r.example:5000"),
        ("oci://localhost:5000/a", RegistryUrl("localhost:5000", "a"), "http://localhost:5000"),
        ("oci://127.0.0.1/a", RegistryUrl("127.0.0.1", "a"), "http://127.0.0.1"),
        ("oci://[::1]:5000/a", RegistryUrl("[::1]:5000", "a"), "http://[::1]:5000"),
        ("oci://[::1]", RegistryUrl("[::1]"), "http://[::1]"),
        ("oci://10.0.0.1:5000/a", RegistryUrl("10.0.0.1:5000", "a"), "https://10.0.0.1:5000"),
        ("oci://localhost.example", RegistryUrl("localhost.example"), "https://localhost.example"),
    ],
)
def test_servers(text: str, expected: RegistryUrl, origin: str):
    """A server's address gives host and repository; https everywhere but on this machine."""
    assert expected == parse_address(text)
    assert origin == expected.origin()


def test_plain_http_by_option():
    """Plain http to another machine is used only where it is allowed."""
    assert "http://r.example" == RegistryUrl("r.example").origin(allow_http=True)


@pytest.mark.parametrize("text", ["oci-layout:/some/where", "file:///some/where", "file:/some/where"])
def test_folders(text: str):
    """A folder can be given as a path or as a URL."""
    assert LayoutPath(Path("/some/where")) == parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "registry.example/app",
        "https://registry.example/app",
        "s3://bucket/app",
        "oci://",
        "oci:///app",
        "oci://host:0/app",
        "oci://host:99999/app",
        "oci://host:port/app",
        "oci://ho st/app",
        "oci://host/app:v1",
        "oci://host/app@sha256:" + "0" * 64,
        "oci://host/../app",
        "oci://host//app",
        "oci://host/app?x=1",
        "oci://host#x/app",
        "oci-layout:",
    ],
)
def test_addresses_that_are_none(text: str):
    """What is no address is bad input, with the forms that there are."""
    with pytest.raises(BadInput) as raised:
        parse_address(text)

    assert "oci://HOST" in str(raised.value)


def test_a_password_in_an_address():
    """An address with a user name is refused, and the error does not repeat it."""
    with pytest.raises(BadInput) as raised:
        parse_address("oci://me:hush@registry.example/app")

    assert "hush" not in str(raised.value)


def test_opening_by_address(tmp_path):
    """An address opens the kind of registry that it names."""
    folder = open_registry(f"oci-layout:{tmp_path}")
    server = open_registry(RegistrySpec("oci://localhost:1", {"retries": "1"}))
    server.close()

    assert isinstance(folder, ImageLayout)
    assert isinstance(server, RegistryClient)


@pytest.mark.parametrize(
    "options", [{"timeout": "0"}, {"page": "x"}, {"retries": "51"}, {"allow_http": "maybe"}, {"user": "me"}]
)
def test_options_that_are_none(options: dict[str, str]):
    """An unknown option or a wrong value is an error, so that a slip of the pen is not just ignored."""
    with pytest.raises(ConfigError):
        RegistryOptions.parse(options)


NAMED = {"EBBTIDE_REGISTRY_USERNAME": "me", "EBBTIDE_REGISTRY_PASSWORD": "hush"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Credentials()),
        (NAMED, Credentials("me", "hush")),
        ({**NAMED, "EBBTIDE_REGISTRY_HOST": "R.example"}, Credentials("me", "hush")),
        ({**NAMED, "EBBTIDE_REGISTRY_HOST": "other.example"}, Credentials()),
        ({"EBBTIDE_REGISTRY_TOKEN": "t"}, Credentials("", "", "t")),
    ],
)
def test_credentials_of_the_environment(environment: dict[str, str], expected: Credentials):
    """Credentials come from the environment, and those of one host go to no other."""
    assert expected == Credentials.from_environment("r.example", environment)


@pytest.mark.parametrize(
    "environment",
    [
        {"EBBTIDE_REGISTRY_PASSWORD": "hush"},
        {"EBBTIDE_REGISTRY_USERNAME": "a:b", "EBBTIDE_REGISTRY_PASSWORD": "hush"},
        {"EBBTIDE_REGISTRY_TOKEN": "hush\r\nX-Other: 1"},
    ],
)
def test_credentials_that_cannot_be_sent(environment: dict[str, str]):
    """Credentials that would be sent as something else are refused, and not shown."""
    with pytest.raises(ConfigError) as raised:
        Credentials.from_environment("r.example", environment)

    assert "hush" not in str(raised.value)


def test_credentials_are_no_settings(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """The variables of credentials are not taken for unknown settings."""
    monkeypatch.chdir(tmp_path)
    names = (*NAMED, "EBBTIDE_REGISTRY_TOKEN", "EBBTIDE_REGISTRY_HOST")

    assert isinstance(load_settings(environ=dict.fromkeys(names, "x")), Settings)


def test_credentials_do_not_show():
    """Printing credentials shows none of them."""
    assert "Credentials()" == repr(Credentials("me", "hush", "token"))
