"""`ebb lake`: repositories of the embedded catalog, their branches, tags, commits and objects."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, say_next, table
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.format import count, human_bytes, plural, printable
from ebbtide.core.instant import format_second
from ebbtide.targets.lake.kind import lake_context, shared_catalog

if TYPE_CHECKING:
    from ebbtide.targets.repository.model import DeletedRepository

app = typer.Typer(add_completion=False)

Repo = Annotated[str, typer.Argument(help="The repository.")]
Branch = Annotated[str, typer.Option("--branch", "-b", help="The branch.")]
Ref = Annotated[str, typer.Argument(help="A branch, tag, commit id, or one of these with ~N.")]


@app.command()
def create(
    context: typer.Context,
    repo: Repo,
    namespace: Annotated[str, typer.Argument(help="A folder or s3://bucket/prefix for its objects.")],
    default_branch: Annotated[str, typer.Option(help="The first branch.")] = "main",
    as_json: AsJson = False,
) -> None:
    """Create a repository."""
    state: State = context.obj
    made = shared_catalog(state).create_repository(repo, namespace, default_branch)
    if as_json:
        print_json(made)
    else:
        say(f"created {safe(made.name)} at {safe(made.namespace)}")


@app.command("list")
def list_repositories(
    context: typer.Context,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Those that were deleted, with objects still to collect.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List repositories."""
    state: State = context.obj
    if deleted:
        _show_deleted(shared_catalog(state).deleted_repositories(), as_json=as_json)
        return
    found = shared_catalog(state).repositories()
    if as_json:
        print_json(found)
    else:
        rows = [(r.name, r.namespace, r.default_branch, format_second(r.created)) for r in found]
        table("Repositories", ("name", "namespace", "default branch", "created"), rows)


def _show_deleted(found: Sequence[DeletedRepository], *, as_json: bool) -> None:
    """List the repositories that were deleted and are not collected yet."""
    if as_json:
        print_json(found)
    else:
        rows = [(gone.name, gone.namespace, format_second(gone.deleted)) for gone in found]
        table("Deleted repositories", ("name", "namespace", "deleted"), rows)


@app.command()
def commit(
    context: typer.Context,
    repo: Repo,
    message: Annotated[str, typer.Option("--message", "-m", help="What changed.")],
    branch: Branch = "main",
    as_json: AsJson = False,
) -> None:
    """Commit the staged changes of a branch."""
    state: State = context.obj
    made = shared_catalog(state).commit(repo, branch, message)
    if as_json:
        print_json(made)
    else:
        say(f"{made.id[:16]}  {safe(message)}")


@app.command()
def branch(
    context: typer.Context,
    repo: Repo,
    name: Annotated[str | None, typer.Argument(help="A new branch; without one, list them.")] = None,
    source: Annotated[str, typer.Option("--from", help="Where the new branch starts.")] = "main",
    delete: Annotated[bool, typer.Option("--delete", help="Delete the branch.")] = False,
    as_json: AsJson = False,
) -> None:
    """List, create or delete branches."""
    state: State = context.obj
    if name and delete:
        shared_catalog(state).delete_branch(repo, name)
    elif name:
        shared_catalog(state).create_branch(repo, name, source)
    _show_refs("Branches", shared_catalog(state).branches(repo), as_json=as_json)


@app.command()
def tag(
    context: typer.Context,
    repo: Repo,
    name: Annotated[str | None, typer.Argument(help="A new tag; without one, list them.")] = None,
    source: Annotated[str, typer.Option("--from", help="What to tag.")] = "main",
    delete: Annotated[bool, typer.Option("--delete", help="Delete the tag.")] = False,
    as_json: AsJson = False,
) -> None:
    """List, create or delete tags."""
    state: State = context.obj
    if name and delete:
        shared_catalog(state).delete_tag(repo, name)
    elif name:
        shared_catalog(state).create_tag(repo, name, source)
    _show_refs("Tags", shared_catalog(state).tags(repo), as_json=as_json)


def _show_refs(title: str, refs: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json(refs)
    else:
        table(title, ("name", "commit"), [(name, head[:16]) for name, head in sorted(refs.items())])


@app.command()
def merge(
    context: typer.Context,
    repo: Repo,
    source: Ref,
    into: Annotated[str, typer.Option("--into", help="The branch to merge into.")] = "main",
    message: Annotated[str | None, typer.Option("--message", "-m", help="The commit's message.")] = None,
    as_json: AsJson = False,
) -> None:
    """Merge a ref into a branch."""
    state: State = context.obj
    made = shared_catalog(state).merge(repo, source, into, message or f"Merge {source} into {into}")
    if as_json:
        print_json(made)
    else:
        say(f"{made.id[:16]}  {safe(made.message)}")


@app.command()
def rm(
    context: typer.Context,
    repo: Repo,
    keys: Annotated[list[str], typer.Argument(help="What to delete from the branch.")],
    branch: Branch = "main",
    as_json: AsJson = False,
) -> None:
    """Delete keys from a branch (staged until committed); commits that have them keep them."""
    state: State = context.obj
    deleted = shared_catalog(state).delete_many(repo, branch, keys)
    if as_json:
        print_json({"deleted": deleted, "branch": branch})
    else:
        say(f"deleted {plural(deleted, 'key')} from {safe(branch)}")
        say_commit(state, repo, branch)


@app.command()
def reset(
    context: typer.Context,
    repo: Repo,
    branch: Branch = "main",
    prefix: Annotated[str | None, typer.Option(help="Only staged changes under this prefix.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Also move the branch's head to this ref.")] = None,
    as_json: AsJson = False,
) -> None:
    """Drop the staged changes of a branch; their objects become garbage (ebb plan --uncommitted)."""
    state: State = context.obj
    dropped = shared_catalog(state).reset(repo, branch, prefix, to=to)
    if as_json:
        print_json({"dropped": dropped, "branch": branch})
    else:
        say(f"dropped {count(dropped)} staged entries of {safe(branch)}")


@app.command()
def log(
    context: typer.Context,
    repo: Repo,
    ref: Ref = "main",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the commits of a ref, newest first."""
    state: State = context.obj
    found = list(islice(shared_catalog(state).log(repo, ref), limit))
    if as_json:
        print_json(found)
    else:
        rows = [(c.id[:16], format_second(c.created), c.message) for c in found]
        table("Commits", ("id", "created", "message"), rows)


@app.command()
def ls(
    context: typer.Context,
    repo: Repo,
    prefix: Annotated[str, typer.Argument(help="Only keys that start with this.")] = "",
    ref: Annotated[str, typer.Option("--ref", help="A branch, tag or commit.")] = "main",
    as_json: AsJson = False,
) -> None:
    """List the objects of a ref, and mark those that are gone or in the recycle bin; streams."""
    from ebbtide.targets.lake.removed_objects import ObjectState, with_states  # noqa: PLC0415 (brings Spark along)

    state: State = context.obj
    entries = with_states(lake_context(state), repo, shared_catalog(state).ls(repo, ref, prefix))
    if as_json:
        print_json([asdict(entry) | {"state": where} for entry, where in entries])
        return
    words = {ObjectState.GONE: "  (gone)", ObjectState.RECYCLED: "  (in the recycle bin)"}
    for entry, where in entries:
        mark = words.get(where, "")
        say(f"{format_second(entry.created)}  {human_bytes(entry.size):>10}  {safe(entry.key)}{mark}")


@app.command()
def cat(
    context: typer.Context,
    repo: Repo,
    key: Annotated[str, typer.Argument(help="The object.")],
    ref: Annotated[str, typer.Option("--ref", help="A branch, tag or commit.")] = "main",
    as_json: AsJson = False,
) -> None:
    """Print an object's bytes; one that a run deleted says when, by which rule and run."""
    state: State = context.obj
    content = shared_catalog(state).read(repo, ref, key)
    if as_json:
        entry = asdict(shared_catalog(state).stat(repo, ref, key))
        print_json(entry | {"content_base64": b64encode(content).decode("ascii")})
    else:
        typer.echo(content, nl=False)


_NAMED = 3


@dataclass
class _Found:
    """The files to upload by their keys, and the symbolic links that were left out."""

    files: list[tuple[str, Path]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@app.command()
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
    uploaded = shared_catalog(state).upload_many(repo, branch, _items(found))
    if found.skipped:
        print(f"warning: {printable(_skipped(found.skipped))}", file=sys.stderr)
    if as_json:
        print_json({"uploaded": uploaded, "branch": branch, "skipped_links": found.skipped})
        return
    say(f"uploaded {plural(uploaded, 'object')} to {safe(branch)}")
    say_commit(state, repo, branch)


def say_commit(state: State, repo: str, branch: str) -> None:
    """Print the command that commits staged changes."""
    elsewhere = [] if branch == "main" else ["--branch", branch]
    say_next(state.command("lake", "commit", repo, *elsewhere, "-m", "what changed"))


def _find(source: Path, key: str, *, follow: bool) -> _Found:
    """Find all files before the first is uploaded, so that a refusal leaves nothing behind."""
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
    """Collect the files below a folder in the order of their names; `above` are its parent folders."""
    here = _identity(folder)
    if here in above:
        raise BadInput(
            f"{folder} leads back to one of its parent folders",
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
