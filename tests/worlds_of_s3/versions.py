"""Rows 11 to 17, 19 and 31: current and noncurrent versions, and delete markers."""

from __future__ import annotations

from tests.worlds_of_s3.case import (
    KEPT,
    case,
    coming,
    done,
    edges,
    held,
    history,
    marker,
    moved,
    rule,
    version,
)

from ebbtide.core.instant import parse_instant
from ebbtide.targets.s3.model import Action, Hold, Versioning
from ebbtide.targets.s3.rules.configuration import (
    Expiration,
    NoncurrentExpiration,
    NoncurrentTransition,
    Transition,
)

DELETE = Action.DELETE_VERSION
REMOVE = Action.REMOVE_DELETE_MARKER
END = rule(expiration=Expiration(3))
CLEAN = rule(expiration=Expiration(expired_marker=True))
OLD = rule(noncurrent_expiration=NoncurrentExpiration(3))
TWO_KEPT = rule(noncurrent_expiration=NoncurrentExpiration(3, 2))
MOVE = rule(noncurrent_transitions=(NoncurrentTransition("GLACIER", 3),))
MOVE_BEHIND = rule(noncurrent_transitions=(NoncurrentTransition("GLACIER", 3, 1),))
TIME = held(Hold.UNKNOWN_TIME)

EXPIRATIONS = [
    *(
        at
        for versioning in Versioning
        for name in ("null", "v1")
        for at in edges(
            case(
                "11",
                f"{versioning} and version {name}: it is for the action to know what expiring means",
                END,
                version("2024-03-01T10:30", version_id=name),
                "2024-03-05",
                done(Action.EXPIRE, "2024-03-05"),
                versioning=versioning,
            )
        )
    ),
    case(
        "11",
        "noncurrent versions do not expire",
        END,
        history("2024-03-04", "2024-01-02", "2024-01-01"),
        "2024-03-06",
        [coming("2024-03-07"), KEPT, KEPT],
    ),
    case(
        "12",
        "a marker before versions stays, and no time is told",
        [END, CLEAN],
        history("2024-03-01!", "2024-02-01"),
        "2024-06-01",
        [KEPT, KEPT],
    ),
    case(
        "12",
        "a marker before a marker stays as well",
        [END, CLEAN],
        history("2024-03-01!", "2024-02-01!"),
        "2024-06-01",
        [KEPT, KEPT],
    ),
    case(
        "12",
        "a marker before a version that goes now waits until that one is gone",
        [CLEAN, OLD],
        history("2024-03-01!", "2024-02-01"),
        "2024-06-01",
        [KEPT, done(DELETE, "2024-03-04")],
    ),
    case(
        "12",
        "what only looks like the same key is another",
        CLEAN,
        [marker("2024-03-01", "a"), version("2024-02-01", "a/")],
        "2024-06-01",
        [done(REMOVE, "2024-03-01"), KEPT],
    ),
    case(
        "31",
        "a second pass, after the marker was added, adds no other",
        END,
        history("2024-03-05T00:10!", "2024-03-01T10:30"),
        "2024-06-01",
        [KEPT, KEPT],
    ),
]

MARKERS = [
    *edges(
        case(
            "13",
            "at once, not at midnight",
            CLEAN,
            marker("2024-03-01T10:30"),
            "2024-03-01T10:30",
            done(REMOVE, "2024-03-01T10:30"),
        )
    ),
    case("13", "no other version", CLEAN, version("2020-01-01"), "2024-03-01", KEPT),
    case(
        "13",
        "a marker that is not current is no sole one",
        CLEAN,
        marker("2024-03-01", is_latest=False),
        "2024-06-01",
        KEPT,
    ),
    case("13", "without a time", CLEAN, marker(None), "2024-06-01", TIME),
    case(
        "13",
        "before the days of another rule",
        [END, rule("clean", expiration=Expiration(expired_marker=True))],
        marker("2024-03-01T10:30"),
        "2024-06-01",
        done(REMOVE, "2024-03-01T10:30", "clean"),
    ),
    case(
        "13",
        "a date before the marker was written comes first",
        [
            rule("clean", expiration=Expiration(expired_marker=True)),
            rule("date", expiration=Expiration(date=parse_instant("2024-01-01"))),
        ],
        marker("2024-03-01T10:30"),
        "2024-06-01",
        done(REMOVE, "2024-01-01", "date"),
    ),
    *edges(
        case(
            "14",
            "days count from the marker's own time",
            END,
            marker("2024-03-01T10:30"),
            "2024-03-05",
            done(REMOVE, "2024-03-05"),
        )
    ),
    *edges(
        case(
            "14",
            "in a suspended bucket too",
            END,
            marker("2024-03-01T10:30", version_id="null"),
            "2024-03-05",
            done(REMOVE, "2024-03-05"),
            versioning=Versioning.SUSPENDED,
        )
    ),
    case("14", "without a time", END, marker(None), "2024-06-01", TIME),
]

NONCURRENT = [
    *edges(
        case(
            "15",
            "counted from the successor, not from itself",
            OLD,
            history("2024-03-01T10:30", "2020-01-01"),
            "2024-03-05",
            [KEPT, done(DELETE, "2024-03-05")],
        )
    ),
    *edges(
        case(
            "15",
            "a delete marker is a successor",
            OLD,
            history("2024-03-01T10:30!", "2020-01-01"),
            "2024-03-05",
            [KEPT, done(DELETE, "2024-03-05")],
        )
    ),
    case(
        "15",
        "each from its own successor, given in any order",
        OLD,
        [version("2024-03-02"), version("2024-03-09"), version("2024-03-01"), version("2024-03-05")],
        "2024-03-08",
        [done(DELETE, "2024-03-08"), KEPT, done(DELETE, "2024-03-05"), coming("2024-03-12")],
    ),
    case(
        "15",
        "of equal times the first in the list is the newer",
        OLD,
        history("2024-03-01", "2024-03-01", "2024-02-01"),
        "2024-03-01",
        [KEPT, coming("2024-03-04"), coming("2024-03-04")],
    ),
    case(
        "15",
        "the one that is said to be current is the newest, whatever its time",
        OLD,
        [version("2024-03-09", is_latest=False), version("2024-03-01T10:30", is_latest=True)],
        "2024-03-05",
        [done(DELETE, "2024-03-05"), KEPT],
    ),
    *edges(
        case(
            "15",
            "transitions count from the successor as well",
            MOVE,
            history("2024-03-01T10:30", "2020-01-01"),
            "2024-03-05",
            [KEPT, moved("GLACIER", "2024-03-05")],
        )
    ),
    case(
        "15",
        "of two transitions the one that is due, though by its own age both would be",
        rule(
            noncurrent_transitions=(
                NoncurrentTransition("STANDARD_IA", 1),
                NoncurrentTransition("GLACIER", 10),
            )
        ),
        history("2024-03-01T10:30", "2020-01-01"),
        "2024-03-03",
        [KEPT, moved("STANDARD_IA", "2024-03-03")],
    ),
    case(
        "15",
        "a successor without a time",
        OLD,
        [version(None, is_latest=True), version("2024-03-01"), version("2024-02-01")],
        "2024-06-01",
        [KEPT, TIME, done(DELETE, "2024-03-04")],
    ),
    *edges(
        case(
            "16",
            "old enough and behind enough",
            TWO_KEPT,
            history("2024-03-04", "2024-03-03", "2024-03-02", "2024-03-01T10:30", "2024-01-01"),
            "2024-03-05",
            [KEPT, KEPT, KEPT, done(DELETE, "2024-03-05"), done(DELETE, "2024-03-05")],
        )
    ),
    case(
        "16",
        "behind enough and not old enough",
        TWO_KEPT,
        history("2024-03-04", "2024-03-03", "2024-03-02", "2024-03-01"),
        "2024-03-04",
        [KEPT, KEPT, KEPT, coming("2024-03-05")],
    ),
    case(
        "16",
        "old enough and not behind enough: no time is known",
        TWO_KEPT,
        history("2024-03-04", "2024-02-03", "2024-02-02"),
        "2025-03-04",
        [KEPT, KEPT, KEPT],
    ),
    case(
        "16",
        "the current version does not count",
        rule(noncurrent_expiration=NoncurrentExpiration(1, 1)),
        history("2024-03-04", "2024-02-03", "2024-02-02"),
        "2024-06-01",
        [KEPT, KEPT, done(DELETE, "2024-02-04")],
    ),
    case(
        "16",
        "the conditions of two rules do not mix",
        [
            rule("many", noncurrent_expiration=NoncurrentExpiration(1, 5)),
            rule("long", noncurrent_expiration=NoncurrentExpiration(100)),
        ],
        history("2024-03-04", "2024-02-03"),
        "2024-06-01",
        [KEPT, coming("2024-06-12", "long")],
    ),
    case(
        "17",
        "a noncurrent marker goes like any version",
        OLD,
        history("2024-03-01T10:30", "2024-02-01!"),
        "2024-03-05",
        [KEPT, done(DELETE, "2024-03-05")],
    ),
    case(
        "17",
        "and counts like any version",
        TWO_KEPT,
        history("2024-03-01", "2024-02-03!", "2024-02-02!", "2024-02-01"),
        "2024-03-05",
        [KEPT, KEPT, KEPT, done(DELETE, "2024-02-05")],
    ),
    case(
        "17",
        "but has nothing to move, current or not",
        rule(
            transitions=(Transition("GLACIER", 0),),
            noncurrent_transitions=(NoncurrentTransition("GLACIER", 0),),
        ),
        [*history("2024-03-02!", "2024-03-01!"), marker("2024-03-01", "sized", size=2**30)],
        "2024-06-01",
        [KEPT, KEPT, KEPT],
    ),
    *edges(
        case(
            "19",
            "a transition waits for newer versions too",
            MOVE_BEHIND,
            history("2024-03-02", "2024-03-01T10:30", "2024-01-01"),
            "2024-03-05",
            [KEPT, KEPT, moved("GLACIER", "2024-03-05")],
        )
    ),
    case(
        "19",
        "without them no time is known",
        MOVE_BEHIND,
        history("2024-03-02", "2024-01-01"),
        "2025-03-05",
        [KEPT, KEPT],
    ),
]

VERSIONS = [*EXPIRATIONS, *MARKERS, *NONCURRENT]
