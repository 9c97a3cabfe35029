"""The recycle bin as it lies in a store: a folder for each run, with a label that says what it holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from ebbtide.core.errors import BadInput, MetadataError
from ebbtide.core.instant import days_after, format_instant, parse_instant
from ebbtide.core.manifest import Manifest

FORMAT = 1
_LABEL, _ITEMS = "label.json", "items/"


@dataclass(frozen=True)
class Label:
    """The description beside the items that a run set aside; the bin can be read without the state root."""

    folder: str
    run: int
    target: str
    target_uid: str
    collector: str
    policy_hash: str
    days: int
    set_aside: datetime
    """When the last of them was set aside; the days of all count from here, so none expires early."""
    form: str = ""
    """How its items are named, if not by their addresses alone."""
    format: int = FORMAT
    rehearsal: bool = False
    """Whether a rehearsal set them aside, by a clock of its own."""

    @property
    def expires(self) -> datetime:
        """The time from which they may be deleted for good."""
        return days_after(self.set_aside, self.days)

    def to_json(self) -> str:
        """Write the label for people and programs to read."""
        plain = asdict(self) | {"set_aside": format_instant(self.set_aside)}
        plain["expires"] = format_instant(self.expires)
        if not self.rehearsal:
            del plain["rehearsal"]  # as labels were before there were rehearsals
        return json.dumps(plain, indent=2, sort_keys=True)


def label_of(manifest: Manifest, moment: datetime, form: str = "") -> Label | None:
    """Return the label for the items that a plan sets aside; None if it deletes for good."""
    recycling = manifest.recycling
    if recycling is None:
        return None
    return Label(
        folder=recycling.folder,
        run=manifest.run_id,
        target=manifest.target,
        target_uid=manifest.target_uid,
        collector=manifest.collector,
        policy_hash=manifest.policy_hash,
        days=recycling.days,
        set_aside=moment,
        form=form,
        rehearsal=manifest.rehearsal,
    )


def label_from_json(text: str, folder: str) -> Label:
    """Parse a label; raise if it is damaged or belongs to another folder."""
    try:
        plain = json.loads(text)
        plain.pop("expires", None)
        plain["set_aside"] = parse_instant(plain["set_aside"])
        label = Label(**plain)
        known = label.folder == folder and label.format == FORMAT and isinstance(label.run, int)
        known = known and isinstance(label.days, int) and label.days > 0 and bool(label.expires)
    except (BadInput, ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise MetadataError(
            f"the label of {folder!r} in the recycle bin cannot be read, or is another folder's",
            why="until when its items are kept is unknown, so they are left alone",
            fix="copy what you need from the folder's items/, then remove the folder",
        )
    return label


def label_key(root: str, folder: str) -> str:
    """Return the key of a label."""
    return f"{root}{folder}/{_LABEL}"


def items_of(root: str, folder: str) -> str:
    """Return the folder that has a run's items, each under its own address."""
    return f"{root}{folder}/{_ITEMS}"
