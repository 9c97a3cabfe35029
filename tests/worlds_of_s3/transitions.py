"""Rows 21 to 24: where objects go, and which of several actions is taken."""

from __future__ import annotations

from tests.worlds_of_s3.case import (
    KEPT,
    MEBIBYTE,
    Case,
    case,
    coming,
    done,
    edges,
    history,
    moved,
    rule,
    version,
)

from ebbtide.targets.s3.model import Action, Verdict, Versioning
from ebbtide.targets.s3.rules.configuration import (
    Expiration,
    Filter,
    MinimumSize,
    NoncurrentExpiration,
    NoncurrentTransition,
    Transition,
)

WRITTEN = "2024-03-01T10:30"
DUE = "2024-03-05"
NOW = "2024-03-06"
SMALL = 128 * 1024
CLASSES = ("STANDARD_IA", "INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE")
WAYS_DOWN = {
    "STANDARD": CLASSES,
    "REDUCED_REDUNDANCY": CLASSES,
    "STANDARD_IA": ("INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"),
    "INTELLIGENT_TIERING": ("ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"),
    "ONEZONE_IA": ("GLACIER", "DEEP_ARCHIVE"),
    "GLACIER_IR": ("GLACIER", "DEEP_ARCHIVE"),
    "GLACIER": ("DEEP_ARCHIVE",),
    "DEEP_ARCHIVE": (),
}
"""The waterfall that S3's documentation draws, written down a second time."""


def _sizes(
    name: str,
    target: str,
    minimum: MinimumSize,
    *pairs: tuple[int | None, bool],
    where: Filter = Filter(),  # noqa: B008 a frozen value
) -> list[Case]:
    """Let current and noncurrent objects of these sizes move, if they are large enough."""
    keys = [f"k{number}" for number in range(len(pairs))]
    current = rule(filter=where, transitions=(Transition(target, 3),))
    older = rule(filter=where, noncurrent_transitions=(NoncurrentTransition(target, 3),))
    items = [version(WRITTEN, key, size=size) for key, (size, _) in zip(keys, pairs, strict=True)]
    found = [moved(target, DUE) if goes else KEPT for _, goes in pairs]
    newer = [version(WRITTEN, key, is_latest=True, size=None) for key in keys]
    replaced = [version("2024-01-01", item.key, is_latest=False, size=item.size) for item in items]
    return [
        case("21", name, current, items, NOW, found, minimum=minimum),
        case(
            "21",
            f"{name}, noncurrent",
            older,
            newer + replaced,
            NOW,
            [KEPT] * len(keys) + found,
            minimum=minimum,
        ),
    ]


def _ways(source: str) -> Case:
    """Ask a rule for each class about an object of one."""
    rules = [
        rule(f"to {target}", filter=Filter(f"{target}:"), transitions=(Transition(target, 3),))
        for target in CLASSES
    ]
    items = [version(WRITTEN, f"{target}:a", storage_class=source) for target in CLASSES]
    found = [
        moved(target, DUE, f"to {target}") if target in WAYS_DOWN[source] else KEPT for target in CLASSES
    ]
    return case("22", f"from {source}", rules, items, NOW, found)


def _both(one: str, other: str, taken: str) -> Case:
    """Let an object be due for two classes, the dearer one later or earlier."""
    rules = [
        rule("one", transitions=(Transition(one, 3),)),
        rule("other", transitions=(Transition(other, 2),)),
    ]
    found = moved(one, DUE, "one") if taken == one else moved(other, "2024-03-04", "other")
    return case("23", f"{one} and {other}", rules, version(WRITTEN), NOW, found)


SIZES = [
    *_sizes(
        "128 KiB for all classes",
        "STANDARD_IA",
        MinimumSize.ALL_128K,
        (SMALL - 1, False),
        (SMALL, True),
        (SMALL + 1, True),
        (0, False),
        (None, False),
    ),
    *_sizes(
        "for Glacier too", "GLACIER", MinimumSize.ALL_128K, (SMALL - 1, False), (SMALL, True), (None, False)
    ),
    *_sizes(
        "Glacier takes small ones where it varies",
        "GLACIER",
        MinimumSize.VARIES,
        (0, True),
        (SMALL - 1, True),
        (None, False),
    ),
    *_sizes("Deep Archive too", "DEEP_ARCHIVE", MinimumSize.VARIES, (1, True), (SMALL, True)),
    *_sizes("others do not", "GLACIER_IR", MinimumSize.VARIES, (SMALL - 1, False), (SMALL, True)),
    *_sizes(
        "a rule's own bound takes the place of the default",
        "STANDARD_IA",
        MinimumSize.ALL_128K,
        (500, False),
        (501, True),
        (None, False),
        where=Filter(larger_than=500),
    ),
    *_sizes(
        "an upper bound does as well",
        "STANDARD_IA",
        MinimumSize.ALL_128K,
        (0, True),
        (499, True),
        (500, False),
        where=Filter(smaller_than=500),
    ),
    case(
        "21",
        "a bound in one rule changes nothing for another",
        [
            rule("bound", filter=Filter("b", larger_than=0), transitions=(Transition("GLACIER", 3),)),
            rule("plain", transitions=(Transition("GLACIER", 3),)),
        ],
        [version(WRITTEN, "a", size=1), version(WRITTEN, "b", size=1)],
        NOW,
        [KEPT, moved("GLACIER", DUE, "bound")],
    ),
    case(
        "21",
        "a small object still expires",
        rule(transitions=(Transition("GLACIER", 3),), expiration=Expiration(3)),
        version(WRITTEN, size=1),
        NOW,
        done(Action.EXPIRE, DUE),
    ),
]

WAYS = [
    *(_ways(source) for source in WAYS_DOWN),
    case(
        "22",
        "an object that went down before an earlier step of its rule does not come back",
        rule(transitions=(Transition("STANDARD_IA", 1), Transition("GLACIER", 3))),
        version(WRITTEN, storage_class="GLACIER"),
        NOW,
        KEPT,
    ),
    case(
        "22",
        "the way goes on from where it is",
        rule(transitions=(Transition("STANDARD_IA", 1), Transition("GLACIER", 30))),
        version(WRITTEN, storage_class="STANDARD_IA"),
        NOW,
        coming("2024-04-01"),
    ),
    case(
        "22",
        "noncurrent versions alike",
        rule(
            noncurrent_transitions=(
                NoncurrentTransition("STANDARD_IA", 1),
                NoncurrentTransition("GLACIER", 3),
            )
        ),
        [*history(WRITTEN, "2024-01-01", storage_class="GLACIER")],
        NOW,
        [KEPT, KEPT],
    ),
]

CHOICES = [
    _both("STANDARD_IA", "GLACIER", "GLACIER"),
    _both("GLACIER", "STANDARD_IA", "GLACIER"),
    _both("GLACIER", "ONEZONE_IA", "GLACIER"),
    _both("GLACIER", "DEEP_ARCHIVE", "DEEP_ARCHIVE"),
    _both("STANDARD_IA", "ONEZONE_IA", "ONEZONE_IA"),
    _both("INTELLIGENT_TIERING", "STANDARD_IA", "INTELLIGENT_TIERING"),
    _both("ONEZONE_IA", "INTELLIGENT_TIERING", "INTELLIGENT_TIERING"),
    _both("INTELLIGENT_TIERING", "GLACIER_IR", "INTELLIGENT_TIERING"),
    _both("INTELLIGENT_TIERING", "GLACIER", "GLACIER"),
    _both("DEEP_ARCHIVE", "INTELLIGENT_TIERING", "DEEP_ARCHIVE"),
    case(
        "23",
        "one class by two rules: the earlier is named",
        [
            rule("late", transitions=(Transition("GLACIER", 3),)),
            rule("early", transitions=(Transition("GLACIER", 2),)),
        ],
        version(WRITTEN),
        NOW,
        moved("GLACIER", "2024-03-04", "early"),
    ),
    case(
        "23",
        "of equal ones the first",
        [
            rule("one", transitions=(Transition("GLACIER", 3),)),
            rule("two", transitions=(Transition("GLACIER", 3),)),
        ],
        version(WRITTEN),
        NOW,
        moved("GLACIER", DUE, "one"),
    ),
    case(
        "23",
        "what is not due yet has no say",
        rule(transitions=(Transition("STANDARD_IA", 3), Transition("GLACIER", 30))),
        version(WRITTEN),
        NOW,
        moved("STANDARD_IA", DUE),
    ),
    case(
        "23",
        "nor what it is too small for",
        rule(transitions=(Transition("STANDARD_IA", 2), Transition("GLACIER", 3))),
        [version(WRITTEN, "small", size=1), version(WRITTEN, "large")],
        NOW,
        [moved("GLACIER", DUE), moved("GLACIER", DUE)],
        minimum=MinimumSize.VARIES,
    ),
    case(
        "23",
        "nor where it may not go",
        rule(transitions=(Transition("INTELLIGENT_TIERING", 2), Transition("STANDARD_IA", 3))),
        [
            version(WRITTEN, "a", storage_class="ONEZONE_IA"),
            version(WRITTEN, "b", storage_class="STANDARD_IA"),
        ],
        NOW,
        [KEPT, moved("INTELLIGENT_TIERING", "2024-03-04")],
    ),
    case(
        "23",
        "noncurrent versions choose alike",
        rule(
            noncurrent_transitions=(
                NoncurrentTransition("STANDARD_IA", 1),
                NoncurrentTransition("GLACIER", 3),
            )
        ),
        history(WRITTEN, "2024-01-01"),
        NOW,
        [KEPT, moved("GLACIER", DUE)],
    ),
]

EXPIRED = done(Action.EXPIRE, DUE, "end")


def _against(name: str, end: int, move: int, versioning: Versioning, found: Verdict) -> Case:
    """Let a current version be due for an end and a transition."""
    rules = [
        rule("end", expiration=Expiration(end)),
        rule("move", transitions=(Transition("GLACIER", move),)),
    ]
    return case("24", f"{versioning}: {name}", rules, version(WRITTEN), NOW, found, versioning=versioning)


PRECEDENCE = [
    _against("deleted, not moved", 3, 3, Versioning.DISABLED, EXPIRED),
    _against("deleted, though the move was due first", 3, 1, Versioning.DISABLED, EXPIRED),
    _against("moved before a marker", 3, 3, Versioning.ENABLED, moved("GLACIER", DUE, "move")),
    _against("moved, though the end was due first", 2, 3, Versioning.ENABLED, moved("GLACIER", DUE, "move")),
    _against("moved before a marker", 3, 3, Versioning.SUSPENDED, moved("GLACIER", DUE, "move")),
    _against("a move that is not due waits", 3, 9, Versioning.ENABLED, EXPIRED),
    _against("a move that was due is made", 9, 3, Versioning.DISABLED, moved("GLACIER", DUE, "move")),
    case(
        "24",
        "once moved it gets its marker",
        [rule("end", expiration=Expiration(3)), rule("move", transitions=(Transition("GLACIER", 3),))],
        version(WRITTEN, storage_class="GLACIER"),
        NOW,
        EXPIRED,
    ),
    case(
        "24",
        "a noncurrent version is deleted, not moved",
        [
            rule("move", noncurrent_transitions=(NoncurrentTransition("GLACIER", 1),)),
            rule("end", noncurrent_expiration=NoncurrentExpiration(3)),
        ],
        history(WRITTEN, "2024-01-01"),
        NOW,
        [KEPT, done(Action.DELETE_VERSION, DUE, "end")],
    ),
    *edges(
        case(
            "24",
            "the shortest expiration",
            [
                rule("long", expiration=Expiration(365)),
                rule("short", filter=Filter("logs/"), expiration=Expiration(30)),
            ],
            [version("2024-01-01T10:30", "logs/a"), version("2024-01-01T10:30", "data/a")],
            "2024-02-01",
            [done(Action.EXPIRE, "2024-02-01", "short"), coming("2025-01-01", "long")],
        )
    ),
    case(
        "24",
        "of equal expirations the first rule",
        [rule("one", expiration=Expiration(3)), rule("two", expiration=Expiration(3))],
        version(WRITTEN),
        NOW,
        done(Action.EXPIRE, DUE, "one"),
    ),
    case(
        "24",
        "the shortest of noncurrent expirations whose count is reached",
        [
            rule("short", noncurrent_expiration=NoncurrentExpiration(1, 1)),
            rule("long", noncurrent_expiration=NoncurrentExpiration(3)),
        ],
        history(WRITTEN, "2024-02-02", "2024-02-01"),
        NOW,
        [KEPT, done(Action.DELETE_VERSION, DUE, "long"), done(Action.DELETE_VERSION, "2024-02-03", "short")],
    ),
    case(
        "24",
        "overlapping prefixes with different actions",
        [
            rule("all", expiration=Expiration(365)),
            rule("logs", filter=Filter("logs/"), transitions=(Transition("STANDARD_IA", 30),)),
        ],
        [version("2024-01-01T10:30", "logs/a", size=MEBIBYTE), version("2024-01-01T10:30", "data/a")],
        "2024-02-01",
        [moved("STANDARD_IA", "2024-02-01", "logs"), coming("2025-01-01", "all")],
    ),
]

TRANSITIONS = [*SIZES, *WAYS, *CHOICES, *PRECEDENCE]
