"""Lifecycle rules of a bucket that holds lakes: what belongs to a lake is held, whoever made it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.services.runs import plan_bucket
from tests.services.seaweed import S3Server

from ebbtide.cli.main import run
from ebbtide.core.decision import Decision
from ebbtide.core.instant import system_clock
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.state.runs import Ledger
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.s3.context import BucketContext, Source, planned_rules
from ebbtide.targets.s3.explanation import explain_key
from ebbtide.targets.s3.model import Action, Hold, Protected
from ebbtide.targets.s3.nested import known_lakes, merge_protected, reach_warnings
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.stored_rules import BucketRules

LATER = timedelta(days=10)


def expiring(*prefixes: str):
    """Make a configuration that lets everything below prefixes expire after a day."""
    return read_configuration(
        {
            "Rules": [
                {"ID": f"r{p}", "Status": "Enabled", "Filter": {"Prefix": p}, "Expiration": {"Days": 1}}
                for p in prefixes
            ]
        }
    )


def shop_of(tmp_path, server: S3Server, bucket: str, *prefixes: str, **lakes: str) -> BucketContext:
    """Give what a job on a bucket works with, ten days from now."""
    rules = BucketRules(f"sqlite:///{tmp_path}/rules.db")
    rules.put(bucket, expiring(*prefixes))
    spec = StoreSpec(f"s3://{bucket}", server.options)
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    return BucketContext(spec, rules, ledger, tmp_path / "state", lambda: system_clock() + LATER, lakes=lakes)


@pytest.fixture
def lakes(tmp_path, s3_server, bucket):
    """Fill a bucket: two lakes of two catalogs, one inside a deeper folder, and plain objects beside them."""
    for number, place in enumerate(("one", "deep/two")):
        catalog = Catalog(f"sqlite:///{tmp_path}/{number}.db", store_options=s3_server.options)
        catalog.create_repository(f"lake{number}", f"s3://{bucket}/{place}")
        catalog.upload(f"lake{number}", "main", "a", b"1")
        catalog.commit(f"lake{number}", "main", "m")
        catalog.close()
    client = s3_server.client()
    for key in ("one-more", "deep/plain", "z"):
        client.put_object(Bucket=bucket, Key=key, Body=b"x")
    return bucket


@pytest.mark.spark
def test_rules_do_not_reach_into_lakes(spark, tmp_path, s3_server, lakes):
    """All that lies in a lake of any catalog is held and says whose it is; all else expires."""
    shop = shop_of(tmp_path, s3_server, lakes, "")
    sourced = shop.effective_rules(Source.STORED)
    made = plan_bucket(spark, shop, sourced, now=shop.clock(), options=PlanOptions())
    folder = run_folder(tmp_path / "state", made.run_id)
    due = {row["address"] for row in stream_decisions(folder, Decision.DUE)}
    held = {(row["hold"], row["holder"]) for row in stream_decisions(folder, Decision.HELD)}
    explained = {
        key: explain_key(open_bucket(shop.spec), key, sourced, shop.clock())[0].verdict
        for key in ("deep/plain", "deep/two/_lakefs/ebbtide-owner.json")
    }

    assert {"one-more", "deep/plain", "z"} == due
    assert {(Hold.LAKE, "lake 'lake0' in one/"), (Hold.LAKE, "lake 'lake1' in deep/two/")} == held
    assert "lake 'lake1' in deep/two/" in made.snapshot["lakes"]
    assert [Action.EXPIRE, Action.NONE] == [verdict.action for verdict in explained.values()]
    assert Hold.LAKE == explained["deep/two/_lakefs/ebbtide-owner.json"].held_by


def test_a_rule_inside_a_lake_finds_the_marker_above(tmp_path, s3_server, lakes):
    """A rule whose prefix lies in a lake is not listed with its marker, so the marker is looked for."""
    shop = shop_of(tmp_path, s3_server, lakes, "deep/two/repos/", "deep/plain")
    sourced = shop.effective_rules(Source.STORED)

    assert (Protected("deep/two/", "lake 'lake1' in deep/two/"),) == sourced.protected
    assert sourced == planned_rules(sourced.policy)


def test_the_catalog_knows_lakes_that_have_no_marker(tmp_path, s3_server, bucket):
    """A lake of this installation is protected by its namespace, and a plan is stale when one is added."""
    shop = shop_of(tmp_path, s3_server, bucket, "", old=f"s3://{bucket}/old", other="s3://elsewhere/x")
    without = shop_of(tmp_path, s3_server, bucket, "")

    assert (Protected("old/", "lake 'old' in old/"),) == shop.effective_rules(Source.STORED).protected
    assert (
        shop.effective_rules(Source.STORED).policy_hash != without.effective_rules(Source.STORED).policy_hash
    )


def test_what_is_found_twice_is_named_once():
    """A prefix that the catalog knows and a marker shows is one, named as the catalog does."""
    first, second = Protected("a/", "by the catalog"), Protected("a/", "by its marker")

    assert (first, Protected("b/", "x")) == merge_protected([first], [Protected("b/", "x"), second])


def test_warnings_name_lakes_and_the_bin():
    """Every enabled rule that reaches into a lake or the bin is named, and no other."""
    rules = expiring("", "lakes/sales/raw/", "logs/", "ebbtide-recycle/x")
    lakes = known_lakes(StoreSpec("s3://b"), {"sales": "s3://b/lakes/sales", "far": "s3://c/x"})
    found = reach_warnings(rules, lakes, has_bin=False)
    with_bin = reach_warnings(rules, (), has_bin=True)

    assert [
        "rule 'r' reaches into lake 'sales' in lakes/sales/: everything there is held",
        "rule 'rlakes/sales/raw/' reaches into lake 'sales' in lakes/sales/: everything there is held",
        "rule 'rebbtide-recycle/x' does nothing: no rule reaches the recycle bin, ebbtide-recycle/",
    ] == found
    assert ["rule 'r'", "rule 'rebbtide-recycle/x'"] == [said.split(" reaches")[0] for said in with_bin]


def test_setting_rules_warns(tmp_path, monkeypatch, capsys, s3_server, lakes):
    """`ebb bucket rules set` says which rule reaches into which lake of the catalog."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.json").write_text(
        json.dumps({"Rules": [{"ID": "all", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}]})
    )
    monkeypatch.setenv("EBBTIDE_CATALOG__URL", f"sqlite:///{tmp_path}/0.db")
    assert 0 == run(["init"])
    capsys.readouterr()

    code = run(["bucket", "rules", "set", lakes, "rules.json", "--json"])

    assert 0 == code
    assert "rule 'all' reaches into lake 'lake0' in one/" in capsys.readouterr().out
