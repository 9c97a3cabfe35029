"""
The log of runs: one line for each step and batch, with the run, the target and counts.

Nothing is logged unless the command line or a service configures it (`configure`). Lines have no keys of
objects and no settings, so that a log can be shared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import structlog

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.engine.run_folder import OnStep

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str = "warning", *, as_json: bool = False, file: TextIO | None = None) -> None:
    """Write lines of a level and above to a file, by default to standard error."""
    renderer: Any = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(ensure_ascii=False) if as_json else renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file or sys.stderr),
        cache_logger_on_first_use=False,
    )


@contextmanager
def logged_to(level: str, *, as_json: bool, path: Path | None) -> Iterator[None]:
    """Log to a file, or to standard error, while the block runs."""
    if path is None:
        configure(level, as_json=as_json)
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a", encoding="utf-8", buffering=1)
    except OSError as broken:
        raise EnvironmentProblem(
            f"the log {path} cannot be written: {broken.strerror}", fix="correct log.file in ebbtide.toml"
        ) from None
    with opened as file:
        configure(level, as_json=as_json, file=file)
        try:
            yield
        finally:
            configure()


def write(event: str, **values: Any) -> None:
    """Write a line with the bound values."""
    if not structlog.is_configured():
        configure()
    structlog.get_logger().info(event, **values)


@contextmanager
def bound(**values: Any) -> Iterator[None]:
    """Add these values to all lines of the block."""
    with structlog.contextvars.bound_contextvars(**values):
        yield


def steps(on_step: OnStep) -> OnStep:
    """Return a callback that writes a line for each step and then calls another one."""

    def step(name: str) -> None:
        write(name)
        on_step(name)

    return step
