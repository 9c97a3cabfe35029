"""
A session for little work: it starts soon, where a session for much work runs fast once it has started.

Nothing here changes a result. A session that was started for little work and meets much of it gets the
partitions and the adaptive execution of an ordinary one (`widen`); only Java's quick compiler stays.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from ebbtide.engine.spark.class_archive import ClassArchive

SMALL = 50_000
"""Up to this many items the start of Spark takes longer than the work."""
_FOR_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    # Looking at each shuffle before the next step is planned makes a job of each.
    "spark.sql.adaptive.enabled": "false",
    # To compile a query takes longer than to interpret it for a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_FOR_LARGE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
_WIDER = "spark.ebbtide.wider"
"""The setting of a session that holds what it needs for much work."""


def is_small(items: int | None) -> bool:
    """Return True if a number of items is known and small."""
    return items is not None and items <= SMALL


def settings_for_small(
    given: Mapping[str, str], ordinary: Mapping[str, str], *, fixed: bool
) -> dict[str, str]:
    """Return the settings for little work without those that a user gave; partitions may be `fixed` too."""
    tuned = {
        name: value
        for name, value in _FOR_SMALL.items()
        if name not in given and not (fixed and name in ordinary)
    }
    wider = {name: {**_FOR_LARGE, **ordinary}[name] for name in tuned}
    return {**tuned, _WIDER: json.dumps(wider)}


def widen(spark: SparkSession, rows: int) -> None:
    """Apply the ordinary settings to a session for little work that meets a table of many rows."""
    if is_small(rows):
        return
    for name, value in json.loads(spark.conf.get(_WIDER, "{}") or "{}").items():
        spark.conf.set(name, value)


def java_options_for_small(given: str, java_home: str | None) -> list[str]:
    """Return the options of Java for little work: the quick compiler, and classes that were loaded before."""
    own = ["-XX:+UseSerialGC"]
    if "-XX:TieredStopAtLevel" not in given:
        own.append("-XX:TieredStopAtLevel=1")
    if not any(name in given for name in ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")):
        own += _archive(java_home)
    return own


def _archive(java_home: str | None) -> Sequence[str]:
    java = str(Path(java_home) / "bin" / "java") if java_home else shutil.which("java")
    folder = cache_folder()
    if java is None or folder is None:
        return []
    return ClassArchive(folder, java, Path(_find_spark_home())).options()


def cache_folder() -> Path | None:
    """Return the folder of this user's caches; None if the user has no home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given.startswith("/"):
        return Path(given) / "ebbtide"
    try:
        return Path.home() / ".cache" / "ebbtide"
    except RuntimeError:
        return None
