"""Kinds of targets: found by scheme, with options that only they understand."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from tests.unit.plan.test_manifest import MANIFEST

from ebbtide.cli.main import run
from ebbtide.core.display import OBJECTS, OBJECTS_WITH_BIN
from ebbtide.core.errors import BadInput, EnvironmentProblem
from ebbtide.targets import kinds


@pytest.fixture
def fresh():
    """Forget which kinds were found, before and after."""
    caches = (kinds._entry_points, kinds.kind_of_scheme, kinds.all_kinds)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


def test_every_kind_of_ebbtide_is_found_by_its_scheme():
    """Lakes, buckets, registries and image layouts have kinds; the last two share one."""
    found = {scheme: kinds.kind_of(f"{scheme}:x").plural for scheme in ("lake", "s3", "oci", "oci-layout")}

    assert {"lake": "lakes", "s3": "buckets", "oci": "registries", "oci-layout": "registries"} == found
    assert 3 == len(kinds.all_kinds())


@pytest.mark.parametrize("url", ["foo", "ftp://x", "", "Lake:x"])
def test_an_unknown_target_names_what_is_expected(url):
    """A URL of no known scheme is bad input, and the error lists how targets are written."""
    with pytest.raises(BadInput, match=r"lake:REPO, oci://HOST\[/REPO\] or s3://BUCKET"):
        kinds.kind_of(url)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan s3://b --uncommitted --branch x", "--uncommitted and --branch apply to lakes only"),
        ("plan oci://h --rules r.json", "--rules applies to buckets only"),
        ("plan lake:x --adopt", "--adopt applies to registries only"),
        ("plan lake:x --adopt --rules-from stored", "--adopt and --rules-from apply to other targets only"),
        ("plan s3://b --rules-from somewhere", "--rules-from is 'somewhere'"),
    ],
)
def test_an_option_of_another_kind_is_refused(words, said, capsys, tmp_path, monkeypatch):
    """An option that this kind of target does not understand is bad input; the error says whose it is."""
    monkeypatch.chdir(tmp_path)

    assert 2 == run(words.split())
    assert said in capsys.readouterr().err


def test_two_packages_with_one_scheme_are_refused(fresh, monkeypatch):
    """Which of two packages collects a target must not depend on which is found first."""
    both = [EntryPoint("s3", value, kinds.GROUP) for value in ("a.b:KIND", "c.d:KIND")]
    monkeypatch.setattr(kinds, "entry_points", lambda **_: both)

    with pytest.raises(EnvironmentProblem, match=r"'s3': a\.b:KIND and c\.d:KIND"):
        kinds.kind_of("s3://x")


def test_a_plan_of_a_kind_that_is_gone_can_still_be_shown(manifest_of):
    """Without the package that made it, a plan is described in plain words."""
    assert OBJECTS == kinds.words_of(manifest_of("gone:x"))
    assert OBJECTS_WITH_BIN == kinds.words_of(manifest_of("gone:x", days=3))


@pytest.fixture
def manifest_of():
    """Make a manifest for a target."""

    def make(target, days=None):
        extra = {} if days is None else {"recycle": {"days": days, "folder": "f"}}
        return replace(MANIFEST, target=target, extra=extra)

    return make
