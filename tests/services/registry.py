"""A real registry for tests: Debian's docker-registry on a loopback port, stopped by its pid."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.setup import install

from ebbtide.targets.s3.seaweedfs import reserved_ports

USER, PASSWORD = "tester", "correct horse"
_HASHED = "$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2"
_PACKAGES = ("docker-registry", "skopeo")
_SECONDS = 180


@dataclass
class RegistryServer:
    """A running registry; it has no cache in memory, so its own garbage collector may run beside it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL of its API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its address for Ebbtide."""
        return f"oci://127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        """Its configuration."""
        return self.folder / "config.yml"

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", str(self.config)], stdout=log, stderr=log, cwd=self.folder
            )
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{self.endpoint}/v2/", trust_env=False)
                return
            time.sleep(0.05)
        said = (self.folder / "log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"docker-registry did not start: {said}")

    def stop(self) -> None:
        """Stop it; nothing is lost, as it writes at once."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def garbage_collect(self, *options: str) -> str:
        """Run the registry's own garbage collector while the server stands still, and give what it said."""
        self.stop()
        try:
            done = subprocess.run(
                ["docker-registry", "garbage-collect", *options, str(self.config)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        finally:
            self.start()
        return done.stdout


def skopeo(*words: str) -> str:
    """Run skopeo and give what it wrote; its arguments say where TLS is not wanted."""
    done = subprocess.run(
        ["skopeo", "--insecure-policy", *words], check=False, capture_output=True, text=True, timeout=_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"skopeo {words[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def registry_server(
    folder: Path, *, deletes: bool = True, password: bool = False, notify: str = ""
) -> Iterator[RegistryServer]:
    """
    Run a registry until the block ends, with deletes switched on and without a password unless asked.

    What happens in it is told to the URL `notify`, if there is one.
    """
    _require_programs()
    folder.mkdir(parents=True, exist_ok=True)
    # The port is kept while the server stands still, too: it has to come back where it was.
    with reserved_ports(1) as (port,):
        server = RegistryServer(folder, port)
        _configure(server, deletes=deletes, password=password, notify=notify)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _configure(server: RegistryServer, *, deletes: bool, password: bool, notify: str) -> None:
    """Write the configuration of a registry."""
    folder = server.folder
    settings: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(folder / "data")},
            "delete": {"enabled": deletes},
        },
        "http": {"addr": f"127.0.0.1:{server.port}", "secret": "for one test"},
    }
    if password:
        (folder / "htpasswd").write_text(f"{USER}:{_HASHED}\n")
        settings["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    if notify:
        endpoint = {"name": "test", "url": notify, "timeout": "60s", "threshold": 5, "backoff": "100ms"}
        settings["notifications"] = {"endpoints": [endpoint]}
    server.config.write_text(json.dumps(settings))  # JSON is YAML


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Share one open registry among all tests of a session; each uses repositories of its own."""
    with registry_server(tmp_path_factory.mktemp("registry")) as server:
        yield server


def _require_programs() -> None:
    """Find the programs or install them; skip loudly without them, and fail where CI promises them."""
    if _missing():
        install(*_PACKAGES)
    if not _missing():
        return
    message = f"NO REGISTRY, SO NOTHING IS TESTED AGAINST A REAL ONE: {', '.join(_missing())} cannot be had"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def _missing() -> list[str]:
    return [name for name in _PACKAGES if shutil.which(name) is None]
