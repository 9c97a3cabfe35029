"""An S3 Inventory report of a made-up bucket in Parquet, and rules for it, both the same each time."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    Expiration,
    Filter,
    NoncurrentExpiration,
    NoncurrentTransition,
    Rule,
    Transition,
)

BUCKET = "bench"
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
FILES = 16
_TEAMS = 40
_COLOURS = ("red", "green", "blue", "grey")
_A_TEAM_IS = "'team-' || lpad((k * 7919 % 40)::varchar, 2, '0')"


def write_report(folder: Path, versions: int) -> Path:
    """
    Write a report: of two keys in five one version, of the others three or four, some with markers.

    Rows are in key order within a file, as S3 writes them; a fifth have tags.
    """
    keys = versions * 5 // 13
    (folder / "data").mkdir(parents=True)
    for part in range(FILES):
        first, last = keys * part // FILES, keys * (part + 1) // FILES
        with duckdb.connect(config={"threads": 2}) as database:
            database.execute("set TimeZone = 'UTC'")
            database.execute(_rows(first, last, folder / "data" / f"part-{part:02d}.parquet"))
    return _manifest(folder)


def _rows(first: int, last: int, file: Path) -> str:
    """Say in SQL how a file is made; everything follows from the key's number `k` and the version's `v`."""
    return f"""
    copy (
        with keys as (
            select k, {_A_TEAM_IS} || '/' || ['logs', 'data', 'tmp', 'raw'][1 + k % 4] || '/2026/' || lpad((k % 97)::varchar, 2, '0')
                || '/' || lpad(k::varchar, 10, '0') || '-' || substr(md5(k::varchar), 1, 12) || '.parquet' as key,
                case when k % 5 < 2 then 1 when k % 5 < 4 then 3 else 5 end as n
            from range({first}, {last}) as r(k)
        ),
        versions as (select *, unnest(range(0, n)) as v from keys)
        select '{BUCKET}' as bucket, key, substr(md5(k::varchar || '.' || v::varchar), 1, 32) as version_id,
            v = 0 as is_latest,
            (v = 0 and k % 11 = 0) or (v = 2 and k % 13 = 0) as is_delete_marker,
            case when (v = 0 and k % 11 = 0) or (v = 2 and k % 13 = 0) then null
                else (hash(k * 31 + v) % 1000000)::bigint end as size,
            timestamptz '{NOW.isoformat()}' - to_seconds((hash(k) % 10368000 + v * 864000 + 1)::double) as last_modified_date,
            md5('e' || k::varchar || v::varchar) as e_tag,
            ['STANDARD', 'STANDARD', 'STANDARD', 'STANDARD_IA', 'GLACIER'][1 + (hash(k + v) % 5)::int] as storage_class,
            case when k % 5 = 3 then map {{'colour': ['red', 'green', 'blue', 'grey'][1 + (k % 4)::int], 'owner': 'o' || (k % 9)::varchar}}
                end as tags,
            null::varchar as replication_status, null::timestamptz as object_lock_retain_until_date,
            null::varchar as object_lock_legal_hold_status
        from versions order by key, v
    ) to '{file}' (format parquet, compression zstd, row_group_size 200000)
    """  # noqa: S608, E501 (our own numbers and paths; SQL reads best in whole lines)


def _manifest(folder: Path) -> Path:
    files = [
        {
            "key": f"data/{file.name}",
            "size": file.stat().st_size,
            "MD5checksum": hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest(),
        }
        for file in sorted((folder / "data").iterdir())
    ]
    manifest = {"sourceBucket": BUCKET, "fileFormat": "Parquet", "fileSchema": "", "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / "manifest.json"


def make_rules(count: int) -> Configuration:
    """
    Make so many rules: of prefixes one and two folders deep, with sizes and tags, and all actions.

    However few they are, together they are about all keys, so that as many versions have to be judged.
    """
    if count <= len(_KINDS):
        prefixes = ["team-", *(f"team-{number}" for number in range(len(_KINDS) - 1))]
        # From ten on, so that about as much is due as with many rules.
        return Configuration(tuple(_rule(number, prefix) for number, prefix in enumerate(prefixes, start=10)))
    return Configuration(tuple(_rule(number, f"team-{number % _TEAMS:02d}/") for number in range(count)))


def _rule(number: int, prefix: str) -> Rule:
    return _KINDS[number % len(_KINDS)](f"r{number}", number, prefix)


def _ends(name: str, number: int, prefix: str) -> Rule:
    return Rule(name, True, Filter(prefix), Expiration(days=_days(number)))


def _ends_logs(name: str, number: int, prefix: str) -> Rule:
    wanted = Filter(f"{prefix}logs/" if prefix.endswith("/") else prefix)
    old = NoncurrentExpiration(10 + number % 20, number % 3)
    return Rule(name, True, wanted, noncurrent_expiration=old)


def _ends_colour(name: str, number: int, prefix: str) -> Rule:
    wanted = Filter(prefix, (("colour", _COLOURS[number % 4]),))
    return Rule(name, True, wanted, Expiration(days=_days(number) // 2))


def _moves(name: str, number: int, prefix: str) -> Rule:
    return Rule(
        name,
        True,
        Filter(prefix, larger_than=200_000),
        transitions=(Transition("GLACIER", days=_days(number)),),
        noncurrent_transitions=(NoncurrentTransition("GLACIER", 15),),
    )


def _ends_data(name: str, number: int, prefix: str) -> Rule:
    wanted = Filter(f"{prefix}data/" if prefix.endswith("/") else prefix, smaller_than=900_000)
    return Rule(name, True, wanted, noncurrent_expiration=NoncurrentExpiration(5 + number % 40, 1))


def _days(number: int) -> int:
    return 20 + number * 7 % 90


_KINDS = (_ends, _ends_logs, _ends_colour, _moves, _ends_data)
