"""`ebb demo --bucket`: fill an S3 bucket, plan, explain, apply and check."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from ebbtide.cli.console import progress
from ebbtide.cli.plan import show_summary
from ebbtide.cli.report import report_data
from ebbtide.cli.state import State
from ebbtide.core.errors import LiveObjectMissing
from ebbtide.core.format import count, human_bytes
from ebbtide.engine.apply import apply
from ebbtide.engine.plan import plan
from ebbtide.engine.rehearsal import advance
from ebbtide.report.page import render
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.targets.s3.collector import BucketCollector
from ebbtide.targets.s3.context import Source
from ebbtide.targets.s3.demo import BUCKET, RULES, check_bucket, fill_bucket, list_versions
from ebbtide.targets.s3.explanation import explain_key
from ebbtide.targets.s3.kind import bucket_context, bucket_rules
from ebbtide.targets.s3.rules.document import read_configuration_text
from ebbtide.targets.s3.seaweedfs import seaweed
from ebbtide.targets.s3.simulation import plain_verdict

LATER = timedelta(days=40)
"""The server writes objects with today's time; the clock of the demo is advanced by this much."""

_CONFIG = """\
root = ".ebbtide"
[store]
endpoint = "{endpoint}"
path_style = true
allow_http = true
ordered = false
[breaker]
max_delete_fraction = 1.0
"""


def tell_bucket_story(
    state: State, folder: Path, keys: int, tell: Callable[[str], None], *, silent: bool
) -> dict[str, Any]:
    """Start a server, fill a bucket, plan, explain, apply, and check by a listing what was done."""
    data = folder / "server"
    data.mkdir()
    tell("starting an S3 server (SeaweedFS) on 127.0.0.1")
    with seaweed(data) as server:
        os.environ.update(server.env)
        (folder / "ebbtide.toml").write_text(_CONFIG.format(endpoint=server.endpoint), encoding="utf-8")
        client = server.client()
        for event in fill_bucket(client, keys):
            tell(f"  {event}")
        configuration = read_configuration_text(RULES, "json")
        bucket_rules(state).put(BUCKET, configuration)
        tell(f"setting the rules (ebb bucket rules set s3://{BUCKET} rules.json)")
        for line in RULES.splitlines():
            tell(f"  {line}")
        before = list_versions(client, BUCKET)
        bucket = bucket_context(state, BUCKET)
        rules = bucket.effective_rules(Source.STORED)
        tell(f"letting {LATER.days} days pass (ebb rehearsal advance {LATER.days}d)")
        advance(state.root, LATER)
        now = bucket.clock()
        with state.spark() as spark, progress() as bars:
            tell(f"planning, {LATER.days} days later (ebb plan s3://{BUCKET})")
            collector = BucketCollector(bucket, rules)
            manifest = plan(
                spark, bucket.context, collector, now=now, options=state.plan_options, on_progress=bars
            )
            if not silent:
                show_summary(manifest)
            key = "data/table-1/00001.parquet"
            tell(f"explaining one key (ebb explain s3://{BUCKET} {key})")
            for one in explain_key(open_bucket(bucket.spec), key, rules, now):
                plain = plain_verdict(one.item, one.verdict)
                tell(f"  {plain['version_id']}: {plain['action']} {plain['rule_id'] or ''}")
            tell(f"applying {count(manifest.summary.due.objects)} actions (ebb apply {manifest.run_id})")
            options = state.apply_options(override_breaker=False)
            applied = apply(spark, bucket.context, collector, manifest, options=options, on_progress=bars)
        tell("checking, by a plain listing and without the pipeline, that just this was done")
        checked = check_bucket(before, list_versions(client, BUCKET), configuration, now)
    if checked.wrong:
        raise LiveObjectMissing(
            f"{len(checked.wrong)} versions are not as they must be, first: {checked.wrong[0]}",
            fix="this is a defect of Ebbtide: please report it",
        )
    page = folder / "report.html"
    page.write_text(render(report_data(state, manifest.run_id)), encoding="utf-8")
    tell(
        f"  {count(checked.kept)} versions kept, {count(checked.gone)} gone, {count(checked.marked)} markers"
    )
    tell(f"wrote {page}")
    freed = human_bytes(applied.freed.bytes)
    tell(f"[bold]done: {count(applied.done)} actions, freed {freed}; nothing else[/bold]")
    return {"run_id": manifest.run_id, "outcomes": applied.outcomes, "checked": checked, "report": str(page)}
