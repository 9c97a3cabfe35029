"""Configurations as XML: strict, and safe against what XML can do beyond saying things."""

import pytest
from tests.unit.s3.as_xml import as_xml
from tests.unit.s3.refused import rule

from ebbtide.core.errors import LifecycleError
from ebbtide.targets.s3.rules.document import read_configuration, read_configuration_text

RULE = "<Rule><Status>Enabled</Status><Filter/><Expiration><Days>{days}</Days></Expiration></Rule>"


def document(rules, *, before="", attributes=""):
    """Wrap rules into a document."""
    return f"{before}<LifecycleConfiguration{attributes}>{rules}</LifecycleConfiguration>"


def good(days="1"):
    """Write a good rule."""
    return RULE.format(days=days)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "before",
    [
        f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]>',
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/p.dtd"> %p;]>',
        '<!DOCTYPE x SYSTEM "http://127.0.0.1/x.dtd">',
        '<!DOCTYPE x PUBLIC "a" "b">',
        "<!DOCTYPE LifecycleConfiguration>",
        '<?xml version="1.0"?><!DOCTYPE x [<!ELEMENT x ANY>]>',
    ],
)
def test_declarations_are_refused(before):
    """Whatever declares a document type or an entity is refused at the declaration."""
    with pytest.raises(LifecycleError, match="declares a document type or entities") as caught:
        read_configuration_text(document(good("&l9;"), before=before), "xml")

    assert "MalformedXML" == caught.value.code


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<",
        "{}",
        "<LifecycleConfiguration>",
        "<LifecycleConfiguration/>",
        "<LifecycleConfiguration>rules</LifecycleConfiguration>",
        f"<LifeCycleConfiguration>{good()}</LifeCycleConfiguration>",
        f"<Rules>{good()}</Rules>",
        document(good()) + document(good()),
        document(f"<Rules>{good()}</Rules>"),
        document(good() + "stray"),
        document(good("&undeclared;")),
        document(good(""), attributes=""),
        document(good("1.0")),
        document(good("+1")),
        document(good(" 1")),
        document(good("0x1")),
        document(good("1_0")),
        document(good("١")),
        document(good("<Days>1</Days>")),
        document(good("1</Days><Days>2")),
        document(
            good().replace("<Days>1</Days>", "<ExpiredObjectDeleteMarker>1</ExpiredObjectDeleteMarker>")
        ),
        document(
            good().replace("<Days>1</Days>", "<ExpiredObjectDeleteMarker>True</ExpiredObjectDeleteMarker>")
        ),
        document(good().replace("Expiration", "Transitions")),
        document(good().replace("<Filter/>", "<Filter>everything</Filter>")),
        document(good().replace("<Filter/>", "<Filter/><Filter/>")),
        document(good().replace("<Filter/>", '<Filter kind="all"/>')),
        document(good(), attributes=' xmlns="http://s3.amazonaws.com/doc/2006-03-01"'),
        document(good(), attributes=' xmlns="http://example.com/"'),
        document(good().replace("<Filter/>", '<Filter xmlns="http://s3.amazonaws.com/doc/2006-03-01/"/>')),
        document(good(), before="<a>" * 40),
        document("<Rule>" * 40 + "</Rule>" * 40),
        document(good("\x01")),
        document(good("&#1;")),
        document(good("\ud800")),
    ],
)
def test_what_is_not_strictly_a_configuration_is_malformed(text):
    """Broken XML, wrong roots, namespaces, attributes and values, and what is given twice are malformed."""
    with pytest.raises(LifecycleError) as caught:
        read_configuration_text(text, "xml")

    assert "MalformedXML" == caught.value.code


def test_a_document_of_elements_without_end_is_cut_off():
    """No more elements are read than any configuration has, however deep or many they are."""
    for rules in ("<Rule/>" * 250_000, "<Rule>" * 250_000):
        with pytest.raises(LifecycleError, match="one element too many"):
            read_configuration_text(document(rules), "xml")


def test_a_misspelt_element_is_told_the_nearest():
    """The name of JSON's list is not that of XML's element."""
    with pytest.raises(LifecycleError) as caught:
        read_configuration_text(document(good().replace("Expiration", "Transitions")), "xml")

    assert "did you mean 'Transition'?" == caught.value.fix
    assert "LifecycleConfiguration/Rule/Transitions" in caught.value.what


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0" encoding="UTF-8"?>\n' + document(good()),
        '<?xml version="1.0" encoding="ISO-8859-1"?>' + document(good()),
        document(good(), attributes=' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'),
        "<s3:LifecycleConfiguration xmlns:s3='http://s3.amazonaws.com/doc/2006-03-01/'>"
        + good().replace("</", "</s3:").replace("<", "<s3:").replace("<s3:/s3:", "</s3:")
        + "</s3:LifecycleConfiguration>",
        document(f"\n  <!-- kept short -->\n  {good()}\n"),
        document(good("<![CDATA[1]]>")),
        document(good("&#49;")),
        document(good().replace("<Filter/>", "<Filter>\n</Filter>")),
        document(good().replace("<Filter/>", "<ID/><Filter><Prefix></Prefix></Filter>")),
    ],
)
def test_the_ways_to_write_the_same(text):
    """Declared encodings, a prefixed namespace, comments, CDATA and blanks between elements are fine."""
    assert read_configuration([rule()]) == read_configuration_text(text, "xml")


def test_texts_are_kept_as_they_are():
    """Blanks, angle brackets and letters of all scripts in a prefix are part of it."""
    rules = [rule(Filter={"Prefix": " a <b> & \t ü 日本 🙂 "})]

    assert read_configuration(rules) == read_configuration_text(as_xml(rules), "xml")
