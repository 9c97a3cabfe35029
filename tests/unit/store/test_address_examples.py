"""Single addresses, where an example says more than a property."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ebbtide.core.errors import AddressError
from ebbtide.storage.address import canonical, canonical_column, canonical_namespace, is_inside


@pytest.mark.parametrize(
    ("address", "namespace", "expected"),
    [
        ("data/x", "s3://b/ns", "data/x"),
        ("s3a://B/ns//data/x/", "s3://b/ns", "data/x"),
        ("s3n://b/ns2/x", "s3://b/ns", "s3://b/ns2/x"),
        ("s3://b/ns/x", "s3a://b//ns/", "x"),
        ("s3://b/x", None, "s3://b/x"),
        ("a%20b", "s3://b/ns", "a%20b"),
        ("s3://b/ns/a%20b", "s3://b/ns", "a b"),
        ("s3://b/ns/a%2520b", "s3://b/ns", "a%20b"),
        ("s3://b/ns/a%2Fb", "s3://b/ns", "a/b"),
        ("s3://o/a b%25%3f", "s3://b/ns", "s3://o/a%20b%25%3F"),
        ("s3://o/e\u0301", None, "s3://o/%C3%A9"),
        ("gs://b/x", "s3://b", "gs://b/x"),
        ("file:/x/y", "/x", "y"),
        ("file://localhost/x/y", "file:///x", "y"),
        ("what?/is#this", "s3://b/ns", "what?/is#this"),
        ("Data/X", "s3://b/ns", "Data/X"),
    ],
)
def test_an_address_has_this_canonical_form(address, namespace, expected):
    """Relative addresses are raw keys, full ones are URLs, and both give one string for one object."""
    assert expected == canonical(address, namespace)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "/x",
        "//x",
        ".",
        "a/../b",
        "a/./b",
        "a\0b",
        "a\nb",
        "a\x85b",
        "a\\b",
        "a\ud800",
        "s3:/b/x",
        " s3://b/x",
        "s3://",
        "s3://b",
        "s3://b/",
        "s3:///x",
        "s3://b/ns",
        "s3://b:9000/x",
        "s3://user@b/x",
        "s3://b/x?versionId=1",
        "s3://b/x#y",
        "s3://b/100%",
        "s3://b/%zz",
        "s3://b/%ff",
        "s3://b/%00",
        "s3://b/a/%2E%2e/b",
        "s3://b/%ED%A0%80",
        "s3://b\u212a/x",
        "s3://b/ns/s3:/x",
        "file://host/x",
        "https://b/x",
        "abfss://c@a/x",
        None,
        7,
    ],
)
def test_an_address_in_doubt_is_refused(address):
    """What has no single meaning raises, with what was found, why it matters and what to do."""
    with pytest.raises(AddressError) as caught:
        canonical(address, "s3://b/ns")

    assert (True, True) == (bool(caught.value.why), bool(caught.value.fix))


@pytest.mark.parametrize("address", ["s3://key:hunter2@b/x", "s3://b/x?X-Amz-Signature=hunter2"])
def test_a_refusal_does_not_repeat_secrets(address):
    """Passwords and signatures in an address do not get into the error, and so not into logs."""
    with pytest.raises(AddressError) as caught:
        canonical(address, None)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3a://Bucket/ns//x/", "s3://bucket/ns/x"),
        ("s3://b", "s3://b"),
        ("s3://b/", "s3://b"),
        ("/x/a b//100%/", "file:///x/a%20b/100%25"),
        ("/", "file:///"),
        ("file:///a", "file:///a"),
    ],
)
def test_a_namespace_has_this_canonical_form(url, expected):
    """A namespace is written as a URL without a slash at its end."""
    assert expected == canonical_namespace(url)


def test_a_plain_path_starts_at_the_current_folder(tmp_path, monkeypatch):
    """A relative folder is made absolute, so that it means the same to an executor elsewhere."""
    monkeypatch.chdir(tmp_path)

    assert [f"file://{tmp_path}/lake", f"file://{tmp_path}"] == [
        canonical_namespace("./lake"),
        canonical_namespace("."),
    ]


@pytest.mark.parametrize("url", ["", "../x", "~/x", "C:/x", "s3:/b", "https://b"])
def test_a_namespace_in_doubt_is_refused(url):
    """A namespace that could be several places is refused."""
    with pytest.raises(AddressError):
        canonical_namespace(url)


def test_inside_means_relative():
    """A canonical address is inside its namespace exactly if it is relative."""
    assert [True, True, False] == [is_inside("data/x"), is_inside("a:b"), is_inside("s3://o/x")]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", ""]),
        pa.array([b"a", b"\xff"]).view(pa.string()),
        pa.array(["s3://b/ns/s3a://b/ns/x"]),
    ],
    ids=["null", "empty", "no UTF-8", "doubled"],
)
def test_one_bad_address_refuses_the_column(column):
    """A null or an unreadable address may stand for a live object, so it stops the run."""
    with pytest.raises(AddressError):
        canonical_column(column, "s3://b/ns")


def test_an_empty_column_stays_empty():
    """No addresses give no addresses, in the type that came."""
    empty = pa.chunked_array([], pa.string())

    assert pa.array([], pa.string()) == canonical_column(empty, "s3://b")
