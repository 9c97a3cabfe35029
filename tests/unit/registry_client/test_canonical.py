"""Canonical names of registries: every spelling of one address is one name, and different hosts differ."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import BadInput
from ebbtide.targets.oci.client.address import canonical_name, earlier_uids, registry_uid, spelled_uid

LABELS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
HOSTS = st.builds(lambda labels: ".".join([*labels, "example"]), st.lists(LABELS, min_size=1, max_size=3))
LOOPBACKS = (
    "localhost",
    "127.0.0.1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "LOCALHOST",
    "localhost.",
)
HUBS = ("docker.io", "index.docker.io", "registry-1.docker.io", "Docker.IO.")
PORTS = st.integers(1, 65535)


@st.composite
def spellings(draw, host: str, port: int | None, default: int):
    """Draw a way to write an address."""
    name = draw(st.sampled_from([host, host.upper(), host.title()])) + draw(st.sampled_from(["", "."]))
    shown = default if port is None and draw(st.booleans()) else port
    padded = "" if shown is None else f":{shown:0{draw(st.integers(1, 5))}}"
    return f"oci://{name}{padded}{draw(st.sampled_from(['', '/', '/team/app']))}"


@given(st.data(), HOSTS, st.none() | PORTS)
def test_spellings_of_one_registry_are_one_name(data, host, port):
    """Upper case, a dot at the end, zeros before the port, the default port and a repository do not count."""
    first, second = (data.draw(spellings(host, port, 443)) for _ in range(2))
    name = canonical_name(first)

    assert name == canonical_name(second)
    assert registry_uid(first) == registry_uid(second)
    assert name == canonical_name(name)


@given(st.data(), st.sampled_from(LOOPBACKS), st.sampled_from(LOOPBACKS), st.none() | PORTS)
def test_spellings_of_this_machine_are_one_name(data, one, other, port):
    """The names of the loopback address are one host, whose default port is that of plain http."""
    texts = [
        data.draw(spellings(host.removesuffix("."), port, 80).filter(_is_no_dotted_ip))
        for host in (one, other)
    ]

    assert 1 == len({canonical_name(text) for text in texts})


def _is_no_dotted_ip(text: str) -> bool:
    return "]." not in text


@given(HOSTS, HOSTS, st.none() | PORTS, st.none() | PORTS)
def test_different_registries_have_different_names(one, other, port, other_port):
    """Names differ if and only if the host or the port does, by an oracle that only compares numbers."""
    first = f"oci://{one}" + (f":{port}" if port else "")
    second = f"oci://{other}" + (f":{other_port}" if other_port else "")
    same = (one, port or 443) == (other, other_port or 443)

    assert same == (canonical_name(first) == canonical_name(second))
    assert same == (registry_uid(first) == registry_uid(second))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("oci://127.0.0.1:05000", "oci://localhost:5000"),
        ("oci://[::1]:5000/team/app", "oci://localhost:5000"),
        ("oci://127.0.0.2:5000", "oci://127.0.0.2:5000"),
        ("oci://localhost:80", "oci://localhost"),
        ("oci://localhost:443", "oci://localhost:443"),
        ("oci://R.Example.:0443", "oci://r.example"),
        ("oci://r.example:80", "oci://r.example:80"),
        ("oci://[2001:DB8:0::1]:443", "oci://[2001:db8::1]"),
        ("oci://[::ffff:10.0.0.1]:5000", "oci://10.0.0.1:5000"),
        ("oci://b\u00fccher.example", "oci://xn--bcher-kva.example"),
        ("oci://xn--bcher-kva.example:443", "oci://xn--bcher-kva.example"),
        *((f"oci://{host}", "oci://docker.io") for host in HUBS),
    ],
)
def test_names(text, name):
    """Each kind of spelling by an example."""
    assert name == canonical_name(text)


def test_plain_http_has_its_own_default_port():
    """Where plain http is allowed to other machines, 80 is left out and 443 is not."""
    assert "oci://r.example" == canonical_name("oci://r.example:080", allow_http=True)
    assert "oci://r.example:443" == canonical_name("oci://r.example:443", allow_http=True)


@pytest.mark.parametrize(
    "text", ["oci://a..b", "oci://[::1].", "oci://[1:2]", "oci://.example", "oci://a." + "b" * 260]
)
def test_hosts_that_are_none(text):
    """What cannot be a host is bad input."""
    with pytest.raises(BadInput):
        canonical_name(text)


@pytest.mark.parametrize(
    "text",
    ["oci://127.0.0.1:05000", "oci://[::1]:5000", "oci://localhost:5000", "oci://127.0.0.1:5000/app"],
)
def test_what_earlier_versions_called_it(text):
    """Every spelling under which an earlier version kept records is found from the canonical name."""
    assert spelled_uid(text) in earlier_uids(canonical_name(text))


def test_folders_are_followed_through_links(tmp_path):
    """A folder is one registry, whatever leads to it."""
    (tmp_path / "images").mkdir()
    (tmp_path / "link").symlink_to("images")

    assert canonical_name(f"oci-layout:{tmp_path}/images") == canonical_name(f"oci-layout:{tmp_path}/link")
