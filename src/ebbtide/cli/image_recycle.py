"""`ebb image recycle`: what lies in the recycle bin of a registry, bringing it back, and emptying the bin."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput, EbbtideError, MetadataError, NotFound, PartlyApplied
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import NEVER, format_second
from ebbtide.engine.newest_run import check_newest_run
from ebbtide.state.locks import target_lock
from ebbtide.state.users import current_user
from ebbtide.targets.oci.base import Registry
from ebbtide.targets.oci.client.image_ref import ImageRef, image_ref, repository_ref
from ebbtide.targets.oci.purge.removed import EMPTIED
from ebbtide.targets.oci.purge.restored_marks import reassigned, restored_names
from ebbtide.targets.oci.purge.shop import RegistryShop
from ebbtide.targets.oci.records.model import Role
from ebbtide.targets.oci.recycling.discarding import discard_each
from ebbtide.targets.oci.recycling.entry import BinEntry
from ebbtide.targets.oci.recycling.following import is_follower
from ebbtide.targets.oci.recycling.foreign import foreign_in, foreign_words
from ebbtide.targets.oci.recycling.listing import bin_repositories, entries, read_entry
from ebbtide.targets.oci.recycling.naming import bin_repository, is_bin, original_of
from ebbtide.targets.oci.recycling.restoring import Restored, restore

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The recycle bin of a registry.")

Where = Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER[//REPO].")]


@dataclass(frozen=True)
class Place:
    """An open registry, and one of its repositories or, if that is None, all."""

    shop: RegistryShop
    registry: Registry
    repository: str | None

    def require(self, what: str, subject: str) -> None:
        """Refuse, and log it, unless the user may change images."""
        self.shop.records.require(self.shop.uid, Role.IMAGE_WRITER, current_user(), what, subject)

    def note(self, what: str, subject: str) -> None:
        """Write into the log what was done."""
        self.shop.records.note_image(self.shop.uid, current_user(), subject, what)


@app.command("list")
def list_bin(context: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List the images in the bin; exits 3 if an entry there cannot be understood."""
    damage: list[MetadataError] = []
    with _open(context.obj, *repository_ref(where)) as place:
        found = sorted(entries(place.registry, place.repository, damage.append), key=_by_time)
        _report_foreign(place)
    if as_json:
        print_json([_plain(entry) for entry in found])
    else:
        table("Recycle bin", _COLUMNS, [_row(entry) for entry in found], numbers=(5,))
        say(f"{plural(len(found), 'image')}, up to {human_bytes(sum(entry.size for entry in found))}")
    _complain(damage)


@app.command("restore")
def restore_image(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="The image's old name: oci://HOST/REPO:TAG or @DIGEST.")],
    to: Annotated[str | None, typer.Option("--to", help="Give it this tag instead of its own.")] = None,
    all_of: Annotated[
        int | None, typer.Option("--all-of", help="Restore all that this run set aside; REF has no tag then.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Leave its signatures in the bin.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring an image back, with its signatures; a tag that stands for another image now is left alone."""
    state: State = context.obj
    if all_of is not None:
        if to:
            raise BadInput("--to and --all-of are given", why="many images cannot share a tag")
        _restore_run(state, ref, all_of, as_json=as_json)
        return
    image = image_ref(ref)
    with _open(state, image.registry, image.repository) as place, _locked(state, place, "restore"):
        place.require("restore", image.name)
        entry = _entry(place, image, bare=to is not None)
        done = restore(place.registry, entry, to_tags=[to] if to else None, with_referrers=not alone)
        place.note(f"restore{f' as {to}' if to else ''}", image.name)
        dates = reassigned(place.shop, done, current_user())
    _show_restored([done], dates, as_json=as_json)
    _check_restored([done])


@app.command("empty")
def empty(
    context: typer.Context,
    where: Where,
    older_than: Annotated[
        int | None,
        typer.Option("--older-than", min=0, max=36_500, help="Only what has been there for so many days."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete images in the bin for good; exits 4 if some could not be deleted."""
    state: State = context.obj
    damage: list[MetadataError] = []
    before = NEVER if older_than is None else state.clock() - timedelta(days=older_than)
    with _open(state, *repository_ref(where)) as place:
        place.require("empty the bin", where)
        found = sorted(entries(place.registry, place.repository, damage.append), key=_by_time)
        doomed = [entry for entry in found if entry.recycled_at <= before]
        if doomed:
            _confirm(doomed, yes=yes)
        with _locked(state, place, "empty"):
            _report_foreign(place)
            gone, failed = _discard(place.registry, doomed)
            if gone:
                place.note(f"empty the bin of {plural(len(gone), 'image')}", where)
            for entry in gone:
                place.note(EMPTIED, str(entry))
    if as_json:
        print_json({"deleted": [_plain(entry) for entry in gone], "failed": failed})
    else:
        say(f"deleted {plural(len(gone), 'image')} from the recycle bin")
    if failed:
        raise PartlyApplied(
            f"{plural(len(gone), 'image')} of {len(doomed)} could be deleted from the bin",
            fix="put right what is said of them, and empty the bin again",
            details=failed,
        )
    _complain(damage)


def _discard(registry: Registry, doomed: Sequence[BinEntry]) -> tuple[list[BinEntry], list[str]]:
    """Discard what was listed and nothing else; give what is gone, and what failed in words."""
    gone: list[BinEntry] = []
    failed: list[str] = []
    try:
        for done in discard_each(registry, doomed):
            if done.error is None:
                gone.append(done.entry)
            else:
                failed.append(f"{done.entry}: {done.error}")
    except EbbtideError as error:
        failed.append(f"not all bytes were freed: {error}")
    return gone, failed


def _report_foreign(place: Place) -> None:
    """Warn of what somebody else put into the repositories of the bin."""
    one = place.repository
    for name in bin_repositories(place.registry) if one is None else [bin_repository(one)]:
        try:
            tags = foreign_in(place.registry, name).tags
        except EbbtideError as broken:
            print(f"warning: {broken}", file=sys.stderr)
            continue
        for tag in tags:
            print(f"warning: {foreign_words(name, tag)}", file=sys.stderr)


@contextmanager
def _open(state: State, registry: str, repository: str) -> Iterator[Place]:
    """Open the whole registry, so that bins are in reach whichever repository was named."""
    shop = state.registry_shop(registry)
    with shop.opened() as opened:
        yield Place(shop, opened, original_of(repository) if is_bin(repository) else repository or None)


@contextmanager
def _locked(state: State, place: Place, what: str) -> Iterator[None]:
    """Keep purges of the registry away meanwhile: they would take half a copy for a leftover."""
    state.identified_registry(place.shop.spec.url, f"{what} images")
    check_newest_run(state.root, state.ledger)
    with target_lock(state.root, place.shop.uid, f"ebb image recycle {what}"):
        yield


def _entry(place: Place, image: ImageRef, *, bare: bool) -> BinEntry:
    """Find what is meant; one that cannot be understood can be had by its digest under a new name."""
    repository, tag = image.repository, image.tag
    if image.digest:
        try:
            return read_entry(place.registry, repository, image.digest)
        except MetadataError:
            if not bare:
                raise
            return BinEntry(repository, image.digest, recycled_at=NEVER, expires_at=NEVER)
    found = [e for e in entries(place.registry, repository, _warn) if tag in e.tag_names]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"{image} is not in the recycle bin", fix="see 'ebb image recycle list'")
    raise BadInput(
        f"{len(found)} images in the recycle bin had the tag {tag}",
        fix="say which one is meant by its digest",
        details=[f"{entry}, set aside {format_second(entry.recycled_at)}" for entry in found],
    )


def _restore_run(state: State, where: str, run_id: int, *, as_json: bool) -> None:
    """Restore all that a run set aside, what is signed before what signs it."""
    done: list[Restored] = []
    failed: list[str] = []
    dates: dict[str, datetime] = {}
    with _open(state, *repository_ref(where)) as place, _locked(state, place, "restore"):
        place.require("restore", f"run {run_id}")
        found = [e for e in entries(place.registry, place.repository, _warn) if e.run_id == run_id]
        for entry in sorted(found, key=is_follower):
            try:
                done.append(restore(place.registry, entry, with_referrers=False))
                dates |= reassigned(place.shop, done[-1], current_user())
            except EbbtideError as error:
                failed.append(f"{entry}: {error}")
        if done:
            place.note(f"restore {plural(len(done), 'image')}", f"run {run_id}")
    if not found:
        raise NotFound(f"the bin has nothing that run {run_id} set aside", fix="see 'ebb image recycle list'")
    _show_restored(done, dates, as_json=as_json)
    _check_restored(done, failed)


def _show_restored(done: Sequence[Restored], dates: Mapping[str, datetime], *, as_json: bool) -> None:
    """Print what came back, and when each of its names expires now."""
    if as_json:
        print_json([_plain_restored(one, dates) for one in done])
        return
    for one in (part for whole in done for part in (whole, *whole.referrers)):
        names = f"as {', '.join(one.tags)}" if one.tags else "without a tag, as it was"
        say(f"restored {safe(one.entry)} {safe(names)}")
        for name in restored_names(one):
            if name in dates:
                say(f"  {safe(name)} expires at {format_second(dates[name])}, by its policy as of today")
        for tag, other in one.taken.items():
            say(f"  {safe(tag)} was left alone: it stands for {safe(other)}")
        if one.left_in_bin:
            say("  it is still in the recycle bin as well")


def _check_restored(done: Sequence[Restored], failed: Sequence[str] = ()) -> None:
    """Raise PartlyApplied if anything was not done; what was done has been shown before."""
    every = [part for whole in done for part in (whole, *whole.referrers)]
    taken = [f"{one.entry}: {tag} stands for {other}" for one in every for tag, other in one.taken.items()]
    troubles = [trouble for one in every for trouble in one.troubles]
    if failed or taken or troubles:
        raise PartlyApplied(
            "not everything could be restored",
            why="what is listed here was left as it was",
            fix="restore it by itself, with --to NAME where its tag is taken",
            details=[*failed, *taken, *troubles],
        )


def _plain_restored(done: Restored, dates: Mapping[str, datetime]) -> dict[str, Any]:
    return {
        "repository": done.entry.repository,
        "digest": done.entry.digest,
        "tags": done.tags,
        "taken": done.taken,
        "expires_at": {name: dates[name] for name in restored_names(done) if name in dates},
        "left_in_bin": done.left_in_bin,
        "troubles": done.troubles,
        "referrers": [_plain_restored(part, dates) for part in done.referrers],
    }


def _confirm(doomed: Sequence[BinEntry], *, yes: bool) -> None:
    if yes:
        return
    size = human_bytes(sum(entry.size for entry in doomed))
    if not sys.stdin.isatty():
        raise BadInput(
            f"deleting {plural(len(doomed), 'image')} for good has to be confirmed",
            why="standard input is no terminal",
            fix="look with 'ebb image recycle list', then empty with --yes",
        )
    typer.confirm(f"Delete {plural(len(doomed), 'image')} (up to {size}) for good?", abort=True, err=True)


def _complain(damage: Sequence[MetadataError]) -> None:
    """End with the right exit code after all that could be done was done."""
    if damage:
        raise MetadataError(
            f"{plural(len(damage), 'entry', 'entries')} of the recycle bin cannot be understood",
            why="all others were looked at; these were left alone",
            fix="restore such an image by its digest with --to NAME",
            details=[str(error) for error in damage],
        )


def _warn(error: MetadataError) -> None:
    print(f"warning: {error}", file=sys.stderr)


def _by_time(entry: BinEntry) -> tuple[object, ...]:
    return (entry.recycled_at, entry.repository, entry.digest)


_COLUMNS = ("image", "tags", "set aside", "kept until", "policy", "bytes", "run", "reason")


def _row(entry: BinEntry) -> tuple[object, ...]:
    return (
        str(entry),
        " ".join(entry.tag_names),
        format_second(entry.recycled_at),
        format_second(entry.expires_at),
        entry.policy,
        human_bytes(entry.size),
        "" if entry.run_id is None else entry.run_id,
        entry.reason,
    )


def _plain(entry: BinEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}
