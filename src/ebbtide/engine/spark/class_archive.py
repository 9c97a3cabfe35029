"""
The class archive: Spark's classes as Java has loaded and verified them before, so that it starts faster.

Java writes an archive (AppCDS) when it exits, if it is asked to. The first small run asks for one: the JVM
writes it after the command has ended, which takes some seconds of one core. The next run lets Java verify it,
once, and gives it its final name; from then on it is used. An archive belongs to one Java, one PySpark and
one class path. Java ignores an archive that does not fit; one that is damaged is written again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FRESH = ".fresh"
_QUIET = "-Xlog:cds=error"
"""Java warns of each class that it leaves out."""
_MOST_TRIES = 3
"""How often a Java is asked for an archive before it is taken for one that cannot write any."""
_SECONDS = 60
_OLD = 600
"""After this many seconds a fresh file that is not good is a rest: the JVM was killed while it wrote."""

_UNUSED = 30 * 86_400
"""An archive that no run has used for this many seconds is removed: Java or PySpark has changed."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one Java and one PySpark, in a folder of caches."""

    folder: Path
    java: str
    """The `java` program that runs Spark."""
    spark_home: Path

    def options(self) -> list[str]:
        """Return the options by which Java uses the archive, or writes it if there is none."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self._options()
        except OSError:
            # Without a cache Spark starts as fast as ever.
            return []

    def _options(self) -> list[str]:
        if " " in str(self.folder):
            # Spark splits the options of Java at spaces.
            return []
        if not self._is_whole():
            self._accept()
        if self._is_whole():
            os.utime(self._seal)
            return [_QUIET, "-Xshare:auto", f"-XX:SharedArchiveFile={self.file}"]
        if not self._try_again():
            return []
        return [_QUIET, f"-XX:ArchiveClassesAtExit={self.file}.{os.getpid()}{_FRESH}"]

    @cached_property
    def file(self) -> Path:
        """The archive; its name changes with Java, PySpark and the class path."""
        digest = hashlib.sha256()
        # In the order of the folder, in which Java puts the class path together.
        for file in (Path(self.java).resolve(), *(self.spark_home / "jars").iterdir()):
            found = file.stat()
            digest.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
        return self.folder / f"spark-{digest.hexdigest()[:24]}.jsa"

    @property
    def _seal(self) -> Path:
        return self.file.with_suffix(".accepted")

    @property
    def _tries(self) -> Path:
        return self.file.with_suffix(".tries")

    def _is_whole(self) -> bool:
        """Return True if the archive has the bytes that were accepted."""
        try:
            return self._seal.read_text() == _checksum(self.file)
        except OSError:
            return False

    def _accept(self) -> None:
        """Take over an archive that an earlier run has written, if it is good; remove those that are not."""
        for fresh in sorted(self.folder.glob(f"{self.file.name}.*{_FRESH}")):
            if self._is_good(fresh):
                # If this is interrupted, the seal is missing: the archive is not used, but written again.
                self._seal.unlink(missing_ok=True)
                checksum = _checksum(fresh)
                fresh.replace(self.file)
                sealed = self._seal.with_name(f"{self._seal.name}.{os.getpid()}")
                sealed.write_text(checksum)
                sealed.replace(self._seal)
                self._tries.unlink(missing_ok=True)
                self._remove_others()
                return
            if time.time() - fresh.stat().st_mtime > _OLD:
                fresh.unlink(missing_ok=True)

    def _remove_others(self) -> None:
        """Remove what other runs have written meanwhile, and archives that no run has used for long."""
        for fresh in self.folder.glob(f"{self.file.name}.*{_FRESH}"):
            fresh.unlink(missing_ok=True)
        for seal in self.folder.glob("spark-*.accepted"):
            if time.time() - seal.stat().st_mtime > _UNUSED:
                seal.with_suffix(".jsa").unlink(missing_ok=True)
                seal.unlink(missing_ok=True)

    def _is_good(self, fresh: Path) -> bool:
        """Let Java verify all checksums of an archive, and whether it fits the class path."""
        used = ["-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={fresh}"]
        try:
            _run(self.java, *used, "-cp", self._class_path(), "-version")
        except (OSError, subprocess.SubprocessError, ValueError):
            return False
        return True

    def _class_path(self) -> str:
        """Ask Spark's launcher for the class path of the JVM that it starts."""
        jars = f"{self.spark_home / 'jars'}/*"
        launcher = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "--version"]
        # The version of Scala matters in a build of Spark only, but the launcher asks for it.
        home = {"SPARK_HOME": str(self.spark_home), "SPARK_SCALA_VERSION": "2.13"}
        command = _run(self.java, "-cp", jars, *launcher, **home).split("\0")
        return command[command.index("-cp") + 1]

    def _try_again(self) -> bool:
        """Count how often an archive was asked for; return False if this Java writes none."""
        try:
            tries = int(self._tries.read_text())
        except (OSError, ValueError):
            tries = 0
        if tries >= _MOST_TRIES:
            return False
        self._tries.write_text(str(tries + 1))
        return True


def _run(*command: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, check=True, env=environment
    )
    return done.stdout


def _checksum(file: Path) -> str:
    found = 0
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            found = zlib.crc32(part, found)
        return f"{content.tell()} {found:08x}"
