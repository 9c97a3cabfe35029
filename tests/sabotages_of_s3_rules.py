"""Ways to break the reading of S3 lifecycle rules: name, module, a text of it, its replacement, tests."""

from __future__ import annotations

MODEL = "targets/s3/rules/service_model.py"
XML = ("tests/unit/s3/test_xml.py",)
READING = ("tests/unit/s3/test_reading.py",)
WRITING = ("tests/unit/s3/test_writing.py",)
SETTINGS = ("tests/unit/s3/test_service_model.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("lifecycle XML may have a document type", MODEL, "forbid_dtd=True", "forbid_dtd=False", XML),
    (
        "an unknown element of lifecycle XML is ignored",
        MODEL,
        '            raise malformed(f"{inside}: unknown element", fix=nearest(child.tag, names))\n',
        "            continue\n",
        XML,
    ),
    (
        "of two equal elements of lifecycle XML the last wins",
        MODEL,
        "        elif name in plain:\n",
        "        elif False:\n",
        XML,
    ),
    (
        "every text but true is false in lifecycle XML",
        MODEL,
        "_BOOLEANS.get(text, text)",
        '(text == "true")',
        XML,
    ),
    (
        "true is a number of days",
        MODEL,
        "isinstance(param, int) and not isinstance(param, bool)",
        "isinstance(param, int)",
        READING,
    ),
    (
        "a carriage return in a prefix becomes a line feed",
        MODEL,
        'return xml.replace("\\r", "&#13;")',
        "return xml",
        WRITING,
    ),
    (
        "the user's AWS models decide what is valid",
        MODEL,
        "include_default_search_paths=False",
        "include_default_search_paths=True",
        SETTINGS,
    ),
    (
        "a field of a later S3 model is ignored",
        "targets/s3/rules/document.py",
        "        if field not in _CONVERTED[path]:\n",
        "        if False:\n",
        SETTINGS,
    ),
    (
        "the form of a lifecycle rule is not checked",
        "targets/s3/rules/document.py",
        "    for name, rule in zip(names, rules, strict=True):\n        check_form(name, rule, locations)\n",
        "",
        READING,
    ),
)
