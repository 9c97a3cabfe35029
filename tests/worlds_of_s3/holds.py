"""Rows 7b and 27 to 29: what keeps a version though its time has come."""

from __future__ import annotations

from dataclasses import replace

from tests.worlds_of_s3.case import (
    KEPT,
    Case,
    case,
    coming,
    done,
    held,
    history,
    marker,
    moved,
    rule,
    upload,
    version,
)

from ebbtide.core.instant import parse_instant
from ebbtide.targets.s3.model import Action, Hold, Protected, Verdict, Versioning
from ebbtide.targets.s3.rules.configuration import (
    Expiration,
    NoncurrentExpiration,
    NoncurrentTransition,
    Transition,
)

WRITTEN = "2024-03-01T10:30"
DUE = "2024-03-05"
NOW = "2024-03-06"
END = rule(expiration=Expiration(3), noncurrent_expiration=NoncurrentExpiration(3))
MOVE = rule(transitions=(Transition("GLACIER", 3),))
BOTH = rule(
    noncurrent_expiration=NoncurrentExpiration(3),
    noncurrent_transitions=(NoncurrentTransition("GLACIER", 1),),
)
LEGAL = {"legal_hold": True}
LOCKED = {"retain_until": parse_instant("2024-03-06T00:00:00.000001")}
RUN_OUT = {"retain_until": parse_instant(NOW)}
LOCKS = (
    ("a legal hold", LEGAL, Hold.LEGAL_HOLD),
    ("retention", LOCKED, Hold.RETENTION),
    ("both", LEGAL | LOCKED, Hold.LEGAL_HOLD),
)
DELETED = done(Action.DELETE_VERSION, DUE)
EXPIRED = done(Action.EXPIRE, DUE)


def _noncurrent(name: str, parts: dict[str, object], found: Verdict, rules=END) -> Case:
    """Let a noncurrent version with these marks be due."""
    items = [version(WRITTEN, version_id="v2", is_latest=True, size=1), version("2024-01-01", **parts)]
    return case("27", name, rules, items, "2024-03-06", [_waiting(rules), found])


def _waiting(rules) -> Verdict:
    """Tell what the current version of such a key expects: its own end, if the rule has one."""
    return KEPT if rules.expiration is None else EXPIRED


def _current(name: str, versioning: Versioning, parts: dict[str, object], found: Verdict) -> Case:
    """Let a current version with these marks be due."""
    return case("27", name, END, version(WRITTEN, **parts), NOW, found, versioning=versioning)


def _replication(status: str | None, hold: Hold | None) -> list[Case]:
    """Let all kinds of versions with a replication status be due for all kinds of actions."""

    def expected(verdict: Verdict) -> Verdict:
        return Verdict(rule_id=verdict.rule_id, due=verdict.due, held_by=hold) if hold else verdict

    marks = {"replication_status": status}
    removed = done(Action.REMOVE_DELETE_MARKER, DUE)
    items = [
        version(WRITTEN, "a", **marks),
        version("2024-01-01", "a", **marks),
        marker("2023-01-01", "a", **marks),
        marker(WRITTEN, "b", **marks),
    ]
    verdicts = [EXPIRED, DELETED, done(Action.DELETE_VERSION, "2024-01-04"), removed]
    return [
        case("28", f"{status}: ends", END, items, NOW, [expected(verdict) for verdict in verdicts]),
        case("28", f"{status}: moves", MOVE, version(WRITTEN, **marks), NOW, expected(moved("GLACIER", DUE))),
    ]


OBJECT_LOCK = [
    *(
        _noncurrent(f"{lock}: keeps a noncurrent version", parts, held(hold, DUE))
        for lock, parts, hold in LOCKS
    ),
    *(
        _noncurrent(f"{lock}: nothing takes the place of the deletion", parts, held(hold, DUE), BOTH)
        for lock, parts, hold in LOCKS
    ),
    _noncurrent("retention that has just run out", RUN_OUT, DELETED),
    _noncurrent("retention that ran out and a legal hold", RUN_OUT | LEGAL, held(Hold.LEGAL_HOLD, DUE)),
    *(
        _current(f"{lock}: does not keep a marker off", Versioning.ENABLED, parts, EXPIRED)
        for lock, parts, hold in LOCKS
    ),
    *(
        _current(f"{lock}: keeps what has no versions", Versioning.DISABLED, parts, held(hold, DUE))
        for lock, parts, hold in LOCKS
    ),
    *(
        _current(
            f"{lock}: keeps a null version from being replaced", Versioning.SUSPENDED, parts, held(hold, DUE)
        )
        for lock, parts, hold in LOCKS
    ),
    *(
        _current(
            f"{lock}: another version is not replaced by a null marker",
            Versioning.SUSPENDED,
            parts | {"version_id": "v1"},
            EXPIRED,
        )
        for lock, parts, hold in LOCKS
    ),
    case(
        "27",
        "a lock does not keep from moving",
        MOVE,
        [version(WRITTEN, "a", **LEGAL), version(WRITTEN, "b", **LOCKED)],
        NOW,
        [moved("GLACIER", DUE)] * 2,
    ),
    case(
        "27",
        "nor from moving a null version first",
        [rule("end", expiration=Expiration(3)), MOVE],
        version(WRITTEN, **LEGAL),
        NOW,
        moved("GLACIER", DUE),
        versioning=Versioning.SUSPENDED,
    ),
    case(
        "27",
        "delete markers have no lock",
        END,
        [
            marker(WRITTEN, "sole", **LEGAL, **LOCKED),
            version(WRITTEN, "a", version_id="v2"),
            marker("2024-01-01", "a", **LEGAL, **LOCKED),
        ],
        NOW,
        [done(Action.REMOVE_DELETE_MARKER, DUE), EXPIRED, DELETED],
    ),
    case(
        "27",
        "what is not due is not held",
        END,
        history(WRITTEN, "2024-01-01", **LEGAL, **LOCKED),
        "2024-03-04T23:59:59.999999",
        [coming(DUE), coming(DUE)],
    ),
]

REPLICATION = [
    *_replication("PENDING", Hold.REPLICATION),
    *_replication("pending", Hold.REPLICATION),
    *_replication("Processing", Hold.REPLICATION),
    *(
        item
        for status in ("COMPLETED", "COMPLETE", "FAILED", "REPLICA", "", None)
        for item in _replication(status, None)
    ),
    case(
        "28",
        "pending and not due",
        END,
        version(WRITTEN, replication_status="PENDING"),
        "2024-03-04",
        coming(DUE),
    ),
    case(
        "28",
        "replication is named before all else",
        END,
        version(WRITTEN, replication_status="PENDING", restoring=True, **LEGAL, **LOCKED),
        NOW,
        held(Hold.REPLICATION, DUE),
        versioning=Versioning.DISABLED,
    ),
    case(
        "28",
        "a version that waits for its replication does not hold its siblings",
        END,
        [version(WRITTEN, version_id="v2", replication_status="PENDING"), version("2024-01-01")],
        NOW,
        [held(Hold.REPLICATION, DUE), DELETED],
    ),
    case(
        "28",
        "uploads are not replicated",
        rule(abort_days=3),
        upload(WRITTEN),
        NOW,
        done(Action.ABORT_UPLOAD, DUE),
    ),
]

RESTORES = [
    case(
        "29",
        "nothing is done while a restore runs",
        END,
        history(WRITTEN, "2024-01-01", restoring=True, storage_class="GLACIER"),
        NOW,
        [held(Hold.RESTORE, DUE)] * 2,
    ),
    case(
        "29",
        "not even a move",
        rule(transitions=(Transition("DEEP_ARCHIVE", 3),)),
        version(WRITTEN, restoring=True, storage_class="GLACIER"),
        NOW,
        held(Hold.RESTORE, DUE),
    ),
    case(
        "29",
        "a restored copy changes nothing: it still is in its class and is not moved there again",
        MOVE,
        version(WRITTEN, storage_class="GLACIER"),
        NOW,
        KEPT,
    ),
    case(
        "29",
        "a restore is named before a lock",
        END,
        version(WRITTEN, restoring=True, **LEGAL, **LOCKED),
        NOW,
        held(Hold.RESTORE, DUE),
        versioning=Versioning.DISABLED,
    ),
    case(
        "29", "a restore of what is not due", END, version(WRITTEN, restoring=True), "2024-03-04", coming(DUE)
    ),
]

LAKES = [
    replace(
        case(
            "7b",
            "what lies in a lake is held before all else, uploads too, and nothing beside it",
            rule(expiration=Expiration(3), abort_days=3),
            [
                version(WRITTEN, "lake/a"),
                version(WRITTEN, "lake/b", replication_status="PENDING", **LEGAL),
                upload(WRITTEN, "lake/c"),
                version(WRITTEN, "lakes"),
            ],
            NOW,
            [*[held(Hold.LAKE, DUE)] * 3, EXPIRED],
        ),
        protected=(Protected("lake/", "lake 'sales' in lake/"),),
    ),
]

HELD_BACK = {"restored_until": parse_instant("2024-03-06T00:00:00.000001")}
FROM_THE_BIN = [
    case(
        "29a",
        "nothing is done to what was restored from the bin, as long as it is held",
        END,
        history(WRITTEN, "2024-01-01", **HELD_BACK),
        NOW,
        [held(Hold.RESTORED, DUE)] * 2,
    ),
    case("29a", "not even a move", MOVE, version(WRITTEN, **HELD_BACK), NOW, held(Hold.RESTORED, DUE)),
    case(
        "29a",
        "the moment at which the hold ends is free",
        END,
        version(WRITTEN, restored_until=parse_instant(NOW)),
        NOW,
        done(Action.EXPIRE, DUE),
    ),
]

HOLDS = [*OBJECT_LOCK, *REPLICATION, *RESTORES, *FROM_THE_BIN, *LAKES]
