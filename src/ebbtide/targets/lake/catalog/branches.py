"""Branches and tags: names for commits."""

from __future__ import annotations

from sqlalchemy import delete, insert

from ebbtide.core.errors import NotFound, Refused
from ebbtide.targets.lake.catalog import refs, schema, staging, uploads
from ebbtide.targets.lake.catalog.names import check_ref_name
from ebbtide.targets.lake.catalog.ownership import TracedChanges
from ebbtide.targets.lake.catalog.reclaim_queue import DropReason
from ebbtide.targets.lake.catalog.refs import add_branch, check_name_free

_branches, _tags = schema.branches, schema.tags


class Branches(TracedChanges):
    """Creating, listing and deleting branches and tags."""

    def create_branch(self, repo: str, name: str, source: str) -> str:
        """Create a branch at a commit, without what is staged on the source; return its head."""
        check_ref_name(name, "branch")
        with self._referring(repo) as writing:
            check_name_free(writing, name)
            head = refs.resolve(writing.connection, writing.repository, source).commit.id
            add_branch(writing.connection, writing.repository, name, head)
        return head

    def delete_branch(self, repo: str, name: str) -> None:
        """Delete a branch with everything staged on it; the default branch is refused."""
        with self._writing(repo) as writing:
            found = refs.branch(writing.connection, writing.repository, name)
            if name == writing.repository.default_branch:
                raise Refused(
                    f"{name!r} is the default branch of {repo!r}",
                    why="a repository always has its default branch",
                    fix="delete the repository, or reset the branch",
                )
            staging.queue_branches(writing, DropReason.BRANCH, [found.id])
            uploads.queue_branch_tokens(writing, DropReason.BRANCH, [found.id])
            writing.connection.execute(delete(_branches).where(_branches.c.id == found.id))

    def branches(self, repo: str) -> dict[str, str]:
        """Return the head commit of each branch, by name."""
        with self._reading(repo) as (connection, found):
            return refs.heads(connection, found)

    def branch_ids(self, repo: str) -> dict[str, str]:
        """Return the id of each branch, by name; the folder of the branch's objects is named after it."""
        with self._reading(repo) as (connection, found):
            return refs.branch_ids(connection, found)

    def create_tag(self, repo: str, name: str, source: str) -> str:
        """Create a tag; return the id of its commit."""
        check_ref_name(name, "tag")
        with self._traced(repo, self._referring(repo)) as writing:
            check_name_free(writing, name)
            commit_id = refs.resolve(writing.connection, writing.repository, source).commit.id
            row = {"repo_uid": writing.repository.uid, "name": name, "commit_id": commit_id}
            writing.connection.execute(insert(_tags).values(row))
        return commit_id

    def delete_tag(self, repo: str, name: str) -> None:
        """Delete a tag; its commit stays."""
        with self._writing(repo) as writing:
            mine = (_tags.c.repo_uid == writing.repository.uid, _tags.c.name == name)
            if writing.connection.execute(delete(_tags).where(*mine)).rowcount == 0:
                raise NotFound(f"repository {repo!r} has no tag {name!r}", fix="list its tags")

    def tags(self, repo: str) -> dict[str, str]:
        """Return the commit id of each tag, by name."""
        with self._reading(repo) as (connection, found):
            return refs.tags(connection, found)
