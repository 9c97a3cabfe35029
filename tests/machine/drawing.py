"""Strategies for operations: few names, so that rules, branches and addresses often meet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypothesis import strategies as st
from tests.machine import operations as op
from tests.machine import uploads as up
from tests.machine.kinds import Kind
from tests.worlds import KEYS, retentions, rules

BRANCHES = ["main", "b1", "b2", "b3"]
TAGS = ["v1", "v2"]
RULE_IDS = ["r1", "r2", "r3"]
POLICY_CHANGES = ["put", "remove", "switch", "switch", "days", "days", "prefix"]

_branch = st.sampled_from(BRANCHES)
_other = st.sampled_from(BRANCHES[1:])
_key = st.sampled_from(KEYS)
_keys = st.lists(_key, min_size=1, max_size=4, unique=True).map(tuple)
many_keys = st.lists(_key, min_size=5, unique=True).map(tuple)
some_branches = st.lists(_other, min_size=1, max_size=3, unique=True)
_place = st.integers(0, 9)

_KINDS = [Kind.LIFECYCLE] * 3 + [Kind.OPTIMIZED] * 3 + [Kind.CLEAN, Kind.RETENTION, Kind.ALL, Kind.ALL]
kinds = st.sampled_from(_KINDS)
"""What a run looks for."""

policies = st.dictionaries(st.sampled_from(RULE_IDS), rules(), min_size=1)

_WEIGHTED: list[tuple[int, st.SearchStrategy[op.Operation]]] = [
    (6, st.builds(op.Upload, _branch, _keys, st.booleans())),
    (3, st.builds(op.Commit, _branch)),
    (1, st.builds(op.CrashedCommit, _branch)),
    (1, st.builds(op.StageOutside, _branch, _key)),
    (4, st.builds(op.Copy, _branch, _key, _key)),
    (1, st.builds(op.CopyAcross, _branch, _branch, _key, _key)),
    (1, st.builds(op.Move, _branch, _key, _key)),
    (2, st.builds(op.Delete, _branch, _key)),
    (3, st.builds(op.Merge, _branch, _branch)),
    (1, st.builds(op.Merge, _branch, _place)),
    (2, st.builds(op.Revert, _branch, _place)),
    (3, st.builds(op.Reset, _branch, st.sampled_from(["", "a", "b/"]))),
    (1, st.builds(op.ResetTo, _branch, _place)),
    (3, st.builds(op.CreateBranch, _other, _place)),
    (2, st.builds(op.DeleteBranch, _other)),
    (1, st.builds(op.RenameBranch, _other, _other)),
    (4, st.builds(op.Tag, st.sampled_from(TAGS), _place)),
    (1, st.builds(op.DeleteTag, st.sampled_from(TAGS))),
    (3, st.builds(op.ChangePolicy, st.sampled_from(POLICY_CHANGES), st.sampled_from(RULE_IDS), rules())),
    (4, st.builds(up.GetAddress, _branch, _key, st.booleans())),
    (1, st.builds(up.UploadTo, _place)),
    (4, st.builds(up.Link, _place)),
    (2, st.builds(up.LinkedUpload, _branch, _key)),
    (2, st.builds(up.AbandonedUpload, _branch, _key)),
    (2, st.builds(up.LateUpload, _place)),
    (2, st.builds(up.Import, _branch, _key, _place)),
    (1, st.builds(up.ChangeRetention, retentions())),
]
_CHOICES = [strategy for weight, strategy in _WEIGHTED for _ in range(weight)]
operations: st.SearchStrategy[op.Operation] = st.integers(0, len(_CHOICES) - 1).flatmap(_CHOICES.__getitem__)
"""Something that a writer does."""


@dataclass(frozen=True)
class Interlude:
    """What happens between two steps of runs: writers do this and that, and time passes."""

    writes: tuple[op.Operation, ...]
    passes: timedelta


_passes = st.builds(
    lambda days, hours: timedelta(days=days, hours=hours),
    st.sampled_from([0, 0, 1, 1, 2, 4]),
    # The first day begins at noon: with twelve hours more it is midnight, a boundary of days.
    st.sampled_from([0, 0, 1, 12, 24, 13]),
)


def interludes(most: int) -> st.SearchStrategy[Interlude]:
    """Draw what happens before the next step."""
    return st.builds(Interlude, st.lists(operations, max_size=most).map(tuple), _passes)
