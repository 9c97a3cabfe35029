"""Marks as rows of their table and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.oci.model import Quarantine, QuarantineState
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.records.model import Mark, Target

KEY = ("uid", "repository", "tag", "manifest")


def mark_row(uid: str, mark: Mark) -> dict[str, Any]:
    """Write a mark as a row."""
    state = mark.quarantine
    return {
        **key_of(uid, mark.target),
        "digest": mark.target.digest,
        **_assigned_row(mark.assigned),
        "quarantine": None if state is None else str(state.state),
        "quarantine_since": _micros(state.since if state else None),
        "at": to_micros(mark.at),
        "updated_by": mark.by,
        "earlier": None if mark.earlier is None else json.dumps(_assigned_row(mark.earlier)),
    }


def key_of(uid: str, target: Target) -> dict[str, str]:
    """Give the key of what is marked."""
    return dict(zip(KEY, (uid, *target.key), strict=True))


def row_mark(row: Mapping[Any, Any]) -> Mark:
    """Read a row."""
    state = row["quarantine"]
    since = None if row["quarantine_since"] is None else from_micros(row["quarantine_since"])
    return Mark(
        Target(row["repository"], row["tag"], row["digest"]),
        _assigned(row),
        None if state is None else Quarantine(QuarantineState(state), since),
        from_micros(row["at"]),
        row["updated_by"],
        None if row["earlier"] is None else _assigned(json.loads(row["earlier"])),
    )


def _assigned_row(values: Assigned) -> dict[str, Any]:
    return {
        "policy": values.policy,
        "expires_at": _micros(values.expires_at),
        "can_delete_prior": values.can_delete_prior,
        "recycle": values.recycle,
    }


def _assigned(row: Mapping[Any, Any]) -> Assigned:
    date = None if row["expires_at"] is None else from_micros(row["expires_at"])
    return Assigned(row["policy"], date, row["can_delete_prior"], row["recycle"])


def _micros(at: Any) -> int | None:
    return None if at is None else to_micros(at)
