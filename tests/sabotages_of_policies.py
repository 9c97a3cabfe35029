"""Ways to break the reading of policies and configuration: name, module, good text, bad text, tests."""

from __future__ import annotations

PATTERNS = ("tests/unit/images/test_patterns.py",)
IMAGES = ("tests/unit/images/test_reading.py",)
CONFIG = ("tests/unit/test_config.py",)
LAKES = ("tests/unit/rules/test_lake_policy.py", "tests/unit/rules/test_retention.py")

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a tag pattern matches the beginning of a tag",
        "targets/oci/policies/patterns.py",
        ".fullmatch(tag.encode())",
        ".match(tag.encode())",
        PATTERNS,
    ),
    (
        "a repetition without a minimum is read as text",
        "targets/oci/policies/patterns.py",
        'return "{0" + text[1:]',
        "return text",
        PATTERNS,
    ),
    (
        "a bracket in a set begins a POSIX class",
        "targets/oci/policies/patterns.py",
        r'lambda part: r"\[" if part[0] == "[" else part[0]',
        "lambda part: part[0]",
        PATTERNS,
    ),
    (
        "a field of a policy that is given in two spellings is taken from one of them",
        "targets/oci/policies/document.py",
        "if name in found:",
        "if False:",
        IMAGES,
    ),
    (
        "an unknown field of a document is ignored",
        "core/documents.py",
        'extra="forbid"',
        'extra="ignore"',
        (*IMAGES, *LAKES),
    ),
    (
        "a lake rule without a prefix matches everything",
        "targets/repository/policy.py",
        'prefix: Annotated[str, Fix(\'write "prefix": "raw/"\')]',
        'prefix: str = ""',
        LAKES,
    ),
    (
        "true counts as one day in a lake policy",
        "core/documents.py",
        "if isinstance(value, bool) or not isinstance(value, int):",
        "if not isinstance(value, int):",
        LAKES,
    ),
    (
        "a variable for no setting is ignored",
        "config.py",
        "if not _replace(data, values, place):",
        "if not _replace(data, values, place) and False:",
        CONFIG,
    ),
    (
        "an error shows a password of the configuration",
        "config.py",
        'return "not valid" if may_be_secret else shown(value)',
        "return shown(value)",
        CONFIG,
    ),
)
