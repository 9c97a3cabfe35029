"""
Let lifecycle rules judge an S3 Inventory report, with Ebbtide on Spark and with one DuckDB query.

    python -m bench.bucket --versions 20000000

Both read the same Parquet files and write what is due: key, version, action, class, rule and moment. The
query is what somebody would write who has these rules and DuckDB: every rule unrolled into it. A time runs
from the first read to the written result. The first round of both, in which the JVM loads and compiles its
code, is printed and does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.bucket_inventory import BUCKET, NOW, make_rules, write_report
from bench.peak import PeakMemory
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.evaluation.verdicts import evaluate
from ebbtide.targets.s3.inventory.report import read_report
from ebbtide.targets.s3.rules.configuration import Configuration, Rule
from ebbtide.targets.s3.rules.storage_classes import SMALL

MOST = 3.0
MOST_GROWTH = 1.5
ROUNDS = 2
RULES = (5, 50)
COLUMNS = ["key", "version_id", "action", "goal", "rule_id", "due"]


def with_spark(spark: SparkSession, report: Path, rules: Configuration, target: Path, scratch: Path) -> None:
    """Judge as Ebbtide does."""
    versions = read_report(spark, str(report), BUCKET, rules, scratch).versions
    verdicts = evaluate(versions.withColumn("world", f.lit(0)), [BucketSetting(rules, NOW)])
    due = verdicts.where(f.col("action") != "none").select(*COLUMNS)
    due.write.option("parquet.enable.dictionary", "false").parquet(target.as_uri())


def with_duckdb(report: Path, rules: Configuration, target: Path) -> None:
    """Judge as somebody would who has the files, the rules and DuckDB."""
    target.mkdir()
    with duckdb.connect(config={"threads": 2}) as database:
        database.execute("set TimeZone = 'UTC'")
        database.execute("set preserve_insertion_order = false")
        query = _query(report.parent / "data", rules)
        database.execute(f"copy ({query}) to '{target}/all.parquet' (format parquet, compression zstd)")


def _query(data: Path, rules: Configuration) -> str:
    """Write the rules as one query; a moment is its day and its rule in one number, so the least is first."""
    ends = [_end(number, rule) for number, rule in enumerate(rules.rules) if rule.expiration]
    old = [
        _later(number, rule, rule.noncurrent_expiration.days, rule.noncurrent_expiration.newer)
        for number, rule in enumerate(rules.rules)
        if rule.noncurrent_expiration
    ]
    moves = [
        f"case when {_matches(rule)} and size >= {0 if rule.filter.has_size else SMALL}"
        f" then (day + {rule.transitions[0].days}) * 4294967296 + {number} end"
        for number, rule in enumerate(rules.rules)
        if rule.transitions
    ]
    old_moves = [
        _later(number, rule, rule.noncurrent_transitions[0].days, 0)
        for number, rule in enumerate(rules.rules)
        if rule.noncurrent_transitions
    ]
    today = f"(epoch_us(timestamptz '{NOW.isoformat()}') // 86400000000)"
    names = ", ".join(f"'{rule.id}'" for rule in rules.rules)
    return f"""
    with placed as (
        select key, version_id, is_latest, is_delete_marker, size, storage_class, tags,
            row_number() over w as place, count(*) over (partition by key) as n,
            case when is_latest then last_modified_date else lag(last_modified_date) over w end as since
        from read_parquet('{data}/*.parquet')
        window w as (partition by key order by is_latest desc, last_modified_date desc)
    ),
    dated as (
        select *, place - 2 as newer,
            (epoch_us(since) + 86399999999) // 86400000000 as day,
            storage_class not in ('GLACIER', 'DEEP_ARCHIVE') and not is_delete_marker as movable
        from placed
    ),
    moments as (
        select *,
            case when is_latest then {_least(ends)} else {_least(old)} end as ending,
            case when not movable then null when is_latest then {_least(moves)} else {_least(old_moves)} end as moving
        from dated where not is_latest or not is_delete_marker or n = 1
    ),
    judged as (
        select *, (ending >> 32) <= {today} as ends, (moving >> 32) <= {today} as moves from moments
    ),
    chosen as (
        select *, case
            when ends and not is_latest then 'delete_version'
            when ends and is_delete_marker then 'remove_delete_marker'
            when moves then 'transition' when ends then 'expire' end as action
        from judged
    )
    select key, version_id, action, case when action = 'transition' then 'GLACIER' end as goal,
        ([{names}])[1 + (case when action = 'transition' then moving else ending end & 4294967295)] as rule_id,
        make_timestamptz((case when action = 'transition' then moving else ending end >> 32) * 86400000000) as due
    from chosen where action is not null
    """  # noqa: S608, E501 (our own rules and paths; SQL reads best in whole lines)


def _least(options: list[str]) -> str:
    return f"least({', '.join(options)}, null)" if options else "null"


def _end(number: int, rule: Rule) -> str:
    days = rule.expiration.days if rule.expiration else 0
    # A delete marker has no tags and no size to ask for.
    of_marker = f"is_delete_marker and {_prefix(rule)}" if not rule.filter.tags else "false"
    matches = f"({of_marker}) or (not is_delete_marker and {_matches(rule)})"
    return f"case when {matches} then (day + {days}) * 4294967296 + {number} end"


def _later(number: int, rule: Rule, days: int, newer: int) -> str:
    of_marker = f"is_delete_marker and {_prefix(rule)}" if not rule.filter.tags else "false"
    matches = f"(({of_marker}) or (not is_delete_marker and {_matches(rule)}))"
    return f"case when newer >= {newer} and {matches} then (day + {days}) * 4294967296 + {number} end"


def _prefix(rule: Rule) -> str:
    return f"starts_with(key, '{rule.filter.prefix}')"


def _matches(rule: Rule) -> str:
    found = [_prefix(rule), *(f"tags['{key}'] = '{value}'" for key, value in rule.filter.tags)]
    if rule.filter.larger_than is not None:
        found.append(f"size > {rule.filter.larger_than}")
    if rule.filter.smaller_than is not None:
        found.append(f"size < {rule.filter.smaller_than}")
    return " and ".join(found)


def fingerprint(folder: Path) -> tuple[int, int]:
    """Count rows and add up their hashes, which does not depend on their order."""
    sums = "count(*), coalesce(sum(hash(key, version_id, action, goal, rule_id, epoch_us(due))::hugeint), 0)"
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        query = f"select {sums} from read_parquet('{folder}/*.parquet')"  # noqa: S608 (our own path)
        count, checksum = database.sql(query).fetchall()[0]
    return int(count), int(checksum)


def measure(spark: SparkSession, report: Path, root: Path) -> dict[str, object]:
    """Run both in turn with few rules and with many, and compare what they wrote."""
    seconds: dict[str, list[float]] = {f"{who}_{count}": [] for count in RULES for who in ("spark", "duckdb")}
    alike, due = True, {}
    for n in range(1 + ROUNDS):
        for count in RULES:
            rules, found = make_rules(count), {}
            for who in ("spark", "duckdb"):
                target = root / f"{who}-{count}-{n}"
                began = time.monotonic()
                if who == "spark":
                    with_spark(spark, report, rules, target, root / "scratch")
                else:
                    with_duckdb(report, rules, target)
                seconds[f"{who}_{count}"].append(round(time.monotonic() - began, 2))
                found[who] = fingerprint(target)
            alike = alike and found["spark"] == found["duckdb"]
            due[count] = found["spark"][0]
    counted = {name: sum(taken[1:]) for name, taken in seconds.items()}
    few, many = RULES
    return {
        "due": due,
        "alike": alike,
        "seconds": seconds,
        "ratio": round(counted[f"spark_{many}"] / counted[f"duckdb_{many}"], 2),
        "growth": round(counted[f"spark_{many}"] / counted[f"spark_{few}"], 2),
    }


def main() -> None:
    """Make, measure, print; fail if Ebbtide is too slow or the two differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=20_000_000)
    parser.add_argument("--driver-memory", default="2g")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bucket-") as place:
        root = Path(place)
        report = write_report(root / "report", options.versions)
        spark_options = SparkOptions(master="local[2]", driver_memory=options.driver_memory)
        with PeakMemory() as peak, spark_session(spark_options, cache=root) as spark:
            found = measure(spark, report, root)
    sizes = {"peak_total_mib": peak.total >> 20, "peak_jvm_mib": peak.jvm >> 20}
    print(json.dumps({"versions": options.versions, **found, **sizes}))
    if not found["alike"] or float(str(found["ratio"])) > MOST or float(str(found["growth"])) > MOST_GROWTH:
        sys.exit("the judging of buckets is not what it must be")


if __name__ == "__main__":
    main()
