"""The page: everything a run has to say, as one HTML file that needs nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ebbtide import __version__
from ebbtide.core.format import count, moment, numbers, plural, printable
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.core.words import Words
from ebbtide.report.bars import due_charts, held_chart
from ebbtide.report.figures import figures, tide
from ebbtide.report.names import Name, name
from ebbtide.report.provenance import provenance
from ebbtide.report.results import results
from ebbtide.report.samples import Row, decision_row, example_path, trouble_row
from ebbtide.report.story import headline, next_steps
from ebbtide.state.runs import RunState
from ebbtide.targets.kinds import words_of

_LONG_POLICY = 60
"""A policy of more lines stands folded."""


@dataclass(frozen=True)
class ReportData:
    """What a page is made from: a frozen plan, and what the ledger and the tables know of its run."""

    manifest: Manifest
    state: str
    outcomes: Mapping[str, Tally]
    due_sample: Sequence[Row]
    held_sample: Sequence[Row]
    failed_sample: Sequence[Row]
    events: Sequence[tuple[datetime, str, str]]


def render(data: ReportData) -> str:
    """Make the page; every name in it is escaped, for keys and branches are named by strangers."""
    with numbers(plain=False):
        return _templates().get_template("page.html.j2").render(_view(data))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("ebbtide", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(plural=plural, count=count)
    return environment


def _view(data: ReportData) -> dict[str, Any]:
    manifest, summary = data.manifest, data.manifest.summary
    words = words_of(manifest)
    head = headline(data.state, summary, data.outcomes, words)
    found = results(data.state, summary.due, data.outcomes, words)
    path = example_path(data.held_sample, data.due_sample)
    return {
        "version": __version__,
        "run_id": manifest.run_id,
        "collector": printable(manifest.collector),
        "target": name(manifest.target),
        "head": head,
        "words": words,
        "facts": _facts(data, words),
        "plan_hash": manifest.plan_hash,
        "failure": _failure(data),
        # A run that has ended well needs no advice on whether to apply it.
        "breaker": [printable(r) for r in manifest.breaker if data.state != RunState.SUCCEEDED],
        "warnings": [printable(warning) for warning in manifest.warnings],
        "figures": figures(summary, head, found, data.outcomes, words),
        "tide": tide(summary, words, attempted=head.attempted),
        "results": found,
        "is_empty": not summary.due.objects,
        "charts": due_charts(summary, words),
        "held": held_chart(summary, words),
        "due_rows": [decision_row(row) for row in data.due_sample],
        "held_rows": [decision_row(row) for row in data.held_sample],
        "trouble": [trouble_row(row) for row in data.failed_sample],
        "due_total": summary.due.objects,
        "held_total": summary.held.objects,
        "policy_lines": (lines := _policy_lines(manifest.policy)),
        "policy_folded": len(lines) > _LONG_POLICY,
        "policy_hash": printable(manifest.policy_hash),
        "snapshot": [(printable(key.replace("_", " ")), _plain(v)) for key, v in manifest.snapshot.items()],
        "events": [(moment(at), printable(who), printable(what)) for at, who, what in data.events],
        "steps": next_steps(manifest, data.state, path=path),
    }


def _facts(data: ReportData, words: Words) -> list[tuple[str, Name]]:
    manifest = data.manifest
    facts = [
        ("Policy time", name(moment(manifest.now))),
        ("Plan made", name(moment(manifest.made_at))),
        *((term, name(text)) for term, text in provenance(data.events)),
    ]
    # A bucket is its own namespace.
    return [*facts, ("Namespace", name(manifest.namespace))] if words.has_branches else facts


def _failure(data: ReportData) -> str:
    """Give the ledger's last word on a run that failed."""
    if data.state != RunState.FAILED:
        return ""
    said = [what for _, _, what in data.events if "failed" in what]
    return printable(said[-1].rpartition("-> failed: ")[2]) if said else "the ledger does not say why"


def _policy_lines(text: str) -> list[str]:
    try:
        pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        pretty = text
    return [printable(line) for line in pretty.split("\n")]


def _plain(value: object) -> Name:
    if isinstance(value, int) and not isinstance(value, bool):
        return name(count(value))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return name("–" if value is None else text)
