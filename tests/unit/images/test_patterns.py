"""Patterns of repositories and tags: anchored, and no pattern can stop a run."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import PolicyError
from ebbtide.targets.oci.policies.patterns import glob, tag_pattern


@pytest.mark.parametrize(
    ("pattern", "repository", "expected"),
    [
        ("*", "team/app", True),
        ("team/*", "team/app", True),
        ("team/*", "team/sub/app", True),
        ("team/*", "other/team/app", False),
        ("team/app", "team/app2", False),
        ("app-?", "app-1", True),
        ("app-[ab]", "app-c", False),
        ("Team/*", "team/app", False),
        ("**/app", "app", True),
        ("**/app", "team/sub/app", True),
        ("**/app", "my-app", False),
        ("team/**", "team/sub/app", True),
    ],
)
def test_a_glob_is_about_the_whole_name(pattern, repository, expected):
    """A star takes slashes too, folders may be none, nothing else means more than it says; case counts."""
    assert expected == glob("here", pattern).matches(repository)


@pytest.mark.parametrize(
    ("pattern", "tag", "expected"),
    [
        ("0.0.1", "0.0.10", False),
        ("0.0.1", "10.0.1", False),
        ("0.0.1", "0.0.1", True),
        ("v[0-9]+(\\.[0-9]+)*", "v1.20.3", True),
        ("v[0-9]+(\\.[0-9]+)*", "v1.20.", False),
        ("^v1$", "v1", True),
        ("a|ab", "ab", True),
        ("dev|test", "development", False),
        ("(?i)rc-.*", "RC-1", True),
        (".*", "", True),
    ],
)
def test_trap_14_a_tag_pattern_is_anchored(pattern, tag, expected):
    """A pattern must match the whole tag, so 0.0.1 is not about 0.0.10."""
    assert expected == tag_pattern("here", pattern).matches(tag)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*b", "((a?){30}){30}b", "(((((a+)+)+)+)+)+b"]
)
def test_no_pattern_takes_for_ever(pattern):
    """Patterns that Python's matcher would not finish are answered at once."""
    assert not tag_pattern("here", pattern).matches("a" * 128)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "RE2 can match: missing )"),
        ("a{2,1}", "RE2 can match: invalid repetition size"),
        ("(?=a)a", "no lookarounds"),
        ("(?!a)a", "no lookarounds"),
        ("(?<!a)b", "no lookarounds"),
        ("(a)\\1", "no backreferences"),
        ("(?P<n>a)(?P=n)", "no backreferences"),
        ("((a?){100}){100}b", "no repetitions over 1000"),
        ("\ud800", "surrogates not allowed"),
        ("a" * 600, "600 characters"),
        ("", "''"),
        (5, "is 5"),
    ],
)
def test_a_pattern_that_re2_refuses_is_bad_input(pattern, words, capfd):
    """A pattern that is broken or has lookarounds or backreferences is refused; the error says where."""
    with pytest.raises(PolicyError, match=re.escape(words)) as refused:
        tag_pattern("assign rule 1", pattern)

    assert "assign rule 1" in str(refused.value)
    assert refused.value.fix
    assert ("", "") == capfd.readouterr()


_CHARACTERS = [
    "a",
    "b",
    ".",
    "\\.",
    "\\-",
    "\\_",
    "\\d",
    "\\w",
    "\\W",
    "\\S",
    "^",
    "$",
    "\\A",
    "\\Z",
    "{",
    "}",
    ",",
]
_SETS = [
    "[ab]",
    "[^a]",
    "[a-c1]",
    "[]a]",
    "[^]a]",
    "[a\\]b]",
    "[\\w.-]",
    "[[:a]",
    "[[.a]",
    "[a[b]",
    "[{,2}a]",
]
_ATOMS = st.sampled_from([*_CHARACTERS, *_SETS, "\\A", "\\Z", "{", "}", ",", "[{,2}a]"])
_COUNTS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}", "{,2}", "{,}", "{,2}?"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(_ATOMS, _COUNTS).map("".join),
        st.tuples(inner, _COUNTS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda text: f"(?P<name>{text})"),
    ),
    max_leaves=6,
)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@given(_PATTERNS, st.booleans(), st.text("abAB1-._,{}[]:", max_size=6))
def test_re2_gives_the_answer_of_python(pattern, folds, tag):
    """A pattern matches the same whole tags as with Python's own matcher, and is accepted where that is."""
    pattern = f"(?i){pattern}" if folds else pattern
    try:
        expected = re.fullmatch(pattern, tag) is not None
    except re.error:
        return

    assert expected == tag_pattern("here", pattern).matches(tag)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("v{,3}", "vv", "v{,3}"),
        ("v1\\Z", "v1", "v10"),
        ("[[:alpha:]", "l", "b"),
        ("a{,}", "aaa", "a{,}"),
        ("\\{,3}", "{,3}", "{"),
    ],
)
def test_a_pattern_keeps_its_meaning_where_the_dialects_differ(pattern, matching, other):
    """What RE2 would read differently, or refuse, is matched as Python does."""
    found = tag_pattern("here", pattern)

    assert (True, False) == (found.matches(matching), found.matches(other))


@pytest.mark.parametrize("pattern", ["v.*", "(a|b)+c*"])
def test_a_pattern_crosses_to_another_process(pattern):
    """A pattern that is sent to an executor is the same there."""
    sent = pickle.loads(pickle.dumps(tag_pattern("here", pattern)))  # noqa: S301 (our own bytes)

    assert tag_pattern("here", pattern) == sent
    assert [tag_pattern("here", pattern).matches(tag) for tag in ("v1", "abcc", "x")] == [
        sent.matches(tag) for tag in ("v1", "abcc", "x")
    ]
