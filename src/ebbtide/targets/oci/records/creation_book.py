"""When images say that they were built, of those that were asked: a digest never says anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import select

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import upsert
from ebbtide.targets.oci.records.part import RecordsPart
from ebbtide.targets.oci.records.tables import creation_dates

_AT_ONCE = 1000


class CreationBook(RecordsPart):
    """The creation dates of images of all registries."""

    def creation_dates(self, uid: str) -> Iterator[tuple[str, datetime | None]]:
        """Stream the digests of a registry that were asked, each with its date; None if it has none."""
        c = creation_dates.c
        query = select(c.digest, c.created_at).where(c.uid == uid).order_by(c.digest)
        with self._database.reading() as connection:
            for digest, at in connection.execution_options(yield_per=_AT_ONCE).execute(query):
                yield digest, None if at is None else from_micros(at)

    def creation_dates_of(self, uid: str, digests: Sequence[str]) -> dict[str, datetime]:
        """Give the dates of some images by digest; those that have none or were not asked are not in it."""
        c, found = creation_dates.c, dict[str, datetime]()
        with self._database.reading() as connection:
            for start in range(0, len(digests), _AT_ONCE):
                some = c.digest.in_(digests[start : start + _AT_ONCE])
                query = select(c.digest, c.created_at).where(c.uid == uid, some, c.created_at.is_not(None))
                found |= {digest: from_micros(at) for digest, at in connection.execute(query)}
        return found

    def record_creation_dates(self, uid: str, found: Mapping[str, datetime | None]) -> None:
        """Record what images say of themselves."""
        rows = [
            {"uid": uid, "digest": digest, "created_at": None if at is None else to_micros(at)}
            for digest, at in sorted(found.items())
        ]
        with self._changing(uid) as connection:
            upsert(connection, creation_dates, rows, ("uid", "digest"))
