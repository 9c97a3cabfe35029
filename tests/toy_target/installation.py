"""Makes the toy target available as if it had been installed, without a package installer."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

from ebbtide.cli import explain, plan, recycle
from ebbtide.targets import kinds

PROJECT = Path(__file__).parent / "ebbtide-files"
GROUP = kinds.GROUP
WITHOUT_TOY = (explain, plan, recycle)
"""Commands whose help names all kinds; they are imported first, so that other tests do not see the toy."""


def install(folder: Path) -> list[str]:
    """Write the metadata that an installer would write into a folder; return the paths that Python needs."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    return [str(PROJECT), str(folder)]


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Install the toy target into this process for the block; Spark's workers get its code by value."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "path", [*sys.path, *install(folder)])
        _forget_kinds()
        code = ship_code()
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(code)
    _forget_kinds()


def ship_code() -> ModuleType:
    """Let Spark's workers, which do not find the installed toy target, get its code by value."""
    code = importlib.import_module("ebbtide_files.target")
    cloudpickle.register_pickle_by_value(code)
    return code


def _forget_kinds() -> None:
    for cached in (kinds._entry_points, kinds.kind_of_scheme, kinds.all_kinds):
        cached.cache_clear()
