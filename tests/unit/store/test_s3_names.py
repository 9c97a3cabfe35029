"""Names in S3 listings: decoded exactly once, or refused."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.storage.s3_listing import NameReader, UntrustedName, page_root

NAMES = st.text(st.characters(exclude_categories=["Cs"]))


@given(NAMES, st.sampled_from([quote, quote_plus, lambda name: quote(name, safe="")]))
def test_an_encoded_name_is_decoded_exactly_once(name, encode):
    """Whatever a server encodes, and however much of it, comes back as it was."""
    assert name == NameReader(encoded=True).read(encode(name))


@given(NAMES.filter(lambda name: "\ufffd" not in name))
def test_a_name_that_is_not_encoded_is_not_decoded(name):
    """Percent and plus signs are ordinary characters to a server that ignores encoding-type."""
    assert name == NameReader(encoded=False).read(name)


@pytest.mark.parametrize(
    "text", ["a%zz", "a%", "%f", "a b", "é", "%FF%FE", "%ED%A0%80", "x\ufffdy", "x\ny", "%C3+"]
)
def test_an_encoded_name_that_is_none_is_refused(text):
    """Half an escape, bytes that are no UTF-8 and characters that an encoder leaves to nobody raise."""
    with pytest.raises(UntrustedName):
        NameReader(encoded=True).read(text)


@pytest.mark.parametrize(("text", "body"), [("x\ufffdy", b""), ("x\ny", b"<Key>x\ry</Key>")])
def test_a_plain_name_that_may_be_another_is_refused(text, body):
    """A replacement character, and a newline on a page that has carriage returns, raise."""
    with pytest.raises(UntrustedName):
        NameReader(encoded=False, body=body).read(text)


def test_a_page_with_a_forbidden_character_is_refused_and_half_a_page_is_left_to_botocore():
    """Only a page that came whole shows that a name is to blame."""
    whole = b"<ListBucketResult><Key>a\x01b</Key></ListBucketResult>"

    assert page_root({"status_code": 200, "body": whole[:-9]}) is None
    assert page_root({"status_code": 200, "body": b"<html><br></html>"}) is None
    assert page_root({"status_code": 503, "body": whole}) is None
    for body in (whole, whole.replace(b"\x01", b"&#x1;"), whole.replace(b"\x01", b"\xff")):
        with pytest.raises(UntrustedName):
            page_root({"status_code": 200, "body": body})
