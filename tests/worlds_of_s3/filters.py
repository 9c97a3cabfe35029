"""Rows 1 to 7 and 25: which objects a rule is about."""

from __future__ import annotations

from tests.worlds_of_s3.case import KEPT, case, coming, done, marker, rule, upload, version

from ebbtide.targets.s3.model import Action, Verdict
from ebbtide.targets.s3.rules.configuration import Expiration, Filter, NoncurrentExpiration, Transition

WRITTEN = "2024-03-01T10:30"
DUE = "2024-03-05"
NOW = "2024-03-06"
EXPIRED = done(Action.EXPIRE, DUE)
REMOVED = done(Action.REMOVE_DELETE_MARKER, DUE)
THREE = Expiration(days=3)
RED = (("colour", "red"),)


def _of(row: str, name: str, where: Filter, objects: list[tuple[dict[str, object], Verdict]]):
    """Ask one rule about several objects, each with a key of its own."""
    items = [version(WRITTEN, **{"key": f"k{number}", **parts}) for number, (parts, _) in enumerate(objects)]
    rules = rule(filter=where, expiration=THREE)
    return case(row, name, rules, items, NOW, [verdict for _, verdict in objects])


def _keys(row: str, name: str, prefix: str, matched: list[str], others: list[str]):
    """Ask a rule with a prefix about keys."""
    pairs = [({"key": key}, EXPIRED) for key in matched] + [({"key": key}, KEPT) for key in others]
    return _of(row, name, Filter(prefix), pairs)


def _tags(name: str, wanted: tuple[tuple[str, str], ...], *pairs: tuple[dict[str, str] | None, Verdict]):
    """Ask a rule with tags about objects with these tags."""
    return _of("5", name, Filter(tags=wanted), [({"tags": tags}, verdict) for tags, verdict in pairs])


def _sizes(name: str, where: Filter, *pairs: tuple[int | None, Verdict]):
    """Ask a rule with bounds about objects of these sizes."""
    return _of("6", name, where, [({"size": size}, verdict) for size, verdict in pairs])


FILTERS = [
    _keys("1", "an empty filter is about all", "", ["a", "", "/", "ключ", "a/b/c", " "], []),
    case(
        "1",
        "an empty filter is about markers and uploads too",
        rule(expiration=THREE, abort_days=3),
        [marker(WRITTEN, "m"), upload(WRITTEN, "u")],
        NOW,
        [REMOVED, done(Action.ABORT_UPLOAD, DUE)],
    ),
    case(
        "2",
        "a prefix in the old place counts like one in the filter",
        rule(filter=Filter("logs/"), legacy_prefix=True, expiration=THREE),
        [version(WRITTEN, "logs/a"), version(WRITTEN, "log")],
        NOW,
        [EXPIRED, KEPT],
    ),
    _of(
        "4",
        "all that And names must hold",
        Filter("logs/", RED, 10, 20),
        [
            ({"key": "logs/all", "tags": {"colour": "red"}, "size": 15}, EXPIRED),
            ({"key": "data/prefix", "tags": {"colour": "red"}, "size": 15}, KEPT),
            ({"key": "logs/tag", "tags": {"colour": "blue"}, "size": 15}, KEPT),
            ({"key": "logs/small", "tags": {"colour": "red"}, "size": 10}, KEPT),
            ({"key": "logs/large", "tags": {"colour": "red"}, "size": 20}, KEPT),
        ],
    ),
    _tags("more tags than asked for", RED, ({"colour": "red", "shape": "round"}, EXPIRED)),
    _tags("another value", RED, ({"colour": "blue"}, KEPT), ({"colour": ""}, KEPT)),
    _tags("case counts", RED, ({"Colour": "red"}, KEPT), ({"colour": "Red"}, KEPT)),
    _tags("no part of a value", RED, ({"colour": "red "}, KEPT), ({"colour": "redder"}, KEPT)),
    _tags("no tags, and tags that nobody asked for", RED, ({}, KEPT), (None, KEPT)),
    _tags(
        "all of several",
        (("colour", "red"), ("shape", "round")),
        ({"colour": "red"}, KEPT),
        ({"shape": "round"}, KEPT),
        ({"colour": "red", "shape": "round"}, EXPIRED),
        ({"colour": "round", "shape": "red"}, KEPT),
    ),
    _tags("an empty value is a value", (("k", ""),), ({"k": ""}, EXPIRED), ({}, KEPT), ({"k": " "}, KEPT)),
    _tags(
        "what a URL would encode",
        (("ключ+ =&", "ü/%20"),),
        ({"ключ+ =&": "ü/%20"}, EXPIRED),
        ({"ключ+ =&": "ü/ "}, KEPT),
    ),
    _tags("tags do not matter to a rule without", (), ({"colour": "red"}, EXPIRED), (None, EXPIRED)),
    case(
        "5",
        "a noncurrent version is matched by its own tags",
        rule(filter=Filter(tags=RED), noncurrent_expiration=NoncurrentExpiration(3)),
        [
            version(WRITTEN, tags={"colour": "red"}),
            version("2024-02-03", tags={}),
            version("2024-02-02", tags={"colour": "red"}),
        ],
        NOW,
        [KEPT, KEPT, done(Action.DELETE_VERSION, "2024-02-06")],
    ),
    _sizes("larger than", Filter(larger_than=500), (499, KEPT), (500, KEPT), (501, EXPIRED)),
    _sizes("smaller than", Filter(smaller_than=500), (499, EXPIRED), (500, KEPT), (501, KEPT), (0, EXPIRED)),
    _sizes(
        "between",
        Filter(larger_than=500, smaller_than=502),
        (500, KEPT),
        (501, EXPIRED),
        (502, KEPT),
    ),
    _sizes("larger than nothing", Filter(larger_than=0), (0, KEPT), (1, EXPIRED)),
    _sizes("five tebibytes", Filter(larger_than=5 * 2**40 - 1), (5 * 2**40, EXPIRED), (2**40, KEPT)),
    _sizes("an unknown size, larger", Filter(larger_than=0), (None, KEPT)),
    _sizes("an unknown size, smaller", Filter(smaller_than=10), (None, KEPT)),
    _sizes("an unknown size where none is asked for", Filter(), (None, EXPIRED)),
    case(
        "6",
        "a size does not keep a rule from delete markers",
        rule(filter=Filter(larger_than=500), expiration=THREE),
        [marker(WRITTEN, "unknown"), marker(WRITTEN, "zero", size=0)],
        NOW,
        [REMOVED, REMOVED],
    ),
    case(
        "6",
        "tags keep a rule from delete markers, current and noncurrent, whatever they claim to have",
        rule(
            filter=Filter(tags=RED),
            expiration=THREE,
            noncurrent_expiration=NoncurrentExpiration(3),
        ),
        [
            marker(WRITTEN, "sole"),
            marker(WRITTEN, "tagged", tags={"colour": "red"}),
            version(WRITTEN, "old", is_latest=True),
            marker("2024-02-01", "old", is_latest=False),
        ],
        NOW,
        [KEPT, KEPT, KEPT, KEPT],
    ),
    _keys("7", "a prefix", "logs/", ["logs/", "logs/a", "logs/b/c"], ["logs", "log", "a/logs/", "Logs/a"]),
    _keys("7", "no wildcard", "logs/*", ["logs/*", "logs/*.gz"], ["logs/a", "logs/"]),
    _keys("7", "no pattern", "a%_.", ["a%_.", "a%_.b"], ["ab_.", "a%b.", "a%_c", "a%%_."]),
    _keys("7", "a leading slash counts", "/logs", ["/logs", "/logs/a"], ["logs", "logs/a"]),
    _keys("7", "not only whole parts", "logs", ["logs", "logs-old", "logs/a"], ["log"]),
    _keys("7", "beyond ASCII", "ключ/ü", ["ключ/ü", "ключ/über"], ["ключ/u", "Ключ/ü", "ключ/u\u0308"]),
    _keys("7", "beyond the basic plane", "a\U0001f98a", ["a\U0001f98ab"], ["a\U0001f98b", "a\ud7ff", "a"]),
    case(
        "7",
        "a prefix of uploads",
        rule(filter=Filter("logs/"), abort_days=3),
        [upload(WRITTEN, "logs/a"), upload(WRITTEN, "log")],
        NOW,
        [done(Action.ABORT_UPLOAD, DUE), KEPT],
    ),
    case(
        "25",
        "a disabled rule does nothing and announces nothing",
        rule(
            enabled=False,
            expiration=THREE,
            noncurrent_expiration=NoncurrentExpiration(1),
            transitions=(Transition("GLACIER", 1),),
            abort_days=1,
        ),
        [version(WRITTEN), version("2024-01-01"), upload(WRITTEN), marker(WRITTEN, "m"), version(None, "n")],
        NOW,
        [KEPT] * 5,
    ),
    case(
        "25",
        "a disabled rule does not stand in the way of an enabled one",
        [rule("off", enabled=False, expiration=Expiration(days=1)), rule("on", expiration=THREE)],
        version(WRITTEN),
        "2024-03-04",
        coming(DUE, "on"),
    ),
]
