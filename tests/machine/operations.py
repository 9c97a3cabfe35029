"""What writers do, as data: drawn by a strategy, printed in a failure, performed on a repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tests.machine.repository import OUTSIDE, Repository


class Operation(Protocol):
    """One thing that a writer does; `gated` says that it makes references to what is there already."""

    gated: ClassVar[bool]

    def on(self, repo: Repository) -> None:
        """Do it."""


@dataclass(frozen=True)
class Upload:
    """Upload objects, and maybe commit them; a key that is there is overwritten."""

    gated: ClassVar[bool] = False
    branch: str
    keys: tuple[str, ...]
    commit: bool = False

    def on(self, repo: Repository) -> None:
        """Do it."""
        branch = repo.branch(self.branch)
        repo.upload(branch, self.keys)
        if self.commit:
            repo.commit(branch)


@dataclass(frozen=True)
class StageOutside:
    """Stage an object that lies outside the namespace."""

    gated: ClassVar[bool] = False
    branch: str
    key: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.stage(repo.name, repo.branch(self.branch), self.key, OUTSIDE + self.key, 1)


@dataclass(frozen=True)
class Copy:
    """Give an object a second key on its branch."""

    gated: ClassVar[bool] = True
    branch: str
    source: str
    target: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.copy(repo.name, repo.branch(self.branch), self.source, self.target)


@dataclass(frozen=True)
class CopyAcross:
    """Copy an object's data to another branch."""

    gated: ClassVar[bool] = False
    branch: str
    source_branch: str
    source: str
    target: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        branch, source = repo.branch(self.branch), repo.branch(self.source_branch)
        if branch != source:
            repo.copy_across(branch, source, self.source, self.target)


@dataclass(frozen=True)
class Move:
    """Give an object another key."""

    gated: ClassVar[bool] = True
    branch: str
    source: str
    target: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.move(repo.name, repo.branch(self.branch), self.source, self.target)


@dataclass(frozen=True)
class Delete:
    """Delete a key from a branch."""

    gated: ClassVar[bool] = False
    branch: str
    key: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.delete(repo.name, repo.branch(self.branch), self.key)


@dataclass(frozen=True)
class Commit:
    """Commit what is staged."""

    gated: ClassVar[bool] = False
    branch: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.commit(repo.branch(self.branch))


@dataclass(frozen=True)
class CrashedCommit:
    """Begin a commit and crash before it lands: what it sealed stays staged."""

    gated: ClassVar[bool] = False
    branch: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.crash_commit(repo.branch(self.branch))


@dataclass(frozen=True)
class Merge:
    """Merge another branch, or some commit, old or new, into a branch."""

    gated: ClassVar[bool] = True
    branch: str
    source: str | int

    def on(self, repo: Repository) -> None:
        """Do it."""
        branch, wanted = repo.branch(self.branch), self.source
        if not isinstance(wanted, int) and repo.branch(wanted) == branch:
            wanted = repo.other_branch(wanted) if branch == "main" else "main"
        source = repo.commit_at(wanted) if isinstance(wanted, int) else repo.branch(wanted)
        repo.tidy(branch)
        repo.made(repo.catalog.merge(repo.name, source, branch))


@dataclass(frozen=True)
class Revert:
    """Undo some commit on a branch."""

    gated: ClassVar[bool] = True
    branch: str
    commit: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        branch, undone = repo.branch(self.branch), repo.commit_at(self.commit)
        repo.tidy(branch)
        repo.made(repo.catalog.revert(repo.name, branch, undone, f"revert {len(repo.commits)}", parent=1))


@dataclass(frozen=True)
class Reset:
    """Drop what is staged under a prefix."""

    gated: ClassVar[bool] = False
    branch: str
    prefix: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.reset(repo.name, repo.branch(self.branch), self.prefix)


@dataclass(frozen=True)
class ResetTo:
    """Move a branch's head to some commit."""

    gated: ClassVar[bool] = True
    branch: str
    commit: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.reset(repo.name, repo.branch(self.branch), to=repo.commit_at(self.commit))


@dataclass(frozen=True)
class CreateBranch:
    """Make a branch at some commit."""

    gated: ClassVar[bool] = True
    branch: str
    commit: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.create_branch(repo.name, self.branch, repo.commit_at(self.commit))


@dataclass(frozen=True)
class DeleteBranch:
    """Delete a branch, with what is staged on it; its own commits dangle."""

    gated: ClassVar[bool] = False
    branch: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.delete_branch(repo.name, repo.other_branch(self.branch))


@dataclass(frozen=True)
class RenameBranch:
    """Give a branch's head another name, by which other rules may cover it."""

    gated: ClassVar[bool] = True
    branch: str
    target: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        branch = repo.other_branch(self.branch)
        repo.catalog.create_branch(repo.name, self.target, branch)
        repo.catalog.delete_branch(repo.name, branch)


@dataclass(frozen=True)
class Tag:
    """Point a tag at some commit, wherever it was before."""

    gated: ClassVar[bool] = True
    tag: str
    commit: int

    def on(self, repo: Repository) -> None:
        """Do it."""
        if self.tag in repo.catalog.tags(repo.name):
            repo.catalog.delete_tag(repo.name, self.tag)
        repo.catalog.create_tag(repo.name, self.tag, repo.commit_at(self.commit))


@dataclass(frozen=True)
class DeleteTag:
    """Delete a tag."""

    gated: ClassVar[bool] = False
    tag: str

    def on(self, repo: Repository) -> None:
        """Do it."""
        repo.catalog.delete_tag(repo.name, self.tag)


@dataclass(frozen=True)
class ChangePolicy:
    """Add or replace a rule, take one out, switch one, or change only its days or only its prefix."""

    gated: ClassVar[bool] = False
    kind: str
    rule_id: str
    rule: dict[str, Any]

    def on(self, repo: Repository) -> None:
        """Do it."""
        rules = dict(repo.rules)
        known = rules.pop(self.rule_id, None)
        if known is None or self.kind == "put":
            rules[self.rule_id] = self.rule
        elif self.kind == "switch":
            rules[self.rule_id] = known | {"enabled": not known["enabled"]}
        elif self.kind == "days":
            kept = {name: known[name] for name in ("prefix", "enabled")}
            rules[self.rule_id] = self.rule | kept
        elif self.kind == "prefix":
            rules[self.rule_id] = known | {"prefix": self.rule["prefix"]}
        repo.set_rules(rules)
