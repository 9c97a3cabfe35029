"""What the page says, read as text."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from tests.unit.report.sample_run import (
    FAILED_OUTCOMES,
    HOSTILE,
    NOW,
    SUMMARY,
    applied_run,
    bucket_run,
    empty_run,
    failed_run,
    hostile_run,
    planned_run,
    succeeded_run,
)

from ebbtide.core.display import Words
from ebbtide.core.manifest import Summary, Tally
from ebbtide.report.charts import due_charts
from ebbtide.report.page import ReportData, render
from ebbtide.state.runs import RunState

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Collects tags, attributes and text, and which tags were left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        """Note a tag."""
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Note a tag that closes itself."""
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag):
        """Match a closing tag with the one it closes."""
        if self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data):
        """Note text, without the styles."""
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def read(data: ReportData) -> str:
    """Give the page's text with plain spaces."""
    text = " ".join(Outline(render(data)).texts).replace("\u202f", " ")
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("run", [planned_run, succeeded_run, failed_run, empty_run, hostile_run, bucket_run])
def test_the_page_is_well_formed(run) -> None:
    """Every tag is closed where it should be, whatever the names."""
    outline = Outline(render(run()))

    assert (outline.open, outline.mismatched) == ([], [])


def test_names_cannot_break_out() -> None:
    """Names made of markup add no tag and no attribute, and read as they are."""
    calm, hostile = Outline(render(failed_run())), Outline(render(hostile_run()))

    assert hostile.tags - calm.tags == set()
    assert {name for name in hostile.attributes if name.startswith("on")} == set()
    assert HOSTILE in " ".join(hostile.texts)
    assert hostile.tags.isdisjoint({"script", "img", "iframe"})


def test_template_syntax_in_a_name_is_only_text() -> None:
    """A name that looks like a template is not evaluated."""
    page = render(hostile_run())

    assert "{{ 7*7 }}" in page


def test_names_that_are_not_unicode_can_be_written() -> None:
    """A lone surrogate in a key is written out, so the page can be saved as UTF-8."""
    row = {"names": ["half \ud83c"], "address": "a", "rules": None, "size": None}
    page = render(replace(planned_run(), due_sample=(row,))).encode("utf-8")

    assert b"half \\ud83c" in page


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (RunState.PLANNED, "would free 1.8 TiB in 1 284 310 objects. Nothing has been deleted yet."),
        (RunState.APPROVED, "would free 1.8 TiB in 1 284 310 objects. Nothing has been deleted yet."),
        (RunState.APPLYING, "Freed 0 B, 0 of 1 284 310 planned objects, so far."),
        (RunState.FAILED, "Freed 0 B, 0 of 1 284 310 planned objects; it stopped before the end."),
        (RunState.ABANDONED, "Planning stopped before there was a plan. Nothing was deleted."),
    ],
)
def test_states_without_outcomes(state: str, sentence: str) -> None:
    """Each state says in one sentence how far the run got."""
    text = read(replace(planned_run(), state=state))

    assert sentence in text


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (succeeded_run, "Freed 1.8 TiB in 1 283 952 objects."),
        (
            failed_run,
            "Freed 1.8 TiB, 1 283 640 of 1 284 310 planned objects; 312 objects could not be deleted.",
        ),
        (empty_run, "Nothing is due: applying this plan would delete nothing."),
    ],
)
def test_sentences_of_finished_runs(run, sentence: str) -> None:
    """What was freed is what was deleted, not what was planned."""
    text = read(run())

    assert sentence in text


def test_a_retry_that_was_approved_does_not_claim_that_nothing_was_deleted() -> None:
    """A run that failed in part and is approved again shows what it did before."""
    text = read(applied_run("approved", FAILED_OUTCOMES))

    assert "Nothing has been deleted yet" not in text


@pytest.mark.parametrize(
    ("state", "deleted", "verdict"),
    [
        ("succeeded", 1_284_310, "they add up."),
        ("succeeded", 1_284_309, "they do not add up. This is a defect"),
        ("failed", 1_284_311, "they do not add up. This is a defect"),
        ("applying", 1_284_309, "1 object has no outcome yet."),
        ("failed", 50_000, "1 234 310 objects have no outcome yet."),
    ],
)
def test_outcomes_are_held_against_the_plan(state: str, deleted: int, verdict: str) -> None:
    """The page says whether every planned object has its outcome, and what it means if not."""
    text = read(applied_run(state, {"deleted": Tally("deleted", deleted, 1)}))

    assert verdict in text


def test_an_outcome_that_nobody_knows_is_not_left_out() -> None:
    """An outcome that a later version wrote stands in the table."""
    text = read(applied_run("applying", {"binned": Tally("binned", 7, 7)}))

    assert "binned Not an outcome that this version of Ebbtide knows. 7 7 B" in text


def test_an_empty_plan_has_no_bars() -> None:
    """Nothing is divided by nothing, and nothing is drawn."""
    page = render(empty_run())

    assert [word for word in ("nan", "inf%", '<rect class="fill"') if word in page.lower()] == []


def test_objects_without_bytes_have_no_bars() -> None:
    """Rows of empty objects are listed with a track and no bar."""
    row = (Tally("markers/", 5, 0),)
    summary = replace(SUMMARY, due=Tally("due", 5, 0), by_rule=row, by_prefix=row, by_label={}, by_age=())
    page = render(planned_run(summary=replace(summary, held_by_reason=())))

    assert 'class="fill"' not in page
    assert "markers/" in page


def test_prefixes_add_up_to_the_plan() -> None:
    """What a cut table of prefixes leaves out is one more row."""
    summary = replace(SUMMARY, by_prefix=SUMMARY.by_prefix[:2])
    text = read(planned_run(summary=summary))

    assert "(everything else) 15.5% of all these bytes 291.0 GiB 363 750" in text


def test_fifty_labels_fold() -> None:
    """A long chart shows its largest rows and unfolds the others, so none is lost."""
    page = render(hostile_run())

    assert page.count("42 more rows") == 5
    assert "prefix-45/" in page


def test_breaker_and_warnings_are_said_first() -> None:
    """What should stop a reader stands before every figure."""
    page = render(planned_run(breaker=("it deletes everything",), warnings=("rule 'r' matches everything",)))
    places = [page.index(text) for text in ("it deletes everything", "matches everything", "Would free")]

    assert places == sorted(places)


@pytest.mark.parametrize(("state", "times"), [("planned", 2), ("failed", 2), ("succeeded", 0)])
def test_a_finished_run_has_no_breaker_advice(state: str, times: int) -> None:
    """Who reads what a run did is not told what applying it needs."""
    run = replace(planned_run(breaker=("it deletes everything",)), state=state)

    assert times == render(run).count("--override-breaker")


def test_who_where_and_how_long() -> None:
    """The page names who planned and applied, on which host, with which version, and how long it took."""
    text = read(succeeded_run())

    assert "Planned by airflow on batch-3 with Ebbtide 0.4.0, in 1 min 12 s" in text
    assert "Applied by mira on mira-laptop with Ebbtide 0.4.1, in 25 min 31 s" in text
    assert "Applied by" not in read(planned_run())


def test_bars_are_drawn_to_the_scale_of_the_rows_that_stand_open() -> None:
    """The largest open row has the longest bar, also if a folded row or all that was left out is larger."""
    prefixes = tuple(Tally(f"p{number:02}/", 1, 1_000 - number) for number in range(12))
    folded = Tally("p12/", 1, 50_000)
    summary = Summary(Tally("due", 900, 10**9), Tally("held", 0, 0), 900, by_prefix=(*prefixes, folded))
    chart = next(one for one in due_charts(summary, Words(has_branches=True)) if one.title == "By prefix")
    widths = {bar.label.full: bar.width for bar in chart.bars}

    assert (100.0, 100.0, 0.0) == (widths["p00/"], widths["p12/"], widths["(everything else)"])
    assert 99.3 == widths["p07/"]


def test_a_calm_plan_has_no_alerts() -> None:
    """Without breaker, warnings or failure there is no box."""
    page = render(planned_run())

    assert 'class="alert' not in page


def test_a_failure_gives_its_reason() -> None:
    """The box of a failed run holds what the ledger wrote when it failed."""
    text = read(failed_run())

    assert "This run failed 312 of 1284310 items could not be deleted" in text


@pytest.mark.parametrize(
    ("run", "command"),
    [
        (planned_run(), "ebb apply 42 delete"),
        (planned_run(), "ebb plan show 42 --all"),
        (planned_run(breaker=("too large",)), "ebb apply 42 --override-breaker"),
        (failed_run(), "ebb apply 42 finish the run"),
        (succeeded_run(), "ebb explain lake:analytics ml/checkpoints/churn-v2/final.pt"),
        (planned_run(target="a; rm -rf ~"), "ebb explain 'a; rm -rf ~'"),
    ],
)
def test_the_next_command(run: ReportData, command: str) -> None:
    """The page ends with commands that can be pasted into a shell as they are."""
    text = read(run)

    assert command in text


BUCKET_DONE = {"deleted": Tally("deleted", 3, 6 * 1024), "failed": Tally("failed", 1, 1024)}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (bucket_run(), "would move 1 version, delete 2 noncurrent versions and abort 1 upload: 7.0 KiB in 4"),
        (bucket_run(), "Nothing has been acted on yet."),
        (bucket_run(), "Would free 7.0 KiB 4 items"),
        (bucket_run(), "By action Action Size Items transition"),
        (bucket_run(), "logs/2024/a.log transition to COLD, version v3"),
        (bucket_run(), "ebb explain s3://acme-logs logs/2024/a.log"),
        (
            bucket_run("failed", BUCKET_DONE),
            "Acted on 6.0 KiB, 3 of 4 planned items; 1 item could not be acted on.",
        ),
        (bucket_run("failed", BUCKET_DONE), "logs/2024/a.log version v1"),
    ],
)
def test_a_bucket_is_told_in_its_own_words(run: ReportData, said: str) -> None:
    """The page of a bucket speaks of versions, markers, uploads and actions, and of nothing of lakes."""
    text = read(run)

    assert said in text
    assert not re.search(r"branch|commit|namespace|object", text, re.IGNORECASE)


def test_an_empty_plan_is_not_to_be_applied() -> None:
    """Where nothing is due nobody is told to apply."""
    text = read(empty_run())

    assert "ebb apply" not in text


@pytest.mark.parametrize("policy", ["not json {", "[" * 100_000, ""])
def test_a_policy_that_is_not_json_is_shown_as_it_is(policy: str) -> None:
    """The page never fails over the text of a policy."""
    page = render(planned_run(policy=policy))

    assert policy in page


def test_a_held_row_says_until_when() -> None:
    """Each held sample has its reason, its holder and its deadline."""
    text = read(planned_run())

    assert "not yet due raw/events/2024/09/20/part-00002.parquet on branch main 2025-03-20 00:00 UTC" in text
    assert "under tag release-2024-11 never" in text


def test_the_story_is_told_in_order() -> None:
    """Every event stands with its time and its actor, as the ledger gave it."""
    events = ((NOW, "mira", "first"), (NOW + timedelta(seconds=1), "root", "then <b>"))
    text = read(replace(planned_run(), events=events))

    assert "2025-03-14 00:00 UTC mira first 2025-03-14 00:00:01 UTC root then <b>" in text


def test_the_same_run_gives_the_same_page() -> None:
    """A page depends on its run alone, so two of them can be compared."""
    assert render(failed_run()) == render(failed_run())


def test_the_page_needs_nothing_else() -> None:
    """No script, no address to fetch from, and a policy that would forbid it."""
    page = render(failed_run())
    fetched = re.findall(r"(?:src|href)=\"(?!data:)|url\(|@import|<script", page)

    assert fetched == []
    assert "default-src 'none'" in page
