"""`ebb lake delete`, `adopt`, `recover` and `forget`: which repository owns a namespace."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, confirm, print_json, safe, say, say_next
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.format import plural
from ebbtide.state.locks import target_lock
from ebbtide.state.users import current_user
from ebbtide.targets.lake.kind import shared_catalog
from ebbtide.targets.lake.repository import forget as forget_lost
from ebbtide.targets.lake.repository import recover as recover_lost

app = typer.Typer(add_completion=False)

Repo = Annotated[str, typer.Argument(help="The repository.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def delete(
    context: typer.Context,
    repo: Repo,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a repository: its branches, tags, commits and rules. Its objects wait for a run."""
    state: State = context.obj
    found = shared_catalog(state).repository(repo)
    confirm(
        f"Forget all branches, tags and commits of {found.name} for good?",
        what=f"the deletion of {found.name} has to be confirmed",
        why="its branches, tags and commits cannot be brought back",
        fix="delete it with --yes",
        yes=yes,
    )
    gone = shared_catalog(state).delete_repository(repo)
    if as_json:
        print_json(gone)
        return
    say(f"deleted {safe(gone.name)}; its objects are still at {safe(gone.namespace)}")
    say_next(state.command("plan", f"lake:{gone.name}", "--deleted"))


@app.command()
def adopt(
    context: typer.Context,
    repo: Repo,
    deleted: Annotated[bool, typer.Option("--deleted", help="The deleted repository of that name.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a repository the owner of its namespace, whichever owner the marker names now."""
    catalog = shared_catalog(context.obj)
    found = catalog.deleted_repository(repo) if deleted else catalog.repository(repo)
    before = catalog.marked_owner(found)
    owner = before.label if before else "an unknown owner: the marker is missing or cannot be read"
    confirm(
        f"{found.namespace} belongs to {owner}. Let {repo} own it, and delete objects in it?",
        why="another owner of the namespace would lose data",
        yes=yes,
    )
    if deleted:
        catalog.adopt_deleted(repo)
    else:
        catalog.adopt(repo)
    if as_json:
        print_json({"repository": repo, "namespace": found.namespace, "before": before})
    else:
        say(f"{safe(repo)} owns {safe(found.namespace)}")


@app.command()
def recover(
    context: typer.Context,
    repo: Repo,
    branch: Annotated[
        str | None, typer.Option(help="The new branch for them; without it recovered-<time>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import the commits that the namespace has and the catalog has lost, and accept the rest as lost."""
    state: State = context.obj
    with target_lock(state.root, shared_catalog(state).repository(repo).uid, f"ebb lake recover {repo}"):
        shared_catalog(state).check_marker(repo)
        made = recover_lost(shared_catalog(state), repo, current_user(), branch)
    if as_json:
        print_json(made)
    elif made.branch is None:
        say(f"{safe(repo)} has lost no commits that its namespace still has; plans go on from here")
    else:
        say(f"recovered {plural(len(made.commits), 'commit')} on branch {safe(made.branch)}")
        say_next(state.command("lake", "log", repo, made.branch))


@app.command()
def forget(
    context: typer.Context,
    repo: Repo,
    metaranges: Annotated[
        list[str] | None, typer.Argument(help="Unknown metaranges, or the beginnings of their ids.")
    ] = None,
    all_unknown: Annotated[bool, typer.Option("--all-unknown", help="All that are unknown.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="List them and change nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Declare commits that the catalog has lost garbage; sweeps may then delete their objects."""
    state: State = context.obj
    if only_list:
        _show(shared_catalog(state).unknown_metaranges(repo), as_json=as_json)
        return
    if all_unknown == bool(metaranges):
        raise BadInput(
            "forget needs metaranges or --all-unknown"
            if not metaranges
            else "metaranges and --all-unknown are given",
            fix=f"name metaranges that 'ebb lake forget {repo} --list' shows, or say --all-unknown",
        )
    found = shared_catalog(state).repository(repo)
    confirm(
        "Their objects may be deleted by the next sweep. Declare them garbage?",
        why="objects that only these commits need are deleted by the next sweep",
        yes=yes,
    )
    with target_lock(state.root, found.uid, f"ebb lake forget {repo}"):
        done = forget_lost(shared_catalog(state), repo, metaranges or None, current_user())
    if as_json:
        print_json({"forgotten": done})
    else:
        say(f"{plural(len(done), 'metarange')} of {safe(repo)} declared garbage")


def _show(unknown: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        print_json({"unknown": unknown})
        return
    for one in unknown:
        say(one)
    if not unknown:
        say("no metarange is unknown to the catalog")
