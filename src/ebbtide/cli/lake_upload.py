"""`ebb lake upload`: files and folders; symbolic links only if asked for, since they may lead anywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, say_next
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.format import plural, printable

_NAMED = 3


@dataclass
class _Found:
    """The files to upload by their keys, and the symbolic links that were left out."""

    files: list[tuple[str, Path]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def upload(
    context: typer.Context,
    repo: Annotated[str, typer.Argument(help="The repository.")],
    source: Annotated[Path, typer.Argument(help="A file, or a folder to upload whole.")],
    key: Annotated[str, typer.Argument(help="The key; for a folder, what goes before each key.")] = "",
    branch: Annotated[str, typer.Option("--branch", "-b", help="The branch.")] = "main",
    follow_links: Annotated[
        bool,
        typer.Option(
            "--follow-links", help="Upload what symbolic links point to; they are skipped otherwise."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a file or a folder to a branch (staged until committed)."""
    state: State = context.obj
    found = _find(source, key, follow=follow_links)
    uploaded = state.catalog.upload_many(repo, branch, _items(found))
    if found.skipped:
        print(f"warning: {printable(_skipped(found.skipped))}", file=sys.stderr)
    if as_json:
        print_json({"uploaded": uploaded, "branch": branch, "skipped_links": found.skipped})
        return
    say(f"uploaded {plural(uploaded, 'object')} to {safe(branch)}")
    say_commit(state, repo, branch)


def say_commit(state: State, repo: str, branch: str) -> None:
    """Say how to go on after a change to what is staged."""
    elsewhere = [] if branch == "main" else ["--branch", branch]
    say_next(state.command("lake", "commit", repo, *elsewhere, "-m", "what changed"))


def _find(source: Path, key: str, *, follow: bool) -> _Found:
    """Find all files before the first is uploaded, so that what is refused leaves nothing behind."""
    found = _Found()
    if not os.path.lexists(source):
        raise BadInput(f"{source} is not there", fix="check the path")
    if source.is_symlink() and not follow:
        raise BadInput(
            f"{source} is a symbolic link",
            why="it may lead outside the folder that is meant",
            fix="name what it points to, or add --follow-links",
        )
    if source.is_dir():
        _walk(source, key, found, (), follow=follow)
    else:
        _take(source, key or source.name, found)
    return found


def _walk(folder: Path, key: str, found: _Found, above: tuple[tuple[int, int], ...], *, follow: bool) -> None:
    """Collect the files below a folder in the order of their names; `above` are the folders it lies in."""
    here = _identity(folder)
    if here in above:
        raise BadInput(
            f"{folder} leads back to a folder that it lies in",
            why="following this symbolic link would never end",
            fix="remove the link, or upload without --follow-links",
        )
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as broken:
        raise _unreadable(broken) from None
    for entry in entries:
        path = Path(entry.path)
        if entry.is_symlink() and not follow:
            found.skipped.append(key + entry.name)
        elif entry.is_dir():
            _walk(path, f"{key}{entry.name}/", found, (*above, here), follow=follow)
        elif entry.is_file() or entry.is_symlink():
            _take(path, key + entry.name, found)


def _take(path: Path, key: str, found: _Found) -> None:
    """Add one file; a link that points to nothing is an error, and special files are passed over."""
    if not path.exists():
        raise BadInput(f"{path} points to nothing", fix="remove the link, or upload without --follow-links")
    if path.is_file():
        found.files.append((key, path))


def _identity(folder: Path) -> tuple[int, int]:
    try:
        found = folder.stat()
    except OSError as broken:
        raise _unreadable(broken) from None
    return found.st_dev, found.st_ino


def _items(found: _Found) -> Iterator[tuple[str, bytes]]:
    for key, path in found.files:
        try:
            yield key, path.read_bytes()
        except OSError as broken:
            raise _unreadable(broken) from None


def _unreadable(broken: OSError) -> BadInput:
    return BadInput(f"{broken.filename} cannot be read: {broken.strerror}", fix="check its permissions")


def _skipped(links: list[str]) -> str:
    more = f" and {len(links) - _NAMED} more" if len(links) > _NAMED else ""
    names = ", ".join(links[:_NAMED]) + more
    return (
        f"skipped {plural(len(links), 'symbolic link')}: {names}; --follow-links uploads what they point to"
    )
