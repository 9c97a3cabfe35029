"""A real browser for tests: Debian's Chromium, headless, driven through playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.setup import install

_PROGRAM = "/usr/bin/chromium"
_SECONDS = 180
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Give the path of Chromium, or None."""
    return _PROGRAM if Path(_PROGRAM).exists() else shutil.which("chromium")


def install_chromium() -> str:
    """Try to have Debian install Chromium; say why it could not be had, or nothing."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "only root on Debian can install it here"
    return "apt-get did not install it" if install("chromium") else ""


@contextmanager
def browsing() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=_FLAGS, timeout=_SECONDS * 1000
        )
        try:
            yield browser
        finally:
            browser.close()


def photograph(
    browser: Browser,
    page_file: Path,
    picture: Path,
    *,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    height: int | None = None,
) -> None:
    """Take a picture of a page, whole or from its top down to a height, sharp enough for print."""
    context = browser.new_context(
        viewport={"width": width, "height": height or 800}, color_scheme=scheme, device_scale_factor=2
    )
    with context:
        page = context.new_page()
        page.goto(page_file.absolute().as_uri())
        page.screenshot(path=picture, full_page=height is None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Share one browser among all tests; without one they are skipped, but not where CI promises it."""
    missing = "" if find_chromium() else install_chromium()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"Chromium is missing: {missing}")
    if missing:
        pytest.skip(f"PAGES ARE NOT TESTED: Chromium is missing: {missing}")
    with browsing() as browser:
        yield browser
