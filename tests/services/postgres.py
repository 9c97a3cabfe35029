"""A real PostgreSQL for the tests, started from the system's package and stopped by its pid."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from tests.setup import install

from ebbtide.targets.s3.seaweedfs import reserved_ports

_SECONDS = 180


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Start PostgreSQL on a free port, give its URL, and stop it at the end of the session."""
    with postgres_server() as url:
        yield url


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run PostgreSQL with an empty cluster until the block ends, and give its URL."""
    programs = _programs()
    # The server's own user must reach its folder, so it cannot lie below pytest's private one.
    folder = Path(tempfile.mkdtemp(prefix="ebbtide-postgres-"))
    try:
        data = _make_database(programs, folder)
        with reserved_ports(1) as (port,):
            server = _start(programs, data, port, folder / "log")
            try:
                yield f"postgresql+psycopg://ebbtide@127.0.0.1:{port}/postgres"
            finally:
                _stop(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """Find the server's programs, or install them."""
    found = _installed()
    if found is None:
        install("postgresql")
        found = _installed()
    return found or _missing("there is no initdb under /usr/lib/postgresql, and none could be installed")


def _installed() -> Path | None:
    """Find the newest installed version."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    on_path = shutil.which("initdb")
    if places:
        return places[-1].parent
    return Path(on_path).resolve().parent if on_path else None


def _missing(reason: str) -> NoReturn:
    """Skip loudly; on CI fail."""
    message = f"NO POSTGRESQL, SO HALF OF THE CATALOG'S CONTRACT IS NOT TESTED: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def _as_server_user() -> list[str]:
    """PostgreSQL refuses to run as root, so root starts it as the package's own user."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _make_database(programs: Path, folder: Path) -> Path:
    """Make an empty cluster."""
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    # The locale is one whose order is not that of bytes where the system has it: the catalog must not care.
    command = [str(programs / "initdb"), "-D", str(data), "-U", "ebbtide", "--auth=trust", "-E", "UTF8"]
    made = subprocess.run(
        [*_as_server_user(), *command, "--locale-provider=icu", "--icu-locale=en", "--no-sync"],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if made.returncode:
        _missing(f"initdb failed: {made.stderr.strip()}")
    return data


def _start(programs: Path, data: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "max_connections": "200",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), *options]
    with log.open("wb") as output:
        server = subprocess.Popen([*_as_server_user(), *command], stdout=output, stderr=output, cwd=data)
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0 and b"ready to accept" in log.read_bytes():
                return server
        time.sleep(0.1)
    server.kill()
    return _missing(f"it did not start: {log.read_text(errors='replace')[-2000:]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop it fast: it ends sessions and writes a checkpoint; nothing of it is needed any more."""
    server.send_signal(signal.SIGINT)
    try:
        server.wait(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
