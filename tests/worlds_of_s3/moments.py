"""Rows 8, 9, 10, 20 and 35: from when an action is due."""

from __future__ import annotations

from tests.worlds_of_s3.case import (
    KEPT,
    Case,
    case,
    coming,
    done,
    edges,
    held,
    history,
    marker,
    moved,
    rule,
    upload,
    version,
)

from ebbtide.core.instant import parse_instant
from ebbtide.targets.s3.model import Action, Hold
from ebbtide.targets.s3.rules.configuration import (
    Expiration,
    Filter,
    NoncurrentExpiration,
    NoncurrentTransition,
    Transition,
)

APRIL = parse_instant("2024-04-01")
LONGEST = 2**31 - 1


def _days(row: str, name: str, written: str, days: int, due: str) -> list[Case]:
    """Let an object written at a time expire, and look around the moment at which it does."""
    rules = rule(expiration=Expiration(days=days))
    return [*edges(case(row, name, rules, version(written), due, done(Action.EXPIRE, due)))]


def _dated(name: str, written: str) -> list[Case]:
    """Let an object written at a time expire at a date."""
    rules = rule(expiration=Expiration(date=APRIL))
    at_last = case("9", name, rules, version(written), "2024-04-01", done(Action.EXPIRE, "2024-04-01"))
    return [*edges(at_last)]


DAYS = [
    *_days("8", "up to the next midnight", "2020-01-01T10:30", 3, "2020-01-05"),
    *_days("8", "a microsecond after midnight", "2020-01-01T00:00:00.000001", 1, "2020-01-03"),
    *_days("8", "a microsecond before midnight", "2020-01-01T23:59:59.999999", 1, "2020-01-03"),
    *_days("8", "over a leap day", "2024-02-28T12:00", 1, "2024-03-01"),
    *_days("8", "over the end of a year", "2023-12-31T12:00", 1, "2024-01-02"),
    *_days("8", "before 1970", "1969-12-30T12:00", 1, "1970-01-01"),
    *_days("8", "ten years", "2014-05-05T05:05", 3650, "2024-05-03"),
    case("8", "far ahead", rule(expiration=Expiration(LONGEST)), version("2020-01-01"), "2024-01-01", KEPT),
    case(
        "8",
        "an object from the future",
        rule(expiration=Expiration(1)),
        version("2030-01-01T12:00"),
        "2024-01-01",
        coming("2030-01-03"),
    ),
    case(
        "8",
        "the last days of the calendar never end",
        rule(expiration=Expiration(1)),
        [version("9999-12-29T12:00", "a"), version("9999-12-30T12:00", "b"), version("9999-12-31", "c")],
        "2024-01-01",
        [coming("9999-12-31"), KEPT, KEPT],
    ),
    *_days("8a", "an object of midnight is not rounded a day further", "2024-03-15", 1, "2024-03-16"),
    *_days("8a", "nor over a month's end", "2024-02-29", 30, "2024-03-30"),
    *edges(
        case(
            "8a",
            "nor a noncurrent version",
            rule(noncurrent_expiration=NoncurrentExpiration(1)),
            history("2024-03-15", "2024-03-01"),
            "2024-03-16",
            [KEPT, done(Action.DELETE_VERSION, "2024-03-16")],
        )
    ),
    *edges(
        case(
            "8a",
            "nor an upload",
            rule(abort_days=1),
            upload("2024-03-15"),
            "2024-03-16",
            done(Action.ABORT_UPLOAD, "2024-03-16"),
        )
    ),
    case(
        "8b",
        "not yet after exactly so many times 24 hours",
        rule(expiration=Expiration(3)),
        version("2020-01-01T10:30"),
        "2020-01-04T10:30",
        coming("2020-01-05"),
    ),
    case(
        "8b",
        "a noncurrent version neither",
        rule(noncurrent_expiration=NoncurrentExpiration(3)),
        history("2020-01-01T10:30", "2019-01-01"),
        "2020-01-04T23:59:59.999999",
        [KEPT, coming("2020-01-05")],
    ),
    *_days("8c", "the midnight of Greenwich, seen from the east", "2024-03-15T02:00+05:30", 1, "2024-03-16"),
    *_days("8c", "and from the west", "2024-03-15T20:00-08:00", 1, "2024-03-18"),
    *_days("8c", "over a change to summer time", "2024-03-30T23:30+01:00", 1, "2024-04-01"),
    case(
        "8c",
        "a moment to ask may have a zone as well",
        rule(expiration=Expiration(1)),
        version("2024-03-15T12:00"),
        "2024-03-17T05:29:59+05:30",
        coming("2024-03-17"),
    ),
]

DATES = [
    *_dated("an old object", "2020-01-01T10:30"),
    *_dated("an object of the last moment", "2024-03-31T23:59:59.999999"),
    *_dated("an object of that very moment", "2024-04-01"),
    *_dated("an object that is written later", "2024-06-01T10:30"),
    *edges(
        case(
            "9",
            "a sole delete marker",
            rule(expiration=Expiration(date=APRIL)),
            marker("2024-03-31T10:30"),
            "2024-04-01",
            done(Action.REMOVE_DELETE_MARKER, "2024-04-01"),
        )
    ),
    *edges(
        case(
            "9",
            "a transition",
            rule(transitions=(Transition("GLACIER", date=APRIL),)),
            version("2024-03-31T10:30"),
            "2024-04-01",
            moved("GLACIER", "2024-04-01"),
        )
    ),
    case(
        "9",
        "noncurrent versions have no date",
        rule(expiration=Expiration(date=APRIL), transitions=(Transition("GLACIER", date=APRIL),)),
        history("2023-01-02!", "2023-01-01"),
        "2024-06-01",
        [KEPT, KEPT],
    ),
    case(
        "9",
        "a date asks for no age, and yet an unknown one is a doubt",
        rule(expiration=Expiration(date=APRIL)),
        version(None),
        "2024-06-01",
        held(Hold.UNKNOWN_TIME),
    ),
    case(
        "9",
        "a date and days: the earlier counts",
        [rule("date", expiration=Expiration(date=APRIL)), rule("days", expiration=Expiration(3))],
        [version("2024-03-01T10:30", "early"), version("2024-03-31T10:30", "late")],
        "2024-04-02",
        [done(Action.EXPIRE, "2024-03-05", "days"), done(Action.EXPIRE, "2024-04-01", "date")],
    ),
]

NO_DAYS = [
    *edges(
        case(
            "10",
            "a transition after no days comes at the next midnight",
            rule(transitions=(Transition("GLACIER", 0),)),
            version("2024-03-01T00:00:00.000001"),
            "2024-03-02",
            moved("GLACIER", "2024-03-02"),
        )
    ),
    *edges(
        case(
            "10",
            "and at once for an object of midnight",
            rule(transitions=(Transition("GLACIER", 0),)),
            version("2024-03-01"),
            "2024-03-01",
            moved("GLACIER", "2024-03-01"),
        )
    ),
    *edges(
        case(
            "10",
            "a noncurrent one as well",
            rule(noncurrent_transitions=(NoncurrentTransition("GLACIER", 0),)),
            history("2024-03-01T10:30", "2024-01-01"),
            "2024-03-02",
            [KEPT, moved("GLACIER", "2024-03-02")],
        )
    ),
]

UPLOADS = [
    *edges(
        case(
            "20",
            "an upload",
            rule(abort_days=7),
            upload("2024-03-01T10:30"),
            "2024-03-09",
            done(Action.ABORT_UPLOAD, "2024-03-09"),
        )
    ),
    case(
        "20",
        "the shortest of several rules, and the first of alike ones",
        [rule("long", abort_days=9), rule("short", abort_days=2), rule("same", abort_days=2)],
        upload("2024-03-01T10:30"),
        "2024-03-20",
        done(Action.ABORT_UPLOAD, "2024-03-04", "short"),
    ),
    case(
        "20",
        "rules with tags or sizes are not about uploads",
        [
            rule("tag", filter=Filter(tags=(("k", "v"),)), abort_days=1),
            rule("large", filter=Filter(larger_than=0), abort_days=1),
            rule("small", filter=Filter(smaller_than=9), abort_days=1),
        ],
        upload("2024-03-01T10:30"),
        "2024-03-20",
        KEPT,
    ),
    case(
        "20",
        "only this action is about uploads",
        rule(
            expiration=Expiration(1),
            noncurrent_expiration=NoncurrentExpiration(1),
            transitions=(Transition("GLACIER", 0),),
        ),
        upload("2024-03-01T10:30"),
        "2024-03-20",
        KEPT,
    ),
    case(
        "20",
        "an upload is no version: it neither replaces one nor counts as one, and no version is aborted",
        rule(abort_days=30, noncurrent_expiration=NoncurrentExpiration(1, 1)),
        [upload("2024-03-05"), version("2024-03-02"), upload("2024-03-01"), version("2024-02-01")],
        "2024-03-20",
        [coming("2024-04-04"), KEPT, coming("2024-03-31"), KEPT],
    ),
    case(
        "20",
        "an upload without a time",
        rule(abort_days=1),
        upload(None),
        "2024-03-20",
        held(Hold.UNKNOWN_TIME),
    ),
    case("20", "but no rule", rule(expiration=Expiration(1)), upload(None), "2024-03-20", KEPT),
]

ANNOUNCED = [
    case(
        "35",
        "the next action and its rule are told, of whatever kind it is",
        [rule("end", expiration=Expiration(30)), rule("move", transitions=(Transition("GLACIER", 10),))],
        version("2024-03-01T10:30"),
        "2024-03-02",
        coming("2024-03-12", "move"),
    ),
    case(
        "35",
        "after the transition it is the expiration",
        [rule("end", expiration=Expiration(30)), rule("move", transitions=(Transition("GLACIER", 10),))],
        version("2024-03-01T10:30", storage_class="GLACIER"),
        "2024-03-12",
        coming("2024-04-01", "end"),
    ),
    case(
        "35",
        "of two on one day the first rule is named",
        [rule("one", expiration=Expiration(10)), rule("two", transitions=(Transition("GLACIER", 10),))],
        version("2024-03-01T10:30"),
        "2024-03-02",
        coming("2024-03-12", "one"),
    ),
    case(
        "35",
        "noncurrent versions and uploads are told theirs",
        rule(noncurrent_expiration=NoncurrentExpiration(20), abort_days=10),
        [*history("2024-03-01T10:30", "2024-01-01"), upload("2024-03-01T10:30")],
        "2024-03-02",
        [KEPT, coming("2024-03-22"), coming("2024-03-12")],
    ),
]

MOMENTS = [*DAYS, *DATES, *NO_DAYS, *UPLOADS, *ANNOUNCED]
