"""The page: a run as one HTML file that needs no other file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ebbtide import __version__
from ebbtide.core.display import Words
from ebbtide.core.format import count, moment, numbers, plural, printable
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.report.charts import due_charts, figures, held_chart, tide
from ebbtide.report.results import headline, next_steps, results
from ebbtide.report.samples import Name, Row, decision_row, example_path, name, trouble_row
from ebbtide.state.runs import RunState
from ebbtide.targets.kinds import words_of

Event = tuple[datetime, str, str]
"""When, who, what."""
_MACHINE = re.compile(r" \((Ebbtide \S+) on (.+)\)$")
_ENDS = (f"-> {RunState.SUCCEEDED}", f"-> {RunState.FAILED}")


def provenance(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Return who made the plan and who applied it, on which machine, and how long each took."""
    began = [event for event in events if event[2].startswith("planning ") and " began" in event[2]]
    planned = [event for event in events if f"-> {RunState.PLANNED}" in event[2]]
    applying = [event for event in events if f"-> {RunState.APPLYING}" in event[2]]
    ended = [event for event in events if any(end in event[2] for end in _ENDS)]
    found = [("Planned by", _told(began[0], planned))] if began else []
    if applying:
        # An apply may have been interrupted and continued by another user on another machine.
        found.append(("Applied by", _told((applying[0][0], *applying[-1][1:]), ended)))
    return found


def duration(span: timedelta) -> str:
    """
    Format how long something took.

    >>> duration(timedelta(seconds=3.2)), duration(timedelta(minutes=61, seconds=5))
    ('3 s', '1 h 1 min')
    """
    seconds = max(0, round(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _told(began: Event, ended: Sequence[Event]) -> str:
    at, who, what = began
    machine = _MACHINE.search(what)
    where = f" on {machine[2]} with {machine[1]}" if machine else ""
    took = f", in {duration(ended[-1][0] - at)}" if ended and ended[-1][0] >= at else ""
    return printable(f"{who}{where}{took}")


_LONG_POLICY = 60
"""A policy with more lines is folded."""


@dataclass(frozen=True)
class ReportData:
    """The data of a page: a frozen plan, and the state, outcomes and samples of its run."""

    manifest: Manifest
    state: str
    outcomes: Mapping[str, Tally]
    due_sample: Sequence[Row]
    held_sample: Sequence[Row]
    failed_sample: Sequence[Row]
    events: Sequence[tuple[datetime, str, str]]


def render(data: ReportData) -> str:
    """Return the HTML; every name in it is escaped, because users choose keys and branches."""
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
    # Only repositories have a namespace apart from their URL.
    return [*facts, ("Namespace", name(manifest.namespace))] if words.has_branches else facts


def _failure(data: ReportData) -> str:
    """Return the last error of a run that failed."""
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
