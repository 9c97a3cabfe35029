"""What a person sees who opens a report in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.contrast import faint_texts
from tests.unit.report.sample_run import empty_run, failed_run, hostile_run, planned_run, succeeded_run

from ebbtide.report.page import ReportData, render

RUNS: dict[str, Callable[[], ReportData]] = {
    "planned": planned_run,
    "succeeded": succeeded_run,
    "failed": failed_run,
    "empty": empty_run,
    "hostile": hostile_run,
}

Open = Callable[..., "Opened"]


class Opened:
    """A page in the browser, and what it asked for and complained about since it was opened."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))

    def text(self, selector: str) -> str:
        """Read what stands there, with plain spaces."""
        return " ".join(self.page.locator(selector).inner_text().replace("\u202f", " ").split())


@pytest.fixture
def open_run(chromium: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open the page of a run at a width and in a colour scheme."""
    contexts = []

    def opening(name: str, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> Opened:
        file = tmp_path / "report.html"
        file.write_text(render(RUNS[name]()), encoding="utf-8")
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        contexts[-1].set_default_timeout(180_000)  # the machine may have other things to do
        opened = Opened(contexts[-1].new_page())
        opened.page.goto(file.as_uri())
        return opened

    yield opening
    for context in contexts:
        context.close()


def test_a_plan_shows_its_four_figures(open_run: Open) -> None:
    """Somebody who opens a plan reads what it would free, what is held, the whole, and that all is calm."""
    opened = open_run("planned")
    figures = [opened.text(f"#figure-{name}") for name in ("freed", "held", "known", "attention")]

    assert figures == [
        "Would free 1.8 TiB 1 284 310 objects",
        "Held 903.0 GiB 412 877 objects kept for a reason",
        "Known objects 9 731 204 this plan takes 13.2% of them",
        "Need attention 0 nothing was attempted yet",
    ]


def test_a_failed_run_shows_its_trouble_first(open_run: Open) -> None:
    """The reason of a failure and the objects it left behind stand above what had been planned."""
    opened = open_run("failed")
    headings = [text.strip() for text in opened.page.locator("h2").all_inner_texts()]

    assert headings[:3] == ["This run failed", "What happened", "What was planned to go"]
    assert opened.text("#figure-attention") == "Need attention 312 290 denied, 22 failed"
    assert opened.text("#sum") == "1 284 310 outcomes for 1 284 310 planned objects: they add up."


def test_bars_are_as_long_as_their_numbers(open_run: Open) -> None:
    """The drawn length of each bar by rule is its part of the longest."""
    opened = open_run("planned")
    chart = opened.page.locator(".chart").first
    drawn = chart.locator(".fill").evaluate_all("bars => bars.map(b => b.getBoundingClientRect().width)")
    parts = [round(width / drawn[0], 2) for width in drawn]

    assert parts == [1.0, 0.56, 0.3, 0.04]


@pytest.mark.parametrize("name", RUNS)
def test_nothing_leaves_the_page(open_run: Open, name: str) -> None:
    """The page asks the network for nothing and the console stays silent, whatever the names in it."""
    opened = open_run(name)
    opened.page.wait_for_timeout(100)
    elsewhere = [url for url in opened.requests if not url.startswith(("file:", "data:"))]

    assert elsewhere == []
    assert opened.complaints == []
    assert opened.page.locator("script, img, iframe, object, embed").count() == 0


@pytest.mark.parametrize("width", [1280, 800, 400])
@pytest.mark.parametrize("name", RUNS)
def test_nobody_scrolls_sideways(open_run: Open, name: str, width: int) -> None:
    """The page fits its window, with everything unfolded, even with keys of a thousand characters."""
    opened = open_run(name, width)
    opened.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    spilling = opened.page.evaluate(
        "[...document.querySelectorAll('main *')].filter(one => one.getBoundingClientRect().right"
        " > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"
    )

    assert wide == width
    assert spilling == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["planned", "succeeded", "failed", "hostile"])
def test_everything_can_be_read(open_run: Open, name: str, scheme: str) -> None:
    """Every text has the contrast of WCAG AA against what is behind it, and every bar that of graphics."""
    opened = open_run(name, 1280, scheme)

    assert faint_texts(opened.page) == []


def test_dark_is_dark(open_run: Open) -> None:
    """Whoever prefers dark gets a dark page, and light is the opposite."""
    backgrounds = [
        open_run("planned", 1280, scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]

    assert backgrounds == ["rgb(245, 248, 249)", "rgb(12, 22, 27)"]


def test_long_names_unfold(open_run: Open) -> None:
    """A name that was cut is whole after one click, without a script."""
    opened = open_run("hostile")
    cut = opened.page.locator("#due-sample details.long").filter(has_text="s3://").first
    cut.locator("summary").click()
    whole = cut.locator(".full").inner_text()

    assert whole == "s3://données/" + "目録🌊é" * 250


def test_a_printed_report_is_light_and_whole(open_run: Open) -> None:
    """Paper shows the light colours and what is folded on the screen, even from a dark desktop."""
    opened = open_run("hostile", 1280, "dark")
    opened.page.emulate_media(media="print", color_scheme="dark")
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    folded = opened.page.locator("details.more table").first.bounding_box()

    assert background == "rgb(255, 255, 255)"
    assert folded is not None
    assert folded["height"] > 100
