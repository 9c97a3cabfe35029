"""`ebb plan`: decide what may be deleted, and look at what was decided."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ebbtide.bucket.restoring import plan_bucket_bin
from ebbtide.cli.bucket_plan import BucketChoice, Inventory, RulesFile, RulesFrom, make_bucket_plan
from ebbtide.cli.console import AsJson, Master, Now, out, progress, safe, say, table
from ebbtide.cli.registry_plan import Bin, RegistryChoice, RunningImages, make_registry_plan
from ebbtide.cli.state import State, is_bucket, is_registry, lake_target
from ebbtide.engine.layout import run_folder
from ebbtide.engine.reading import Row, sample_decisions, stream_decisions
from ebbtide.errors import BadInput
from ebbtide.lake.emptying import plan_lake_bin
from ebbtide.lake.job import plan_lake
from ebbtide.lake.retired.job import plan_retired
from ebbtide.lake.rulebook import stored_rulebook
from ebbtide.plan.decision import DELETED_REPOSITORY, EMPTY_BIN, MOVED, Decision
from ebbtide.plan.manifest import Manifest, Tally
from ebbtide.report.format import count, human_bytes, percent, plural
from ebbtide.report.words import Words, deeds, words_of
from ebbtide.rules.instant import format_instant

MOST_LINES = 12
_ALL = "versions, markers and uploads"


class _TargetOrShow(TyperGroup):
    """Lets `ebb plan lake:REPO` and `ebb plan show PLAN` stand side by side."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read anything that is no subcommand as the target of a new plan."""
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["make", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_TargetOrShow, no_args_is_help=True, help="Decide what may be deleted.")


@app.command("make")
def make(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="lake:REPO, s3://BUCKET or oci://HOST[/REPO]")],
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Find what is stored and nothing references.")
    ] = False,
    retention: Annotated[
        bool, typer.Option("--retention", help="Find what only commits need that are kept no longer.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Lifecycle, uncommitted and retention in one plan.")
    ] = False,
    branch: Annotated[
        str | None, typer.Option("--branch", "-b", help="Sweep this branch's path alone (--uncommitted).")
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="List everything, not only what is new (--uncommitted).")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Collect all that a deleted repository left in its namespace.")
    ] = False,
    now: Now = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read everything again, not only what is new since the last plan.")
    ] = False,
    rules_from: RulesFrom = None,
    rules: RulesFile = None,
    inventory: Inventory = None,
    running: RunningImages = None,
    bin_alone: Bin = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """
    Make a plan for a target (ebb plan lake:REPO, s3://BUCKET, oci://HOST/REPO). Nothing is deleted.

    Without --uncommitted, --retention, --all or --deleted the lifecycle policy decides. A plan for a deleted
    repository empties its namespace, so to apply it always needs --override-breaker.
    """
    state: State = context.obj
    state.now_override = now or state.now_override
    choice, images = BucketChoice(rules_from, rules, inventory), RegistryChoice(running, bin_alone)
    if is_bucket(target) or is_registry(target):
        _check_no_lake(uncommitted or retention or every or branch is not None or clean or full or deleted)
    if not choice.is_empty and not is_bucket(target):
        raise BadInput("--rules, --rules-from and --inventory are about buckets", fix="leave them out")
    if running is not None and not is_registry(target):
        raise BadInput("--running is about registries", fix="leave it out")
    if is_bucket(target) and bin_alone:
        _show_made(make_bin_plan(state, target, None, master), as_json=as_json)
        return
    if is_bucket(target):
        _show_made(make_bucket_plan(state, target, choice, master), as_json=as_json)
        return
    if is_registry(target):
        _show_made(make_registry_plan(state, target, images, master), as_json=as_json)
        return
    name = lake_target(target)
    if bin_alone:
        _check_alone(
            "--bin", uncommitted or retention or every or branch is not None or clean or full or deleted
        )
        _show_made(make_bin_plan(state, target, None, master), as_json=as_json)
        return
    if deleted:
        _check_alone("--deleted", uncommitted or retention or every or branch is not None or clean or full)
        _show_made(_plan_deleted(state, name, master), as_json=as_json)
        return
    state.catalog.repository(name)
    sweeping = uncommitted or every
    _check_sweep_options(branch=branch, clean=clean, sweeping=sweeping, every=every)
    rulebook = stored_rulebook(
        state.catalog,
        name,
        lifecycle=every or not (uncommitted or retention),
        uncommitted=state.sweep_rules(branch=branch, clean=clean) if sweeping else None,
        retention=retention or every,
    )
    with state.spark(master) as spark, progress() as report:
        manifest = plan_lake(
            spark,
            state.shop,
            name,
            now=state.clock(),
            options=state.freeze_options,
            rulebook=rulebook,
            full=full,
            on_progress=report,
        )
    _show_made(manifest, as_json=as_json)


def _plan_deleted(state: State, name: str, master: str | None) -> Manifest:
    gone = state.catalog.retired_repository(name)
    with state.spark(master) as spark, progress() as report:
        return plan_retired(
            spark,
            state.shop,
            gone,
            now=state.clock(),
            options=state.freeze_options,
            grace=state.sweep_rules(branch=None, clean=False).grace,
            on_progress=report,
        )


def _show_made(manifest: Manifest, *, as_json: bool) -> None:
    if as_json:
        print(manifest.to_json())
        return
    show_summary(manifest)
    override = " --override-breaker" if manifest.collector == DELETED_REPOSITORY and manifest.breaker else ""
    say(f"next: ebb plan show {manifest.run_id} --all | ebb apply {manifest.run_id}{override}")


def _check_no_lake(asked: bool) -> None:
    if asked:
        raise BadInput(
            "of a bucket its lifecycle rules decide, of a registry its policies, and nothing else",
            fix="leave out --uncommitted, --retention, --all, --branch, --clean, --full and --deleted",
        )


def make_bin_plan(state: State, target: str, older_than: int | None, master: str | None) -> Manifest:
    """Plan to delete for good what the bin of a lake or a bucket has kept for its time."""
    with state.spark(master) as spark, progress() as report:
        if is_bucket(target):
            return plan_bucket_bin(
                spark,
                state.bucket_shop(target),
                options=state.freeze_options,
                older_than=older_than,
                on_progress=report,
            )
        return plan_lake_bin(
            spark,
            state.shop,
            lake_target(target),
            options=state.freeze_options,
            older_than=older_than,
            on_progress=report,
        )


def _check_alone(option: str, more: bool) -> None:
    if more:
        raise BadInput(
            f"{option} goes with no other choice of what is looked for",
            why="of a deleted repository, and of a recycle bin, everything is looked at, and read anew",
            fix="leave out --uncommitted, --retention, --all, --branch, --clean and --full",
        )


def _check_sweep_options(*, branch: str | None, clean: bool, sweeping: bool, every: bool) -> None:
    if (branch is not None or clean) and not sweeping:
        raise BadInput(
            "--branch and --clean say how uncommitted garbage is looked for, and it is not",
            fix="add --uncommitted",
        )
    if branch is not None and every:
        raise BadInput(
            "--all is about the whole repository, --branch about one",
            fix="leave one of them out, or use --uncommitted --branch",
        )


@app.command("show")
def show(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help="A run's number, or 'latest'.")],
    every: Annotated[bool, typer.Option("--all", help="Stream every row.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Show what is held, not what is due.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a plan: counts and bytes by rule, prefix and branch, and a sample or all of its rows."""
    state: State = context.obj
    folder = run_folder(state.root, state.run_id(plan))
    manifest = folder.read_manifest()
    wanted = Decision.HELD if held else Decision.DUE
    if every:
        for row in stream_decisions(folder, wanted):
            _print_row(row, as_json=as_json)
        return
    if as_json:
        print(manifest.to_json())
        return
    show_summary(manifest)
    rows = sample_decisions(folder, wanted, 10)
    for row in rows:
        _print_row(row, as_json=False)
    if rows:
        say(f"[dim]the first {plural(len(rows), 'row')}; --all streams every one[/dim]")


def show_summary(manifest: Manifest) -> None:
    """Print what a plan amounts to."""
    summary = manifest.summary
    say(
        f"[bold]Plan {manifest.run_id}[/bold] for {safe(manifest.target)} at {format_instant(manifest.now)}"
        f"  [dim]{manifest.plan_hash[:16]}[/dim]"
    )
    due, held, words = summary.due, summary.held, words_of(manifest)
    what = deeds(summary.by_collector) if _has_actions(manifest) else ""
    days = f" for {plural(manifest.recycling.days, 'day')}" if manifest.recycling else ""
    days = f" (what expires is set aside{days})" if days and what else days
    say(
        f"  would {safe(what) or f'{words.change} {words.items(due.objects)}'}{days},"
        f" [bold]{human_bytes(due.bytes)}[/bold]"
        f" ({percent(due.objects, summary.known_objects)} of {count(summary.known_objects)} known)"
    )
    for read in summary_of_reading(manifest):
        say(f"  [dim]{safe(read)}[/dim]")
    say(f"  holds {words.items(held.objects)}, {human_bytes(held.bytes)}, that rules touch")
    for warning in manifest.warnings:
        say(f"  [yellow]warning:[/yellow] {safe(warning)}")
    for reason in manifest.breaker:
        say(f"  [red]breaker:[/red] {safe(reason)}; to apply it needs --override-breaker")
    out().print()
    named = {
        "By rule": summary.by_rule,
        "By prefix": summary.by_prefix,
        "By branch": summary.by_branch,
        "By age": summary.by_age,
        "Held because": summary.held_by_reason,
    }
    if _has_actions(manifest):
        named = {"By action": summary.by_collector, **named}
    elif len(summary.by_collector) > 1:
        named = {"By collector": summary.by_collector, **named}
    for title, tallies in named.items():
        _tallies(title, tallies, words)


def _has_actions(manifest: Manifest) -> bool:
    """Tell whether its rows say what is to be done: a lake's objects are simply deleted."""
    is_bin = manifest.collector == EMPTY_BIN
    return is_registry(manifest.target) or (is_bucket(manifest.target) and not is_bin)


def summary_of_reading(manifest: Manifest) -> list[str]:
    """Say how much of the repository had to be read for a plan, and why everything was, if it was."""
    read = manifest.snapshot
    lines = []
    if "ranges_decoded" in read:
        known = read["ranges"] - read["ranges_decoded"]
        ranges = plural(read["ranges"], "range")
        lines.append(f"read {count(read['ranges_decoded'])} of {ranges}; {count(known)} were known already")
    if "swept_branches" in read:
        branches = plural(read["swept_branches"], "branch", "branches")
        lines.append(f"listed {plural(read['listed_partitions'], 'partition')} of {branches}")
        lines += [f"clean run: {why}" for why in read["clean_because"]]
    if "versioning" in read:
        listed = plural(manifest.summary.known_objects, "version, marker or upload", _ALL)
        lines.append(f"read {listed} that rules can match; versioning is {read['versioning'].lower()}")
    if "manifests_read" in read:
        tags, manifests = plural(read["tags"], "tag"), plural(read["manifests"], "manifest")
        places = plural(read["repositories"], "repository", "repositories")
        lines.append(f"scanned {tags} and {manifests} of {places}; {count(read['manifests_read'])} were new")
    if "renewed" in read:
        lines.append(f"renewed the policies of {plural(read['renewed'], 'running image')}")
    if "bins" in read:
        runs = f" with what {plural(read['bin_folders'], 'run')} set aside" if "bin_folders" in read else ""
        lines.append(f"looked into {plural(read['bins'], 'recycle bin')}{runs}")
    if "left_out" in read:
        lines.append(f"left out what lies below {read['left_out']}: no rule is about it alone")
    if "own_objects" in read:
        listed, own = plural(read["listed_objects"], "object"), count(read["own_objects"])
        lines.append(f"listed {listed}; {own} are of the repository, which was deleted {read['deleted']}")
    return lines


def _tallies(title: str, tallies: tuple[Tally, ...], words: Words) -> None:
    if not tallies:
        return
    rows = [(t.label, count(t.objects), human_bytes(t.bytes)) for t in tallies[:MOST_LINES]]
    if len(tallies) > MOST_LINES:
        rows.append((f"... and {len(tallies) - MOST_LINES} more (--json has them)", "", ""))
    table(title, ("", f"{words.item}s", "bytes"), rows, numbers=(1, 2))


def _print_row(row: Row, *, as_json: bool) -> None:
    if as_json:
        keys = ("address", "decision", "deadline", "reason", "held_by", "paths", "rules", "size", "collector")
        plain = {key: row[key] for key in keys}
        plain["deadline"] = format_instant(row["deadline"])
        plain |= {"task": row["task"]} if row["task"] else {}
        print(json.dumps(plain, ensure_ascii=False))
        return
    why = row["held_by"] if row["decision"] == Decision.HELD else ", ".join(row["rules"])
    task = row["task"]
    # Of a bucket the key is the address; what tells rows apart is the version.
    rest = f"{_doing(task)}  {task['version'] or row['address']}" if task else row["address"]
    say(
        f"{row['decision']:4}  {human_bytes(row['size']):>10}  {format_instant(row['deadline']):20}"
        f"  {safe(', '.join(row['paths']) or '(no path)')}  [dim]{safe(why)}  {safe(rest)}[/dim]"
    )


def _doing(task: Row) -> str:
    moves = task["action"] == MOVED and task["goal"]
    return f"{task['action']} to {task['goal']}" if moves else str(task["action"])
