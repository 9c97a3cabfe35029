"""A repository's policy, as its author wrote it, and every text before it."""

from __future__ import annotations

from sqlalchemy import func, insert, select

from ebbtide.errors import BadInput
from ebbtide.lake.catalog import schema
from ebbtide.lake.catalog.model import PolicyVersion
from ebbtide.lake.catalog.part import CatalogPart
from ebbtide.rules.instant import from_micros, to_micros

_table = schema.policies


class Policies(CatalogPart):
    """Keeps policy texts unread: whether they make sense is for the caller to say, before."""

    def set_policy(self, repo: str, text: str, format: str) -> int:  # noqa: A002 (the column's name)
        """Make this text the repository's policy and give its version; earlier ones are kept."""
        if not isinstance(text, str) or "\0" in text + format:
            raise BadInput("a policy is text without NUL", fix="give the text of a YAML or JSON file")
        with self._writing(repo) as writing:
            uid = writing.repository.uid
            latest = select(func.max(_table.c.version)).where(_table.c.repo_uid == uid)
            version = (writing.connection.execute(latest).scalar() or 0) + 1
            row = {"repo_uid": uid, "version": version, "text": text, "format": format}
            now = to_micros(self._clock())
            writing.connection.execute(insert(_table).values(row | {"created": now}))
        return int(version)

    def policy(self, repo: str) -> tuple[str, str] | None:
        """Give the present policy's text and format; None if none was ever set."""
        versions = self.policy_history(repo)
        return (versions[-1].text, versions[-1].format) if versions else None

    def policy_history(self, repo: str) -> tuple[PolicyVersion, ...]:
        """Give all policies that the repository had, the oldest first."""
        with self._reading(repo) as (connection, found):
            mine = select(_table).where(_table.c.repo_uid == found.uid)
            rows = connection.execute(mine.order_by(_table.c.version))
            return tuple(PolicyVersion(r.version, r.text, r.format, from_micros(r.created)) for r in rows)
