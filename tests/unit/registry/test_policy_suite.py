"""Cases about registries: read strictly, compared by name."""

from __future__ import annotations

import re

import pytest

from ebbtide.core.errors import BadInput
from ebbtide.targets.oci.policy_suite import registry_case, run_cases

CASE = {
    "name": "old ones go",
    "kind": "registry",
    "policies": {"policies": {"Default": {"days": 5}}},
    "images": [
        {
            "repository": "app",
            "digest": "sha256:aa",
            "tags": [{"name": "v1", "moved_at": "2018-01-01"}, {"name": "v2", "moved_at": "2018-01-01"}],
        }
    ],
    "running": ["host.example/app:v1"],
    "now": "2018-02-01",
    "expect": {"app:v1": "keep", "app@sha256:aa": "keep", "app:v2": "recycle"},
}


def test_a_case_that_is_right_passes():
    """What is named is compared, and a case needs neither policies nor what runs."""
    plain = {name: value for name, value in CASE.items() if name not in ("policies", "running")}
    results = run_cases(
        [
            registry_case(CASE, "suite: case 0"),
            registry_case(plain | {"expect": {"app@sha256:aa": "recycle"}}, "suite: case 1"),
        ]
    )

    assert [True, True] == [result.passed for result in results]
    assert {"app@sha256:aa": "recycle"} == results[1].actual


def test_a_case_that_is_wrong_says_what_differs():
    """A case that fails names what is other than expected, and nothing else."""
    (result,) = run_cases([registry_case(CASE | {"running": None}, "suite: case 0")])

    assert {
        "name": "old ones go",
        "passed": False,
        "expected": CASE["expect"],
        "actual": dict.fromkeys(CASE["expect"], "recycle"),
    } == result.to_plain()
    assert [
        "app:v1: expected keep, actual recycle",
        "app@sha256:aa: expected keep, actual recycle",
    ] == list(result.differences)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": []}, "did you mean 'images'"),
        ({"images": None}, "images is not a list"),
        ({"images": [{"repository": "app"}]}, "image 1: digest"),
        ({"policies": {"assign": [{}]}}, "assign rule 1"),
        ({"running": [5]}, "running, entry 1"),
        ({"now": None}, "now"),
        ({"expect": {}}, "expects nothing"),
        ({"expect": {"app:v9": "keep"}}, "none of its images"),
        ({"expect": {"app:v1": "kept"}}, "did you mean 'keep'"),
    ],
)
def test_a_case_that_is_malformed_is_refused(fields, words):
    """An error names the case and says what is wrong."""
    with pytest.raises(BadInput, match=re.escape(words)) as refused:
        registry_case(CASE | fields, "suite: case 0")

    assert "suite: case 0" in str(refused.value)
