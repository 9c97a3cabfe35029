"""The README, the tutorial and every how-to work as written: each command block, pasted in order."""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy
from tests.services.doc_blocks import command_blocks, doc_shell, unlabelled_blocks
from tests.services.image_kit import push_image
from tests.services.registry import registry_server
from tests.toy_target.installation import installed

from ebbtide.cli.state import State
from ebbtide.targets.oci.client.registry import open_registry

ROOT = Path(__file__).parents[2]
TUTORIAL = "docs/tutorial.md"
PAGES = ("README.md", TUTORIAL, *sorted(f"docs/how-to/{page.name}" for page in ROOT.glob("docs/how-to/*.md")))

NOT_RUN = {
    ("README.md", "builds .venv and runs this very suite"),
    ("docs/how-to/purge-images.md", "needs a Kubernetes cluster"),
    ("docs/how-to/undo.md", "needs an archive of AWS"),
    ("docs/how-to/your-own-data.md", "needs a Spark cluster"),
}
"""The blocks that no test runs, all of them: a page and why."""


@contextmanager
def servers_of(page, request, folder):
    """Run and install what a page takes for granted; give the servers' addresses for those that it names."""
    with ExitStack() as running:
        hosts = {}
        if page.endswith("purge-images.md"):
            hosts["localhost:5000"] = running.enter_context(registry_of_builds(folder / "registry"))
        if page.endswith(("buckets.md", "transitions.md", "your-own-data.md")):
            server = request.getfixturevalue("s3_server")
            hosts["127.0.0.1:8333"] = running.enter_context(bucket_of_logs(server))
        if page.endswith("write-a-target.md"):
            running.enter_context(installed(folder / "site"))
        if page.endswith("your-own-data.md"):
            url = sqlalchemy.make_url(request.getfixturevalue("postgres_url"))
            hosts["127.0.0.1:5432"] = running.enter_context(empty_database(url))
        yield hosts


@contextmanager
def registry_of_builds(folder):
    """Run a registry with a release and five builds, built on five days."""
    with registry_server(folder) as server, closing(open_registry(server.url)) as registry:
        push_image(registry, "team/app", ["v1"], layers=[b"first"], name="v1")
        for day in range(1, 6):
            name, dated = f"build-{day}", f"2026-01-0{day}T00:00:00Z"
            push_image(registry, "team/app", [name], layers=[name.encode()], name=name, created=dated)
        yield f"localhost:{server.port}"


@contextmanager
def bucket_of_logs(server):
    """Make the bucket of the examples, and remove it afterwards."""
    client = server.client()
    client.create_bucket(Bucket="logs")
    for key in ("app/monday.log", "app/tuesday.log", "readme.txt"):
        client.put_object(Bucket="logs", Key=key, Body=key.encode())
    try:
        yield server.endpoint.removeprefix("http://")
    finally:
        for one in client.list_objects_v2(Bucket="logs").get("Contents", []):
            client.delete_object(Bucket="logs", Key=one["Key"])
        client.delete_bucket(Bucket="logs")


@contextmanager
def empty_database(url):
    """Make the database of the examples, and remove it afterwards."""
    server = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE ebbtide")
    try:
        yield f"{url.host}:{url.port}"
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql("DROP DATABASE ebbtide WITH (FORCE)")
        server.dispose()


def follow(page, request, folder, said=lambda block, text: None):
    """Paste all command blocks of a page into a terminal that stands in an empty folder."""
    place = folder / "reader"
    place.mkdir()
    with (
        pytest.MonkeyPatch.context() as patched,
        servers_of(page, request, folder) as hosts,
        doc_shell(place, hosts) as shell,
    ):
        patched.setattr(State, "spark", lambda *_: nullcontext(request.getfixturevalue("spark")))
        for block in command_blocks((ROOT / page).read_text(encoding="utf-8")):
            if block.not_run is None:
                said(block, shell.paste(block))
    return place


def test_every_command_block_is_run_or_listed():
    """A block that no test runs is in the list above, and every other is told apart by its language."""
    found = [(page, block) for page in PAGES for block in command_blocks((ROOT / page).read_text())]

    assert {page for page, _ in found} == set(PAGES)
    assert NOT_RUN == {(page, block.not_run) for page, block in found if block.not_run}
    assert {} == {page: rest for page in PAGES if (rest := unlabelled_blocks((ROOT / page).read_text()))}


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if page != TUTORIAL])
def test_a_page(page, request, tmp_path):
    """Whoever pastes the blocks of a page one after the other sees what it shows."""
    follow(page, request, tmp_path)


@pytest.mark.spark
def test_all_that_a_rehearsal_leaves_is_marked(request, tmp_path):
    """After the tutorial the plan, the report and the outputs beside the data say that it was a rehearsal."""
    folder = follow(TUTORIAL, request, tmp_path)
    manifest = json.loads((folder / ".ebbtide/runs/000003/manifest.json").read_text())
    outputs = folder / "sales-lake/_lakefs/retention/lc"
    with next((outputs / "stats").glob("*.csv")).open() as file:
        stats = list(csv.DictReader(file))

    assert manifest["rehearsal"] is True
    assert "this is a rehearsal" in (folder / "ebbtide-run-3.html").read_text()
    assert {"true"} == {row["rehearsal"] for row in stats}
    assert not list(outputs.rglob("date=2099*"))
    for name in ("policy", "addresses"):
        files = list((outputs / name).rglob("*.parquet"))
        assert files
        assert all(b"rehearsal" in pq.read_schema(one).metadata for one in files)
