"""
The recycle bin of a registry: listing, restoring and emptying its images, and their expiry.

A restore is recorded in the registry's own log, not as a run: no plan goes by what runs removed, because each
scan sees the registry as it is. A restored image gets its policy again, from the day of the restore
(requirement 6.0). Setting aside and emptying by plan are never one run: an image that is just being set aside
shares manifests with others, and what no entry needs yet would look like a leftover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from ebbtide.core.decision import Outcome
from ebbtide.core.display import Block, Explanation, Table
from ebbtide.core.errors import BadInput, EbbtideError, MetadataError, NotFound, PartlyApplied, StalePlan
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import NEVER, days_after, format_second, to_micros
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, settle
from ebbtide.engine.apply import Applied
from ebbtide.engine.bin import (
    EXPIRY,
    BinItem,
    BinRows,
    Listing,
    OnDamage,
    RecycleBin,
    RestoreChoice,
    Returned,
    Wanted,
)
from ebbtide.engine.bin_expiry import is_by_hand
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Identity, Run
from ebbtide.engine.run_folder import outcome_folders
from ebbtide.engine.tables.contracts import OUTCOMES
from ebbtide.engine.tables.counted import read_rows
from ebbtide.state.users import SYSTEM, current_user
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.oci.bin.contents import (
    bin_repositories,
    discard_each,
    entries,
    find_entry,
    foreign_in,
    foreign_words,
    read_entry,
)
from ebbtide.targets.oci.bin.entry import BinEntry, bin_repository, is_follower, is_own_shape, original_of
from ebbtide.targets.oci.bin.moves import RestoredImage, restore
from ebbtide.targets.oci.client.address import image_in, place_in
from ebbtide.targets.oci.client.names import follows_a_digest
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec, open_registry
from ebbtide.targets.oci.context import RegistryContext, RegistryReach
from ebbtide.targets.oci.policies.policy import RECYCLE_BIN
from ebbtide.targets.oci.purge.actor import Action, PlannedItem, Results, acted, refused
from ebbtide.targets.oci.purge.collector import check_same_registry, outcome_words
from ebbtide.targets.oci.purge.identity import identify
from ebbtide.targets.oci.purge.last_scan import BACK, EMPTIED, RESTORED, copied_before
from ebbtide.targets.oci.records.mark_operations import restoring
from ebbtide.targets.oci.records.model import Role, Target

_COLUMNS = ("image", "tags", "set aside", "kept until", "policy", "bytes", "run", "reason")
_ROWS = 1_000
Warn = Callable[[str], None]


class ImageBin(RecycleBin):
    """The bins of a registry, or that of one of its repositories."""

    records_restores = False
    copies_out = False
    in_order = True
    """Images of one bin may share manifests."""
    action = str(Action.EMPTY)
    item = "image"
    context: RegistryContext
    elsewhere = "--to NAME restores an image whose tag is taken"

    def __init__(self, context: RegistryContext, warn: Warn, repository: str | None = None) -> None:
        self.context = context
        self.warn = warn
        self.repository = repository
        self._listed: dict[str, dict[str, Any]] = {}
        self._damage: list[EbbtideError] = []

    @property
    def identity(self) -> Identity:
        """The registry."""
        return self.context.identity

    # Listing

    def listing(self, run: int | None = None) -> Listing:
        """Show every image with its tags, policy and date."""
        damage: list[EbbtideError] = []
        with self.context.opened() as registry:
            found = sorted(self._entries(registry, run, damage.append), key=_by_time)
            warnings = tuple(self._foreign(registry))
        footer = f"{plural(len(found), 'image')}, up to {human_bytes(sum(entry.size for entry in found))}"
        shown = Table("Recycle bin", _COLUMNS, [_row(entry) for entry in found], (5,), footer)
        return Listing(shown, [_plain(entry) for entry in found], tuple(damage), warnings)

    def stream(self, run: int | None, on_damage: OnDamage) -> Iterator[tuple[BinItem, datetime]]:
        """Stream every image."""
        with self.context.opened() as registry:
            for entry in self._entries(registry, run, on_damage):
                yield _item(entry), entry.expires_at

    def damaged(self, found: Sequence[EbbtideError]) -> MetadataError:
        """Return the error for entries that cannot be understood."""
        return MetadataError(
            f"{plural(len(found), 'entry', 'entries')} of the recycle bin cannot be understood",
            why="all others were read; these were left alone",
            fix="restore such an image by its digest with --to NAME",
            details=[str(error) for error in found],
        )

    def _entries(self, registry: Registry, run: int | None, on_damage: OnDamage) -> Iterator[BinEntry]:
        for entry in entries(registry, self.repository, on_damage):
            if run in (None, entry.run_id):
                yield entry

    def _foreign(self, registry: Registry) -> Iterator[str]:
        """Yield a warning for everything that another tool put into the bins."""
        one = self.repository
        for name in bin_repositories(registry) if one is None else [bin_repository(one)]:
            try:
                yield from (foreign_words(name, tag) for tag in foreign_in(registry, name).tags)
            except EbbtideError as broken:
                yield str(broken)

    # Restoring

    def choice_of(self, plan: Manifest, items: tuple[str, ...]) -> RestoreChoice:
        """Return the choice of all images of a run."""
        if items:
            raise BadInput("an image is named by its whole reference", fix="ebb restore oci://HOST/REPO:TAG")
        return RestoreChoice(run=plan.run_id)

    def check_restore(self, choice: RestoreChoice) -> None:
        """Make sure which registry it is, and that the user may change its images."""
        if choice.to and choice.run is not None:
            raise BadInput("--to and --all-of are given", why="many images cannot share a tag")
        if choice.folder is not None:
            raise BadInput("the bin of a registry has no folders", fix="leave out --from")
        self._identify("restore images")
        self._require("restore", _subject(choice))

    def wanted(self, choice: RestoreChoice) -> Wanted:
        """Find images by run, tag or digest; images of a run come before their signatures."""
        with self.context.opened() as registry:
            if choice.run is None:
                if not choice.items:
                    raise BadInput("no image is named", fix="name one: oci://HOST/REPO:TAG")
                bare = choice.to is not None
                return Wanted([_item(self._named(registry, name, bare=bare)) for name in choice.items])
            found = list(self._entries(registry, choice.run, self._warn_of))
        if not found:
            what = f"the bin has nothing that run {choice.run} set aside"
            raise NotFound(what, fix="see 'ebb image recycle list'")
        return Wanted([_item(entry) for entry in sorted(found, key=is_follower)])

    def _named(self, registry: Registry, name: str, *, bare: bool = False) -> BinEntry:
        """Find an image; one with a damaged entry can be restored by its digest under a new tag."""
        repository, tag, digest = image_in(name)
        if digest:
            try:
                return read_entry(registry, repository, digest)
            except MetadataError:
                if not bare:
                    raise
                return BinEntry(repository, digest, recycled_at=NEVER, expires_at=NEVER)
        found = [one for one in entries(registry, repository, self._warn_of) if tag in one.tag_names]
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFound(f"{name} is not in the recycle bin", fix="see 'ebb image recycle list'")
        raise BadInput(
            f"{len(found)} images in the recycle bin had the tag {tag}",
            fix="name the image by its digest",
            details=[f"{entry}, set aside {format_second(entry.recycled_at)}" for entry in found],
        )

    def bring_back(self, page: Sequence[BinItem], choice: RestoreChoice) -> Sequence[Returned]:
        """Restore images with their tags, and with their signatures if they were named."""
        with self.context.opened() as registry:
            return [self._restored(registry, item, choice) for item in page]

    def _restored(self, registry: Registry, item: BinItem, choice: RestoreChoice) -> Returned:
        try:
            done = restore(
                registry,
                self._named(registry, item.address, bare=choice.to is not None),
                to_tags=[choice.to] if choice.to else None,
                with_referrers=choice.run is None and not choice.alone,
            )
            if choice.run is None:
                self._note(f"restore{f' as {choice.to}' if choice.to else ''}", _subject(choice))
            dates = reassigned(self.context, done, current_user())
        except EbbtideError as error:
            if len(choice.items) == 1:
                raise
            return Returned(DeleteResult(item.address, Outcome.FAILED, str(error)), item.address)
        note = Explanation(tuple(_lines(done, dates)), _plain_restored(done, dates))
        result = DeleteResult(item.address, Outcome.DELETED)
        return Returned(result, item.address, note=note, troubles=tuple(_troubles(done)))

    def after_restore(self, choice: RestoreChoice, wanted: Wanted, back: int) -> None:  # noqa: ARG002 (counted)
        """Write into the log how much of a run came back."""
        if choice.run is not None and back:
            self._note(f"restore {plural(back, 'image')}", f"run {choice.run}")

    # Emptying by hand

    def before_empty(self) -> None:
        """Check the user's role, and read what is in the bin."""
        self._require("empty the bin", self._where)
        self._identify("empty images")
        with self.context.opened() as registry:
            found = sorted(self._entries(registry, None, self._damage.append), key=_by_time)
            for words in self._foreign(registry):
                self.warn(words)
        self._listed = {str(entry): _plain(entry) for entry in found}

    def after_empty(self, plan: Manifest) -> dict[str, Any]:
        """Return the images that were deleted, and why others were not."""
        rows = list(last_outcomes(self.context, plan.run_id))
        gone = {row["address"] for row in rows if row["outcome"] == Outcome.DELETED}
        left = [f"{row['address']}: {row['reason']}" for row in rows if _is_left(row)]
        return {"deleted": [plain for name, plain in self._listed.items() if name in gone], "failed": left}

    def check_emptied(self, plan: Manifest) -> None:
        """Raise if images were set aside again, or have entries that cannot be understood."""
        left = [row for row in last_outcomes(self.context, plan.run_id) if _is_left(row)]
        if left:
            raise PartlyApplied(
                f"{plural(len(left), 'image')} could not be deleted from the bin",
                fix="correct the causes below, and empty the bin again",
                details=[f"{row['address']}: {row['reason']}" for row in left],
            )
        if self._damage:
            raise self.damaged(self._damage)

    # Expiry

    def reach(self) -> Reach:
        """Reach the registry."""
        return RegistryReach(self.context.spec)

    def check_ready(self) -> None:
        """Raise if the registry does not answer."""
        with self.context.opened():
            pass

    def before_plan(self) -> tuple[str, ...]:
        """Make sure which registry it is."""
        return identify(self.context, current_user(), "make a plan")

    def expiry(self, run: Run, older_than: int | None) -> BinRows:
        """List the bins, some per task."""
        with self.context.opened() as registry:
            only = None if self.repository is None else bin_repository(self.repository)
            bins = tuple(sorted(bin_repositories(registry) if only is None else [only]))
            warnings = tuple(_misnamed(registry, bins))
        tasks = max(1, min(len(bins), run.spark.sparkContext.defaultParallelism))
        numbers = run.spark.range(0, len(bins), 1, tasks)
        listed = numbers.mapInArrow(_EntryLister(self.context.spec, bins, older_than), EXPIRY)
        return BinRows(listed, {"bins": len(bins)}, warnings)

    def check(self, plan: Manifest) -> None:
        """Check that it is the same registry, and that the user may empty its bin by hand."""
        check_same_registry(self.context, plan)
        if is_by_hand(plan):
            # Another user may apply the plan later, so the role is checked here too.
            self._require(f"empty the bin by run {plan.run_id}", self._where)

    def check_unchanged(self, plan: Manifest) -> None:
        """Do nothing: dates were copied when the images were set aside, and no policy changes them."""

    def deleter(self, attempt: Attempt) -> Actor:
        """Remove images from the bin."""
        return BinActor(self.context.spec, attempt)

    def after_expiry(self, plan: Manifest, applied: Applied) -> None:
        """Write into the log what was done, and the images that a user deleted."""
        if applied.already_applied:
            return
        self._note_run(plan, outcome_words(applied))
        if is_by_hand(plan):
            rows = last_outcomes(self.context, plan.run_id)
            gone = [row["address"] for row in rows if row["outcome"] == Outcome.DELETED]
            self._note(f"empty the bin of {plural(len(gone), 'image')}", self._where)
            for address in gone:
                self._note(EMPTIED, address)

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Write into the log how far the run came."""
        self._note_run(plan, f"{error.what} ({error.why})")

    def _note_run(self, plan: Manifest, what: str) -> None:
        by = current_user() if is_by_hand(plan) else SYSTEM
        self.context.records.note_purge(self.context.uid, plan.run_id, f"{plan.collector}: {what}", by)

    # The registry's log and roles

    @property
    def _where(self) -> str:
        return place_in(self.context.spec.url, self.repository or "")

    def _identify(self, what: str) -> None:
        for warning in identify(self.context, current_user(), what):
            self.warn(warning)

    def _require(self, what: str, subject: str) -> None:
        """Raise Forbidden, and log it, unless the user may change images."""
        self.context.records.require(self.context.uid, Role.IMAGE_WRITER, current_user(), what, subject)

    def _note(self, what: str, subject: str) -> None:
        self.context.records.note_image(self.context.uid, current_user(), subject, what)

    def _warn_of(self, error: EbbtideError) -> None:
        self.warn(str(error))


def _subject(choice: RestoreChoice) -> str:
    return f"run {choice.run}" if choice.run is not None else ", ".join(choice.items)


def _item(entry: BinEntry) -> BinItem:
    return BinItem(bin_repository(entry.repository), entry.run_id or 0, str(entry), entry.size)


def _by_time(entry: BinEntry) -> tuple[object, ...]:
    return (entry.recycled_at, entry.repository, entry.digest)


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


def _lines(done: RestoredImage, dates: Mapping[str, datetime]) -> Iterator[Block]:
    """Describe what was restored, and when each of its names expires now."""
    for one in (done, *done.referrers):
        names = f"as {', '.join(one.tags)}" if one.tags else "without a tag, as it was"
        yield f"restored {one.entry} {names}"
        for name in restored_names(one):
            if name in dates:
                yield f"  {name} expires at {format_second(dates[name])}, by its policy as of today"
        for tag, other in one.taken.items():
            yield f"  {tag} was left alone: it stands for {other}"
        if one.left_in_bin:
            yield "  it is still in the recycle bin as well"


def _troubles(done: RestoredImage) -> Iterator[str]:
    for one in (done, *done.referrers):
        yield from (f"{one.entry}: {tag} stands for {other}" for tag, other in one.taken.items())
        yield from one.troubles


def _plain_restored(done: RestoredImage, dates: Mapping[str, datetime]) -> dict[str, Any]:
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


def reassigned(context: RegistryContext, done: RestoredImage, by: str) -> dict[str, datetime]:
    """
    Assign the policies of a restored image and its referrers again, and return their new dates by name.

    Otherwise its old date would count, and the next purge would remove it again. The log has the values
    before and after.
    """
    dates = {}
    for target in _targets(done):
        if not _has_date(context, target, done):
            context.records.note_image(context.uid, by, str(target), BACK)
            continue
        seen = copied_before(context.records, context.root, context.uid, context.spec.url, target)
        change = context.records.change_mark(context.uid, target, restoring, by, RESTORED, seen)
        if change.after is not None:
            dates[str(target)] = change.after.assigned.expires_at or NEVER
    return dates


def restored_names(done: RestoredImage) -> list[str]:
    """Return the names that a restore brought back: the tags of an image, and its digest."""
    entry = done.entry
    return [*(f"{entry.repository}:{tag}" for tag in done.tags), f"{entry.repository}@{entry.digest}"]


def _targets(done: RestoredImage) -> Iterator[Target]:
    """Yield everything that came back, tags before their manifest."""
    for one in (done, *done.referrers):
        repository, digest = one.entry.repository, one.entry.digest
        yield from (Target(repository, tag, digest) for tag in one.tags)
        yield Target(repository, "", digest)


def _has_date(context: RegistryContext, target: Target, done: RestoredImage) -> bool:
    """Return True if a tag or manifest has its own date, and does not follow another."""
    if target.tag:
        return not follows_a_digest(target.tag)
    # What is assigned to a manifest counts for all its tags, so it gets nothing new if it has any.
    tagged = {one.entry.digest for one in (done, *done.referrers) if one.tags}
    return target.digest not in tagged or context.records.mark(context.uid, target) is not None


def _misnamed(registry: Registry, bins: Iterable[str]) -> Iterator[str]:
    """Warn about tags that cannot be Ebbtide's by their names; emptying the bin checks the content."""
    for name in bins:
        with suppress(NotFound):
            for tag in registry.tags(name):
                if not is_own_shape(tag):
                    yield foreign_words(name, tag)


def last_outcomes(context: RegistryContext, run_id: int) -> Iterator[dict[str, Any]]:
    """Yield the last outcome of each image of a run that emptied the bin."""
    last: dict[str, dict[str, Any]] = {}
    for folder in outcome_folders(context.root, context.ledger, run_id):
        for row in read_rows(OUTCOMES, folder):
            known = last.get(row["address"])
            if known is None or known["attempt"] <= row["attempt"]:
                last[row["address"]] = dict(row)
    yield from last.values()


def _is_left(row: Mapping[str, Any]) -> bool:
    return row["outcome"] not in (Outcome.DELETED, Outcome.ABSENT)


@dataclass(frozen=True)
class _EntryLister:
    """Lists bins on an executor; a row has the number of a bin."""

    spec: RegistrySpec
    bins: tuple[str, ...]
    older_than: int | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        registry = open_registry(self.spec)
        try:
            rows: list[dict[str, Any]] = []
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for entry in entries(registry, original_of(self.bins[number]), self._on_damage):
                        rows.append(self._row(entry))
                        if len(rows) >= _ROWS:
                            yield _batch(rows)
                            rows = []
            yield _batch(rows)
        finally:
            registry.close()

    @property
    def _on_damage(self) -> OnDamage | None:
        """Leave damaged entries alone if a user empties the bin, who is told about them; else raise."""
        return None if self.older_than is None else lambda _: None

    def _row(self, entry: BinEntry) -> dict[str, Any]:
        days, kept = self.older_than, entry.expires_at
        names = [f"{entry.repository}:{tag}" for tag in entry.tag_names]
        return {
            "address": str(entry),
            "names": names or [str(entry)],
            "rule": RECYCLE_BIN.name,
            "held_by": f"in the bin until {format_second(kept)}",
            "size": entry.size,
            "set_aside": entry.recycled_at,
            "ends": kept if days is None else days_after(entry.recycled_at, days),
        }


def _batch(rows: Sequence[dict[str, Any]]) -> Any:
    utc = pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        [
            ("address", pa.string()),
            ("names", pa.list_(pa.string())),
            ("rule", pa.string()),
            ("held_by", pa.string()),
            ("size", pa.int64()),
            ("set_aside", utc),
            ("ends", utc),
        ]
    )
    return pa.RecordBatch.from_pylist(list(rows), schema)


@dataclass(frozen=True)
class BinActor:
    """Removes images from the bin on an executor."""

    spec: RegistrySpec
    attempt: Attempt

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Act on all rows, and yield their outcomes."""
        return acted(self.attempt, batches, self._do)

    def _do(self, items: Sequence[PlannedItem]) -> Results:
        again = self.attempt.is_repeated()
        try:
            registry = open_registry(self.spec)
        except EbbtideError as broken:
            return {item.number: refused(item, broken) for item in items}
        try:
            return {number: settle(one, again=again) for number, one in _emptied(registry, items).items()}
        finally:
            registry.close()


def _emptied(registry: Registry, items: Sequence[PlannedItem]) -> Results:
    """Remove from the bin what is as it was planned."""
    results: Results = {}
    doomed: dict[tuple[str, str], tuple[PlannedItem, BinEntry]] = {}
    for item in items:
        try:
            found = find_entry(registry, item.repository, item.digest)
        except EbbtideError as broken:
            results[item.number] = refused(item, broken)
            continue
        if found is None:
            results[item.number] = DeleteResult(item.name, Outcome.ABSENT)
        elif item.created is None or to_micros(found[0].recycled_at) != to_micros(item.created):
            results[item.number] = DeleteResult(item.name, Outcome.CHANGED, "it was set aside again since")
        else:
            doomed[item.address] = (item, found[0])
    for done in discard_each(registry, [entry for _, entry in doomed.values()]):
        item = doomed[done.entry.repository, done.entry.digest][0]
        results[item.number] = _result(item, done.error)
    return results


def _result(item: PlannedItem, error: EbbtideError | None) -> DeleteResult:
    if error is None:
        return DeleteResult(item.name, Outcome.DELETED)
    if isinstance(error, StalePlan):
        return DeleteResult(item.name, Outcome.CHANGED, error.what)
    return refused(item, error)
