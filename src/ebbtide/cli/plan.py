"""`ebb plan`: decide what may be deleted, and show plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ebbtide.cli.console import (
    PLAN_HELP,
    AsJson,
    Master,
    Now,
    RowStream,
    out,
    print_json_line,
    safe,
    say,
    say_next,
    table,
)
from ebbtide.cli.failure import DETAILED
from ebbtide.cli.pipeline import plan_or_ask, run_plan
from ebbtide.cli.state import State, instant
from ebbtide.cli.target_options import target_help, with_target_options
from ebbtide.core.decision import Decision
from ebbtide.core.display import Words
from ebbtide.core.errors import BadInput
from ebbtide.core.format import count, human_bytes, percent, plural
from ebbtide.core.instant import format_instant, format_second
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import Row, in_order, sample_decisions, stream_decisions
from ebbtide.state.runs import RunState
from ebbtide.targets.kinds import check_options, kind_of, words_of
from ebbtide.targets.target import Options, bin_of

MOST_LINES = 12
SOMETHING_IS_DUE = 2
"""The exit code of a plan with due items, after --detailed-exitcode."""


class _TargetOrShow(TyperGroup):
    """Allows both `ebb plan lake:REPO` and `ebb plan show PLAN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat everything that is not a subcommand as a call of `make`, including --help."""
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["make", *args])


class _Plan(TyperCommand):
    """Appears as `ebb plan` in help and errors; the name `make` is internal."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Use the name and the parent of its group."""
        if parent is not None:
            info_name, parent = parent.info_name, parent.parent
        return super().make_context(info_name, args, parent=parent, **extra)


app = typer.Typer(cls=_TargetOrShow, add_completion=False, help="Decide what may be deleted.")


@app.command("make", cls=_Plan, epilog="'ebb plan show PLAN' shows a plan that was made.")
@with_target_options()
def make(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help=target_help())],
    now: Now = None,
    bin_alone: Annotated[
        bool,
        typer.Option("--bin", help="Plan only items whose days in the recycle bin have passed."),
    ] = False,
    master: Master = None,
    detailed: Annotated[
        bool, typer.Option(DETAILED, help="Exit with 0: nothing is due, 2: something is due, 1: an error.")
    ] = False,
    as_json: AsJson = False,
    *,
    given: Options,
) -> None:
    """
    Make a plan for a target. Nothing is deleted.

    Without --uncommitted, --retention, --all or --deleted the lifecycle policy of a lake decides. A plan for
    a deleted repository empties its namespace, so applying it always needs --override-breaker.
    """
    state: State = context.obj
    moment, kind = instant(now, state.clock), kind_of(target)
    check_options(kind, target, given)
    if bin_alone and given:
        flags = [option.flags[0] for option in kind.options if option.name in given]
        raise BadInput(
            f"--bin and {' and '.join(flags)} are given",
            why="the recycle bin is always read whole, whatever else is looked for",
            fix=f"leave out --bin or {' and '.join(flags)}",
        )
    opened = state.target(target)
    if bin_alone:
        manifest = run_plan(state, ExpiredItems(bin_of(opened)), master, moment)
    else:
        manifest = plan_or_ask(
            state,
            lambda options: opened.collector(options, moment),
            given,
            master,
            moment,
            as_json=as_json,
        )
    _show_made(state, manifest, as_json=as_json)
    if detailed and manifest.summary.due.objects:
        raise typer.Exit(SOMETHING_IS_DUE)


def _show_made(state: State, manifest: Manifest, *, as_json: bool) -> None:
    if as_json:
        print(manifest.to_json())
        return
    show_summary(manifest)
    override = ["--override-breaker"] if manifest.breaker else []
    say_next(state.command("plan", "show", manifest.run_id, "--all"))
    say_next(state.command("apply", manifest.run_id, *override))


@app.command("show")
def show(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help=PLAN_HELP)],
    every: Annotated[bool, typer.Option("--all", help="Stream every row.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Show held items instead of due ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a plan: counts and bytes by rule, prefix and branch, and a sample or all of its rows."""
    state: State = context.obj
    folder = run_folder(state.root, state.run_id(plan))
    manifest = folder.read_manifest()
    wanted = Decision.HELD if held else Decision.DUE
    if every:
        _print_rows(in_order(stream_decisions(folder, wanted), _place), as_json=as_json)
        return
    if as_json:
        print(manifest.to_json())
        return
    show_summary(manifest, finished=state.ledger.run(manifest.run_id).state is RunState.SUCCEEDED)
    rows = sample_decisions(folder, wanted, 10)
    if rows:
        _print_rows(sorted(rows, key=_place), as_json=False)
        say(f"[dim]the first {plural(len(rows), 'row')}; --all streams every one[/dim]")


def show_summary(manifest: Manifest, *, finished: bool = False) -> None:
    """Print the summary of a plan; one that was applied needs no advice on how to apply it."""
    summary = manifest.summary
    say(
        f"[bold]Plan {manifest.run_id}[/bold] for {safe(manifest.target)} at {format_second(manifest.now)}"
        f"  [dim]{manifest.plan_hash[:16]}[/dim]"
    )
    due, held, words = summary.due, summary.held, words_of(manifest)
    what = words.deeds(summary.by_action) if words.actions else ""
    days = f" for {plural(manifest.recycling.days, 'day')}" if manifest.recycling else ""
    days = f" (what expires is set aside{days})" if days and what else days
    say(
        f"  would {safe(what) or f'{words.change} {words.items(due.objects)}'}{days},"
        f" [bold]{human_bytes(due.bytes)}[/bold]"
        f" ({percent(due.objects, summary.known_objects)} of {count(summary.known_objects)} known)"
    )
    if words.frees_apart and summary.freed.bytes != due.bytes:
        why = "what gets a delete marker, moves or is set aside is still stored"
        say(f"  would free [bold]{human_bytes(summary.freed.bytes)}[/bold]: {why}")
    for read in _described(manifest):
        say(f"  [dim]{safe(read)}[/dim]")
    say(f"  keeps {words.items(held.objects)} ({human_bytes(held.bytes)}) that a rule matched")
    for warning in manifest.warnings:
        say(f"  [yellow]warning:[/yellow] {safe(warning)}")
    for reason in () if finished else manifest.breaker:
        say(f"  [red]breaker:[/red] {safe(reason)}; to apply it needs --override-breaker")
    out().print()
    named = {
        "By rule": summary.by_rule,
        "By prefix": summary.by_prefix,
        **{f"By {label}": tallies for label, tallies in summary.by_label.items()},
        "By age": summary.by_age,
        "Held because": summary.held_by_reason,
    }
    if words.actions:
        named = {"By action": summary.by_action, **named}
    elif len(summary.by_collector) > 1:
        named = {"By collector": summary.by_collector, **named}
    for title, tallies in named.items():
        _tallies(title, tallies, words)


def _described(manifest: Manifest) -> list[str]:
    """Return lines that describe what a plan has read."""
    lines = kind_of(manifest.target).described(manifest)
    read = manifest.snapshot
    if "bins" in read:
        runs = f" with what {plural(read['bin_folders'], 'run')} set aside" if "bin_folders" in read else ""
        lines.append(f"looked into {plural(read['bins'], 'recycle bin')}{runs}")
    return lines


def _tallies(title: str, tallies: tuple[Tally, ...], words: Words) -> None:
    if not tallies:
        return
    rows = [(t.label, count(t.objects), human_bytes(t.bytes)) for t in tallies[:MOST_LINES]]
    if len(tallies) > MOST_LINES:
        rows.append((f"... and {len(tallies) - MOST_LINES} more (--json has them)", "", ""))
    table(title, ("", f"{words.item}s", "bytes"), rows, numbers=(1, 2))


def _place(row: Row) -> tuple[str, str, str]:
    """Order rows by path, then by address and version."""
    return row["names"][0] if row["names"] else "", row["address"], row["version"] or ""


def _print_rows(rows: Iterable[Row], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json_line(_plain_row(row))
        return
    lines = RowStream(
        ("state", 5),
        ("bytes", 9),
        ("deadline", 20),
        ("path", -2),
        ("why", -1),
        ("item", -1),
        numbers=[1],
    )
    for row in rows:
        why = row["holder"] if row["decision"] == Decision.HELD else ", ".join(row["rules"])
        # Of a bucket the key is the address; what tells rows apart is the version.
        item = f"{_doing(row)} {row['version'] or row['address']}" if _has_task(row) else row["address"]
        deadline = format_second(row["deadline"])
        path = ", ".join(row["names"]) or "(no path)"
        lines.row(row["decision"], human_bytes(row["size"]), deadline, path, why or "", item)


def _plain_row(row: Row) -> Row:
    """Return a row for JSON; `paths`, `reason`, `held_by` and `task` are its names of earlier versions."""
    keys = ("address", "version", "names", "decision", "action", "destination", "condition", "hold", "holder")
    plain = {key: row[key] for key in (*keys, "rules", "labels", "size", "collector")}
    plain |= {"deadline": format_instant(row["deadline"]), "paths": row["names"]}
    plain |= {"reason": row["hold"], "held_by": row["holder"]}
    return plain | ({"task": _task(row)} if _has_task(row) else {})


def _has_task(row: Row) -> bool:
    """Return whether more than an address names the item or what is done with it."""
    return row["version"] is not None or row["condition"] is not None


def _task(row: Row) -> Row:
    required = row["condition"] or {}
    siblings = required.get("siblings")
    return {
        "action": row["action"],
        "version": row["version"],
        "etag": required.get("etag"),
        "latest": required.get("is_latest"),
        "newer": required.get("newer_versions"),
        "goal": " ".join(siblings) if siblings else row["destination"],
    }


def _doing(row: Row) -> str:
    return f"{row['action']} to {row['destination']}" if row["destination"] else str(row["action"])
