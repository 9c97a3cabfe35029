"""The canonical form of an address: one object, one string, whatever the spelling."""

from __future__ import annotations

import unicodedata
from urllib.parse import quote

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from ebbtide.core.errors import AddressError
from ebbtide.storage.address import canonical, canonical_column, canonical_namespace, is_inside

ROOT = ("my ns", "é%")
NAMESPACE = "s3://lake/my%20ns/%C3%A9%25"
LETTERS = st.sampled_from(
    [*"abF5.%+?#:=_~-@ ,", "é", "e", "\u0301", "\u0307", "ß", "中", "\U0001f30a", "\u212a"]
)

part = st.text(LETTERS, min_size=1, max_size=6).filter(
    lambda text: unicodedata.normalize("NFC", text) not in (".", "..")
)
objects = (
    st.lists(part, min_size=1, max_size=4)
    .map(lambda parts: tuple(unicodedata.normalize("NFC", one) for one in parts))
    .filter(lambda parts: not parts[0].endswith(":"))
)
slashes = st.sampled_from(["/", "/", "//", "///"])


@st.composite
def relative_spelling(draw, parts):
    """Write an object as a raw key: doubled slashes, a trailing one, composed or decomposed."""
    form = draw(st.sampled_from(["NFC", "NFD"]))
    text = parts[0] + "".join(draw(slashes) + one for one in parts[1:])
    return unicodedata.normalize(form, text) + draw(st.sampled_from(["", "/", "//"]))


@st.composite
def full_spelling(draw, parts, host="lake", root=ROOT):
    """Write an object as a URL: any scheme of S3, any case, more or fewer escapes, doubled slashes."""
    scheme = draw(st.sampled_from(["s3", "s3a", "s3n", "S3A"]))
    form = draw(st.sampled_from(["NFC", "NFD"]))
    safe = draw(st.sampled_from(["", "+:=_~-@ ,", "abF5.éß中"]))

    def escaped(text: str) -> str:
        text = unicodedata.normalize(form, text)
        found = "".join(c if c in safe and c.isascii() else quote(c, safe="") for c in text)
        return found.lower() if draw(st.booleans()) and "%" not in text and text.islower() else found

    path = "".join(draw(slashes) + escaped(one) for one in (*root, *parts))
    case = draw(st.sampled_from([str.lower, str.upper, str.title]))
    return f"{scheme}://{case(host)}{path}" + draw(st.sampled_from(["", "/"]))


spelled = objects.flatmap(lambda parts: st.one_of(relative_spelling(parts), full_spelling(parts)))
anything = st.one_of(
    spelled,
    objects.flatmap(lambda parts: full_spelling(parts, host="other", root=())),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from("ab./:%s3\\"), max_size=12),
    st.sampled_from(
        ["s3://lake/x", "s3a://lake/ns/x", "s3://lake/ns/s3a://lake/ns/x", "a.b/.c/..d", "file:/x/y"]
    ),
)
namespaces = st.sampled_from([None, NAMESPACE, "s3://lake", "s3://lake/ns", "file:///x", "file:///"])


def outcome(address: str, namespace: str | None) -> str | None:
    """Give the canonical form, or None where it is refused."""
    try:
        return canonical(address, namespace)
    except AddressError:
        return None


@given(objects.flatmap(lambda parts: st.tuples(st.just(parts), relative_spelling(parts))))
def test_every_raw_spelling_of_an_object_gives_its_key(case):
    """A raw key gives one string, however its slashes and accents are written."""
    parts, spelling = case

    assert "/".join(parts) == canonical(spelling, NAMESPACE)


@given(objects.flatmap(lambda parts: st.tuples(st.just(parts), full_spelling(parts))))
@example((("?\u0307",), "s3://lake/my%20ns/%C3%A9%25/%3F\u0307"))
def test_every_url_of_an_object_in_the_namespace_gives_its_key(case):
    """A URL into the namespace gives the same string as the raw key does."""
    parts, spelling = case

    assert "/".join(parts) == canonical(spelling, NAMESPACE)


@given(
    objects.flatmap(lambda parts: st.tuples(*[full_spelling(parts, host="other", root=())] * 2)),
)
def test_every_url_of_an_object_elsewhere_gives_one_url(case):
    """Two spellings of an object outside the namespace give one full address, which is not inside."""
    first, second = (canonical(spelling, NAMESPACE) for spelling in case)

    assert (first, False) == (second, is_inside(second))


@given(objects, objects)
def test_different_objects_never_share_a_string(one, other):
    """Two keys that differ after NFC and single slashes never share a canonical form."""
    keys = {one, other}
    inside = {canonical("/".join(key), NAMESPACE) for key in keys}
    outside = {canonical("s3://other/" + quote("/".join(key)), NAMESPACE) for key in keys}

    assert (len(keys), len(keys), 2 * len(keys)) == (len(inside), len(outside), len(inside | outside))


@given(anything, namespaces)
@example("/s3://b/k", None)
@example("s3://lake/ns/s3%3A//b/k", "s3://lake/ns")
def test_the_canonical_form_is_a_fixed_point(address, namespace):
    """What came out once comes out again unchanged, so it does not matter how often it is applied."""
    once = outcome(address, namespace)

    assert once is None or once == canonical(once, namespace)


@given(anything)
def test_the_canonical_namespace_is_a_fixed_point(url):
    """A canonical namespace is its own canonical form."""
    try:
        once = canonical_namespace(url)
    except AddressError:
        return

    assert once == canonical_namespace(once)


@given(st.lists(anything, max_size=8), namespaces, st.sampled_from([pa.string(), pa.large_string()]))
def test_the_column_says_what_the_single_address_says(addresses, namespace, kind):
    """A column is refused if one of its addresses is, and is else the canonical form of each, in order."""
    expected = [outcome(address, namespace) for address in addresses]
    try:
        actual = canonical_column(pa.array(addresses, kind), namespace).to_pylist()
    except AddressError:
        actual = None

    assert (None if None in expected else expected) == actual


@given(st.lists(spelled, max_size=8), st.integers(0, 8))
def test_chunks_make_no_difference(addresses, cut):
    """A column in several chunks gives the same as one in a single piece."""
    chunked = pa.chunked_array([addresses[:cut], addresses[cut:]], pa.string())
    whole = pa.array(addresses, pa.string())

    assert canonical_column(whole, NAMESPACE) == canonical_column(chunked, NAMESPACE)
