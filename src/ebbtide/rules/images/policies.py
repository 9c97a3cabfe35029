"""All that a policy document says: the policies, who gets which, and how many of the newest stay."""

from __future__ import annotations

from dataclasses import dataclass, field

from ebbtide.rules.images.patterns import Glob, TagPattern
from ebbtide.rules.images.policy import DEFAULT, GIVEN_POLICIES, Policy, same_name


@dataclass(frozen=True)
class AssignRule:
    """A tag that matches and has nothing assigned gets this policy, unless an earlier rule matches it."""

    repository: Glob
    tag: TagPattern
    policy: str

    def matches(self, repository: str, tag: str) -> bool:
        """Tell whether the rule is about a tag."""
        return self.repository.matches(repository) and self.tag.matches(tag)


@dataclass(frozen=True)
class KeepNewest:
    """In every repository that matches, so many of the newest matching tags are held, whatever their age."""

    repository: Glob
    tag: TagPattern
    count: int

    def matches(self, repository: str, tag: str) -> bool:
        """Tell whether a tag is one of those that are counted."""
        return self.repository.matches(repository) and self.tag.matches(tag)

    def __str__(self) -> str:
        """Say it in words, for what explains a hold."""
        return f"the newest {self.count} of {self.tag.text} in {self.repository.text}"


def _given() -> dict[str, Policy]:
    return {same_name(policy.name): policy for policy in GIVEN_POLICIES}


@dataclass(frozen=True)
class Policies:
    """The whole document; the policies that every registry has are always among its policies."""

    named: dict[str, Policy] = field(default_factory=_given)
    """By what :func:`same_name` makes of their names."""
    assign: tuple[AssignRule, ...] = ()
    keep_newest: tuple[KeepNewest, ...] = ()

    def find(self, name: str) -> Policy | None:
        """Find a policy by its name, None if there is none."""
        return self.named.get(same_name(name))

    def the(self, policy: Policy) -> Policy:
        """Give one of the policies that every registry has, as this one has it."""
        return self.named[same_name(policy.name)]

    def for_tag(self, repository: str, tag: str) -> Policy:
        """Give the policy of a tag that has nothing assigned: by the first rule that matches, or Default."""
        for rule in self.assign:
            if rule.matches(repository, tag):
                return self.named[same_name(rule.policy)]
        return self.the(DEFAULT)
