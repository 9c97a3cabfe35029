"""Under which names each registry is known, which marker it carries, and whose records it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, select

from ebbtide.core.errors import Refused
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.actors import SYSTEM
from ebbtide.state.database import upsert
from ebbtide.targets.oci.client.canonical import earlier_uids, name_uid
from ebbtide.targets.oci.records.guarding import all_holders, check_may_grant
from ebbtide.targets.oci.records.merge import has_records, merge_records
from ebbtide.targets.oci.records.model import EVERYWHERE, LogKind
from ebbtide.targets.oci.records.part import Deed, RecordsPart, log_row
from ebbtide.targets.oci.records.tables import adoptions, marks, registries, registry_names, roles


@dataclass(frozen=True)
class Identity:
    """A canonical name of a registry, the uid of its records, and its marker, empty if it has none."""

    name: str
    uid: str
    marker: str
    address: str
    """Where it was last reached by this name."""
    at: datetime
    by: str


class IdentityBook(RecordsPart):
    """The names of all registries."""

    def identity(self, name: str) -> Identity | None:
        """Say what is recorded of a canonical name, None if it is unknown."""
        found = self._identities(registry_names.c.name == name)
        return found[0] if found else None

    def names_of_marker(self, marker: str) -> list[Identity]:
        """Give the names of the registry with a marker, the first one first."""
        return self._identities(registry_names.c.marker == marker)

    def names_of(self, uid: str) -> list[Identity]:
        """Give the names whose records are kept under a uid, the first one first."""
        return self._identities(registry_names.c.uid == uid)

    def uid_of(self, name: str) -> str:
        """
        Give the uid under which the records of a name are kept, without asking the registry.

        Where earlier versions kept records under several spellings of the name, they are merged first;
        MetadataError if they contradict each other.
        """
        known = self.identity(name)
        if known is not None:
            return known.uid
        with self._database.reading() as connection:
            found = _with_records(connection, name)
        if len(found) < 2:
            return found[0] if found else name_uid(name)
        with self._changing(EVERYWHERE) as connection:
            found = _with_records(connection, name)
            uid = merge_records(connection, {one: earlier_uids(name)[one] for one in found}, self._clock())
            self._log_name(connection, uid, name, f"merge the records of {len(found)} spellings of {name}")
        return uid

    def check_known(self, name: str, uid: str, by: str, what: str, *, adopt: bool = False) -> None:
        """
        Refuse to change something at a registry that nobody knows while others have roles.

        An unknown name may be one more name of a registry whose roles forbid it.
        """
        deed = Deed(uid, by, LogKind.ROLE, name, what)
        with self._doing(deed, None, locked=EVERYWHERE) as connection:
            if adopt or _is_known(connection, name, uid):
                return
            if any(where not in (EVERYWHERE, uid) for where, _, _ in all_holders(connection)):
                raise Refused(
                    f"{name} is not known, so {by} may not {what}",
                    why="other registries have roles, and this could be another name of one of them",
                    fix=f"if it is a registry of its own, adopt it first: ebb image adopt {name}",
                )

    def check_may_adopt(self, name: str, uid: str, by: str) -> None:
        """Raise Forbidden, and log it, unless somebody may make the first grant of a registry."""
        with self._doing(Deed(uid, by, LogKind.ROLE, name, "adopt the registry"), None) as connection:
            check_may_grant(all_holders(connection), uid, by, f"adopt {name}")

    def remember(self, name: str, uid: str, marker: str, address: str, by: str, what: str) -> None:
        """
        Record a name of a registry; the log has it if `what` says something.

        What was recorded under another uid of that name is merged into those records; MetadataError if the
        two contradict each other.
        """
        with self._changing(EVERYWHERE) as connection:
            query = select(registry_names.c.uid).where(registry_names.c.name == name)
            known = connection.execute(query).scalar()
            before = _with_records(connection, name) if known is None else [known]
            if others := [one for one in before if one != uid]:
                spelled = {one: earlier_uids(name).get(one, name) for one in (uid, *others)}
                merge_records(connection, spelled, self._clock(), into=uid)
            self._write_name(connection, Identity(name, uid, marker, address, self._clock(), by), what)

    def renew_identity(self, name: str, uid: str, marker: str, address: str, by: str) -> None:
        """Give a name records of its own, because the registry there is another one than was recorded."""
        with self._changing(EVERYWHERE) as connection:
            connection.execute(delete(registry_names).where(registry_names.c.name == name))
            found = Identity(name, uid, marker, address, self._clock(), by)
            self._write_name(connection, found, "adopt the registry as a new one")

    def _write_name(self, connection: Connection, found: Identity, what: str) -> None:
        row = asdict(found) | {"at": to_micros(found.at)}
        upsert(connection, registry_names, [row], ("name",))
        if what:
            self._log_name(connection, found.uid, found.name, what, found.by)

    def _log_name(self, connection: Connection, uid: str, name: str, what: str, by: str = SYSTEM) -> None:
        deed = Deed(uid, by, LogKind.ROLE, name, what)
        self._note(connection, [log_row(deed, self._clock())])

    def _identities(self, wanted: Any) -> list[Identity]:
        query = select(registry_names).where(wanted).order_by(registry_names.c.at, registry_names.c.name)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            Identity(
                row["name"], row["uid"], row["marker"], row["address"], from_micros(row["at"]), row["by"]
            )
            for row in rows
        ]


def _with_records(connection: Connection, name: str) -> list[str]:
    """Give the uids of a name's spellings that have records, the one to keep first."""
    return has_records(connection, [name_uid(name), *earlier_uids(name)])


def _is_known(connection: Connection, name: str, uid: str) -> bool:
    """Return True if a name is recorded, or if somebody assigned, granted or configured something there."""
    queries: Sequence[Any] = (
        exists().where(registry_names.c.name == name),
        exists().where(registry_names.c.uid == uid),
        exists().where(adoptions.c.uid == uid),
        exists().where(marks.c.uid == uid),
        exists().where(roles.c.uid == uid),
        exists().where(registries.c.uid == uid, registries.c.policies.is_not(None)),
    )
    return any(connection.execute(select(query)).scalar() for query in queries)
