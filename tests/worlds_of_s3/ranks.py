"""Rows 18 and 26: the place of a version among those of its key, null versions, and all doubts of it."""

from __future__ import annotations

from tests.worlds_of_s3.case import KEPT, case, coming, done, edges, held, history, marker, rule, version
from tests.worlds_of_s3.versions import CLEAN, DELETE, END, MOVE, OLD, TIME, TWO_KEPT

from ebbtide.targets.s3.model import Action, Hold, Versioning
from ebbtide.targets.s3.rules.configuration import (
    Expiration,
    NoncurrentExpiration,
    NoncurrentTransition,
    Transition,
)

EVERYTHING = rule(
    expiration=Expiration(3),
    noncurrent_expiration=NoncurrentExpiration(3),
    transitions=(Transition("GLACIER", 1),),
    noncurrent_transitions=(NoncurrentTransition("GLACIER", 1),),
)
RANK = held(Hold.UNKNOWN_RANK)

RANKS = [
    case(
        "18",
        "the order of the list does not matter",
        TWO_KEPT,
        list(reversed(history("2024-03-04", "2024-03-03", "2024-03-02", "2024-03-01T10:30", "2024-01-01"))),
        "2024-03-06",
        [done(DELETE, "2024-03-05"), done(DELETE, "2024-03-05"), KEPT, KEPT, KEPT],
    ),
    case(
        "18",
        "keys that lie between one another in the list do not mix",
        rule(noncurrent_expiration=NoncurrentExpiration(3, 1)),
        [
            item
            for pair in zip(
                history("2024-03-04", "2024-03-03", "2024-01-01", key="a"),
                history("2024-02-04", "2024-02-03", "2024-01-01", key="b"),
                strict=True,
            )
            for item in pair
        ],
        "2024-03-05",
        [KEPT, KEPT, KEPT, KEPT, coming("2024-03-06"), done(DELETE, "2024-02-06")],
    ),
    case(
        "18",
        "a hundred newer ones",
        rule(noncurrent_expiration=NoncurrentExpiration(1, 100)),
        history(*("2024-01-01",) * 103),
        "2024-06-01",
        [KEPT] * 101 + [done(DELETE, "2024-01-02")] * 2,
    ),
    case(
        "18",
        "without the current version no place is known",
        OLD,
        history("2024-03-02", "2024-03-01", "2024-01-01!", is_latest=False),
        "2024-06-01",
        [RANK, RANK, RANK],
    ),
    case(
        "18",
        "also if one of them may be it",
        OLD,
        [version("2024-03-02"), version("2024-03-01", is_latest=False)],
        "2024-06-01",
        [RANK, RANK],
    ),
    case(
        "18",
        "only actions on noncurrent versions are in doubt then",
        END,
        history("2024-03-02", "2024-03-01", is_latest=False),
        "2024-06-01",
        [KEPT, KEPT],
    ),
    case(
        "18",
        "two current versions: nothing is done to any",
        EVERYTHING,
        [
            version("2024-03-03", is_latest=True),
            version("2024-03-02", is_latest=True),
            version("2024-03-01", is_latest=False),
            marker("2024-02-01"),
        ],
        "2024-06-01",
        [RANK] * 4,
    ),
    case(
        "18",
        "two current versions, of which the rules ask nothing that they may be",
        END,
        [version("2024-03-03", is_latest=True), marker("2024-03-02", is_latest=True), version("2024-03-01")],
        "2024-06-01",
        [RANK, KEPT, KEPT],
    ),
    case(
        "18",
        "a version without a time may be anywhere among the noncurrent ones",
        OLD,
        [
            version("2024-03-03", is_latest=True),
            version("2024-03-02"),
            version(None),
            version("2024-02-01"),
        ],
        "2024-06-01",
        [KEPT, RANK, TIME, RANK],
    ),
    case(
        "18",
        "but the current one stays the current one",
        END,
        [version("2024-03-03", is_latest=True), version(None)],
        "2024-06-01",
        [done(Action.EXPIRE, "2024-03-06"), KEPT],
    ),
    case(
        "18",
        "or it may be the current one, if none is named",
        END,
        [version("2024-03-03"), version(None), marker("2024-02-01")],
        "2024-06-01",
        [RANK, TIME, KEPT],
    ),
    case(
        "18",
        "a version that only a sibling's doubt could move is not held where it could not go",
        MOVE,
        history("2024-03-02", "2024-03-01", is_latest=False, storage_class="DEEP_ARCHIVE"),
        "2024-06-01",
        [KEPT, KEPT],
    ),
    case(
        "18",
        "doubt in one key is none in another",
        OLD,
        [*history("2024-03-02", is_latest=False), *history("2024-03-02", "2024-03-01", key="b")],
        "2024-06-01",
        [RANK, KEPT, done(DELETE, "2024-03-05")],
    ),
]

NULLS = [
    *edges(
        case(
            "26",
            "a null version that is current",
            END,
            [version("2024-03-01T10:30", version_id="null"), version("2024-02-01", version_id="v1")],
            "2024-03-05",
            [done(Action.EXPIRE, "2024-03-05"), KEPT],
        )
    ),
    *edges(
        case(
            "26",
            "a null version from before versioning",
            OLD,
            [version("2024-03-01T10:30", version_id="v1"), version("2020-01-01", version_id="null")],
            "2024-03-05",
            [KEPT, done(DELETE, "2024-03-05")],
        )
    ),
    case(
        "26",
        "a null version of a suspended time, between others",
        rule(noncurrent_expiration=NoncurrentExpiration(3, 1)),
        [
            version("2024-03-03", version_id="v2"),
            version("2024-03-02", version_id="null"),
            version("2024-03-01", version_id="v1"),
        ],
        "2024-03-05",
        [KEPT, KEPT, done(DELETE, "2024-03-05")],
        versioning=Versioning.SUSPENDED,
    ),
    case(
        "26",
        "a null marker",
        [OLD, CLEAN],
        [marker("2024-03-03", version_id="null"), version("2024-03-01", version_id="v1")],
        "2024-03-06",
        [KEPT, done(DELETE, "2024-03-06")],
        versioning=Versioning.SUSPENDED,
    ),
]
