"""The archive of Spark's classes: written once, verified once, used while it is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ebbtide.engine.spark import class_archive
from ebbtide.engine.spark.class_archive import ClassArchive

JAVA = """#!/bin/sh
case "$*" in
  *launcher.Main*) printf 'java\\0-cp\\0class-path\\0' ;;
  *"-cp class-path -version") for option; do case "$option" in
    -XX:SharedArchiveFile=*) grep -q good "${option#*=}" || exit 1 ;; esac; done ;;
esac
"""
"""A Java that takes an archive for good if it contains that word."""


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    """Return an archive in an empty cache."""
    java = tmp_path / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark.jar").write_bytes(b"classes")
    return ClassArchive(tmp_path / "cache", str(java), tmp_path / "spark")


def _written(archive: ClassArchive, content: bytes = b"good") -> Path:
    """Write what the JVM of a run would write when it exits."""
    _, option = archive.options()
    fresh = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    fresh.write_bytes(content)
    return fresh


def _used(archive: ClassArchive) -> list[str]:
    return [class_archive._QUIET, "-Xshare:auto", f"-XX:SharedArchiveFile={archive.file}"]


def test_an_archive_is_written_once_and_then_used(archive):
    """The first run asks Java to write an archive; the following ones use it."""
    fresh = _written(archive)
    found = [archive.options(), archive.options()]

    assert [_used(archive)] * 2 == found
    assert (False, b"good") == (fresh.exists(), archive.file.read_bytes())


@pytest.mark.parametrize("damage", [b"", b"goof", b"good and more"])
def test_a_damaged_archive_is_written_again(archive, damage):
    """An archive that is not what was accepted is not used."""
    _written(archive)
    archive.options()
    archive.file.chmod(0o644)
    archive.file.write_bytes(damage)

    assert archive.options()[-1].startswith("-XX:ArchiveClassesAtExit=")


def test_an_archive_that_java_refuses_is_never_used(archive, monkeypatch):
    """What a JVM that was killed left behind is not taken over, and is removed when it is old."""
    fresh = _written(archive, b"half of it")
    again = archive.options()
    kept = fresh.exists()
    monkeypatch.setattr(class_archive, "_OLD", -1)
    archive.options()

    assert again[-1].startswith("-XX:ArchiveClassesAtExit=")
    assert (True, False) == (kept, fresh.exists())


def test_another_class_path_has_another_archive(archive):
    """An archive of other classes is not used."""
    _written(archive)
    archive.options()
    jar = archive.spark_home / "jars" / "spark.jar"
    jar.write_bytes(b"other classes")
    other = ClassArchive(archive.folder, archive.java, archive.spark_home)

    assert archive.file != other.file
    assert other.options()[-1].startswith("-XX:ArchiveClassesAtExit=")


def test_a_java_that_writes_no_archive_is_asked_a_few_times(archive):
    """After three runs without an archive Java is not asked any more."""
    asked = [bool(archive.options()) for _ in range(5)]

    assert [True, True, True, False, False] == asked


def test_without_a_cache_nothing_is_asked(archive, tmp_path):
    """A folder that cannot be written to, or that Java cannot be told, costs nothing but time."""
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "file" / "cache", tmp_path / "a folder"]

    assert [[], []] == [ClassArchive(f, archive.java, archive.spark_home).options() for f in folders]


def test_archives_that_nobody_uses_are_removed(archive):
    """An archive of an earlier Java is removed when a new one is taken over, after a month."""
    archive.folder.mkdir()
    old, seal = archive.folder / "spark-0.jsa", archive.folder / "spark-0.accepted"
    for file in (old, seal):
        file.write_text("")
        os.utime(file, (0, 0))
    _written(archive)
    archive.options()

    assert (False, False) == (old.exists(), seal.exists())
