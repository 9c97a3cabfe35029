"""The pods of a cluster are read page by page, and a scan that fails stops the purge."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from ebbtide.core.errors import SafetyStop
from ebbtide.core.instant import parse_instant, system_clock
from ebbtide.targets.oci.model import OLDEST_SCAN, RunningReference
from ebbtide.targets.oci.running import TOKEN, live_running, running_from, scan_doubt

NOW = parse_instant("2018-02-02")


def pod(image: str) -> dict[str, object]:
    """Write a pod that runs an image."""
    return {"spec": {"containers": [{"image": image}]}}


@contextmanager
def cluster(pages: list[object], statuses: list[int] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Serve pages as the API does, each naming the next; gives the address and the requests' headers."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        """Answers with the page that is asked for."""

        def do_GET(self) -> None:
            """Give one page."""
            asked.append(self.headers.get("Authorization", ""))
            query = parse_qs(urlsplit(self.path).query)
            number = int(query.get("continue", ["0"])[0])
            self.send_response((statuses or [200] * len(pages))[number])
            self.end_headers()
            self.wfile.write(json.dumps(pages[number]).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_all_pages_of_pods_are_read():
    """What runs is what all pages name, with the token given and the time of the beginning."""
    first = {"items": [pod("a:1")], "metadata": {"continue": "1"}}

    with cluster([first, {"items": [pod("b:2")]}]) as (url, asked):
        found = live_running(url, lambda: NOW, {TOKEN: "hush"})

    assert (RunningReference("a", "1"), RunningReference("b", "2")) == found.references
    assert NOW == found.scanned_at
    assert ["Bearer hush"] * 2 == asked


@pytest.mark.parametrize(
    ("pages", "statuses"),
    [
        ([{"items": [pod("a:1")], "metadata": {"continue": "1"}}, {}], [200, 500]),
        ([{"items": [pod("a:1")], "metadata": {"continue": "1"}}, {}], [200, 410]),
        ([{}], [401]),
        ([{"kind": "Status"}], None),
        ([[]], None),
    ],
)
def test_a_scan_that_fails_stops_the_purge(pages, statuses):
    """A page that is refused, gone or no list of pods is a failed scan, never a short list."""
    with cluster(pages, statuses) as (url, _), pytest.raises(SafetyStop) as stopped:
        live_running(url, lambda: NOW, {TOKEN: "hush"})

    assert "the running scan failed" in stopped.value.what
    assert "hush" not in str(stopped.value)


def test_a_missing_file_stops_the_purge(tmp_path):
    """A file of running images that is not there is no empty list."""
    with pytest.raises(SafetyStop):
        running_from(str(tmp_path / "pods.json"), lambda: NOW)


@pytest.mark.parametrize("hours", [0, 30])
def test_a_file_without_a_time_is_as_old_as_it_was_written(tmp_path, hours):
    """Pod lists have no time, and a file that nobody renewed must not pass for what runs today."""
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"items": [pod("a:1")]}), encoding="utf-8")
    written = (system_clock() - timedelta(hours=hours)).timestamp()
    os.utime(file, (written, written))

    found = running_from(str(file), lambda: NOW)

    assert (RunningReference("a", "1"),) == found.references
    assert NOW - timedelta(hours=hours) == found.scanned_at
    assert bool(hours) == bool(scan_doubt(found, NOW, OLDEST_SCAN))


def test_a_file_that_says_when_it_was_made_is_believed(tmp_path):
    """The time in a table counts, whenever its file was written; a byte order mark is no text."""
    file = tmp_path / "running.json"
    file.write_text('{"images": ["a:1"], "scanned_at": "2018-01-01"}', encoding="utf-8-sig")

    assert parse_instant("2018-01-01") == running_from(str(file), lambda: NOW).scanned_at
