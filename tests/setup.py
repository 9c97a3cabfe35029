"""Install the Debian packages that tests need, where that is possible; say loudly where it is not."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "postgresql": "/usr/lib/postgresql/*/bin/initdb",
    "chromium": "/usr/bin/chromium",
    "docker-registry": "/usr/bin/docker-registry",
    "skopeo": "/usr/bin/skopeo",
    "iproute2": "/sbin/ip",
}


_LOCK = Path("/run/ebbtide-tests-apt.lock")
"""Only root installs, and only root writes there."""


def missing() -> list[str]:
    """Name the packages that are not here yet."""
    return [name for name, sign in PACKAGES.items() if not list(Path("/").glob(sign.lstrip("/")))]


def install(*names: str) -> list[str]:
    """Have Debian install some of the packages, and name those that could not be had."""
    if set(names) & set(missing()) and shutil.which("apt-get") and os.geteuid() == 0:
        # apt-get itself does not wait for another: who comes second waits here, and finds all done.
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if wanted := [name for name in missing() if name in names]:
                _install(wanted)
    return [name for name in missing() if name in names]


def _install(wanted: list[str]) -> None:
    """Run apt-get."""
    sys.stdout.write(f"test set-up: installing {', '.join(wanted)}\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *wanted]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, check=False, stdout=subprocess.DEVNULL)


def main() -> int:
    """Install what is missing; in CI a package that cannot be had is a failure."""
    left = install(*PACKAGES)
    for name in left:
        sys.stderr.write(f"test set-up: {name} IS MISSING; the tests that need it cannot run\n")
    return 1 if left and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
