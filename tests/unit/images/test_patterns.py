"""Patterns of repositories and tags: anchored, and no pattern can stop a run."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import PolicyError
from ebbtide.rules.images.patterns import glob, tag_pattern


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
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*b", "((a?){100}){100}b", "(((a+)+)+)+b"]
)
def test_no_pattern_takes_for_ever(pattern):
    """Patterns that Python's matcher would not finish are answered at once."""
    assert not tag_pattern("here", pattern).matches("a" * 128)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "no regular expression"),
        ("a{2,1}", "no regular expression"),
        ("(?=a)a", "do not have"),
        ("(a)\\1", "do not have"),
        ("(?<!a)b", "do not have"),
        ("(((((a+)+)+)+)+)+", "do not have"),
        ("a" * 600, "600 characters"),
        ("", "''"),
        (5, "is 5"),
    ],
)
def test_what_cannot_be_matched_safely_is_refused(pattern, words):
    """A pattern that is broken, looks around or refers back is refused, and the error says where."""
    with pytest.raises(PolicyError, match=re.escape(words)) as refused:
        tag_pattern("assign rule 1", pattern)

    assert "assign rule 1" in str(refused.value)
    assert refused.value.fix


_ATOMS = st.sampled_from(["a", "b", "\\d", "[ab]", "[^a]", ".", "[a-c1]", "\\W", "\\-"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=5,
)


@given(_PATTERNS, st.text("abc1-.", max_size=6))
def test_walking_a_pattern_gives_the_answer_of_python(pattern, tag):
    """Where both can answer, the walk over positions and Python's matcher agree."""
    try:
        mine = tag_pattern("here", pattern)
    except PolicyError:
        return

    assert (re.fullmatch(pattern, tag) is not None) == mine.matches(tag)


@pytest.mark.parametrize("pattern", ["v.*", "(a|b)+c*"])
def test_a_pattern_crosses_to_another_process(pattern):
    """A pattern that is sent to an executor is the same there, one that is walked too."""
    sent = pickle.loads(pickle.dumps(tag_pattern("here", pattern)))  # noqa: S301 (our own bytes)

    assert tag_pattern("here", pattern) == sent
    assert [tag_pattern("here", pattern).matches(tag) for tag in ("v1", "abcc", "x")] == [
        sent.matches(tag) for tag in ("v1", "abcc", "x")
    ]
