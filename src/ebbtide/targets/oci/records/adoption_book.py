"""Which registries were adopted: who confirmed what their policies do, and when."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import upsert
from ebbtide.targets.oci.adoption import WHOLE, Adoption, Confirmation
from ebbtide.targets.oci.records.model import LogKind, Role
from ebbtide.targets.oci.records.part import Deed, RecordsPart, log_row
from ebbtide.targets.oci.records.tables import adoptions


class AdoptionBook(RecordsPart):
    """The adoptions of all registries."""

    def adoption(self, uid: str) -> Adoption:
        """Say what of a registry was confirmed; nothing before the first plan."""
        c = adoptions.c
        with self._database.reading() as connection:
            rows = connection.execute(select(c.repository, c.at, c.by).where(c.uid == uid)).all()
        return Adoption({repository: Confirmation(from_micros(at), by) for repository, at, by in rows})

    def adopt(self, uid: str, by: str, repository: str = WHOLE, seen: Any = None) -> None:
        """Record that somebody confirmed what the policies do; `seen` is what was shown to them."""
        what = f"adopt repository {repository}" if repository else "adopt the registry"
        deed = Deed(uid, by, LogKind.POLICY, "adoption", what)
        with self._doing(deed, Role.POLICY_WRITER) as connection:
            now = self._clock()
            row = {"uid": uid, "repository": repository, "at": to_micros(now), "by": by}
            upsert(connection, adoptions, [row], ("uid", "repository"))
            self._note(connection, [log_row(deed, now, after=seen)])
