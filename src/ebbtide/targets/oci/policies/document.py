"""
The policies file: plain data to :class:`Policies` and back.

The document is a table of `policies`, `assign`, `keep_newest`, `unmatched` and `removed`, each of which may
be left out. Policies are a list of tables with a `name`, or a table from names to values. A policy that
every new registry has keeps the seed's value of a field that is left out; another policy may then be deleted
earlier, goes through the bin, and never expires. Names of fields and policies may be spelled with capitals,
spaces, hyphens or underscores.

A period may be written in several forms. All of these are six months::

    {"months": 6}                      {"period": 6, "unit": "months"}
    {"period": "6 months"}             {"period": {"months": 6}}

and these never expire: ``{"never": true}``, ``{"period": "never"}``, ``{"unit": "never"}`` and
``{"days": null}``. A unit may be singular, and ``number``, ``value``, ``duration`` and ``expires_after``
stand for ``period``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, model_validator

from ebbtide.core.documents import (
    Document,
    Fix,
    Flag,
    Name,
    WholeNumber,
    nearest,
    parse_document,
    refusal,
    shown,
    validate,
)
from ebbtide.core.errors import PolicyError
from ebbtide.targets.oci.policies.patterns import glob, tag_pattern
from ebbtide.targets.oci.policies.policy import (
    DEFAULT,
    GIVEN_POLICIES,
    KEEP,
    SYSTEM_POLICIES,
    AssignRule,
    KeepNewest,
    Period,
    Policies,
    Policy,
    Unit,
    by_name,
    same_name,
)

_UNITS = {name: unit for unit in Unit for name in (str(unit), unit.removesuffix("s"))}
_NEVER = "never"
_PERIOD_FIELDS = (*map(str, Unit), "period", _NEVER)
_PERIOD_FIX = 'write one of "days": 5, "months": 6, "years": 1, "never": true'
_ALWAYS = "Default, Recycle Bin, Quarantine Failed and Untagged are needed by every registry"


def _word(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


class _Count(WholeNumber):
    """Metadata of a period field: a whole number; null and ``never`` are no end."""

    def check(self, value: object) -> Any:
        return None if value is None or _word(value) == _NEVER else super().check(value)


def _default_if_not_applicable(value: Any) -> Any:
    """Read N/A, as in the seed's table, as null: the default applies."""
    return None if _word(value) in ("n/a", "na") else value


OptionalFlag = Annotated[Flag | None, BeforeValidator(_default_if_not_applicable)]


class _Fields(Document):
    """A table whose fields may be spelled in several ways: ``canDeletePrior`` is ``can_delete_prior``."""

    synonyms: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _normalize_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = {_spelled(name): name for name in cls.model_fields} | dict(cls.synonyms)
        found: dict[str, Any] = {}
        for given, value in data.items():
            name = known.get(_spelled(given), str(given))
            if name in found:
                why = "only one of the two can apply, and it is ambiguous which"
                raise refusal(f"{name} is given twice", why=why, fix="remove one of them")
            found[name] = value
        return found


def _spelled(name: object) -> str:
    return re.sub(r"[-_\s]+", "", str(name)).casefold()


class _PeriodFields(_Fields):
    synonyms: ClassVar[Mapping[str, str]] = {
        **{name: str(unit) for name, unit in _UNITS.items()},
        **dict.fromkeys(("number", "value", "duration", "expiresafter"), "period"),
    }

    days: Annotated[int | None, _Count("days")] = None
    months: Annotated[int | None, _Count("months")] = None
    years: Annotated[int | None, _Count("years")] = None
    period: Any = None
    unit: Annotated[str | None, BeforeValidator(_word), Fix('write "days", "months" or "years"')] = None
    never: Flag | None = None

    @property
    def has_period(self) -> bool:
        return not self.model_fields_set.isdisjoint((*_PERIOD_FIELDS, "unit"))


class _PolicyFields(_PeriodFields):
    example: ClassVar[str] = '{"name": "Released", "days": 180}'

    name: Name | None = None
    can_delete_prior: OptionalFlag = None
    recycle: OptionalFlag = None


_Glob = Annotated[str, Fix('write "*" for every repository, or "team/*"')]
_TagPattern = Annotated[str, Fix('write ".*" for every tag, or "v[0-9]+"')]


class _AssignFields(_Fields):
    example: ClassVar[str] = '{"repository": "team/*", "tag": "v.*", "policy": "Released"}'

    repository: _Glob
    tag: _TagPattern
    policy: Name


class _KeepNewestFields(_Fields):
    example: ClassVar[str] = '{"repository": "team/*", "tag": ".*", "count": 3}'
    synonyms: ClassVar[Mapping[str, str]] = {"keepnewest": "count", "keep": "count"}

    repository: _Glob
    tag: _TagPattern
    count: Annotated[int, WholeNumber("tags")]


class _PoliciesFields(_Fields):
    example: ClassVar[str] = '{"policies": [...], "assign": [...]}'

    policies: Any = None
    assign: list[Any] | None = None
    keep_newest: list[Any] | None = None
    unmatched: Name | None = None
    removed: list[Name] | None = None


def parse_policies(document: str, fmt: str = "json") -> Policies:
    """Read a document (json, yaml or toml); the same policies in another format are equal."""
    return read_policies(parse_document(document, fmt, name="the policies"))


def read_policies(data: Any, where: str = "policies file") -> Policies:
    """Check plain data, as JSON gives it; `where` names the document in errors."""
    document = validate(_PoliciesFields, {} if data is None else data, where)
    written = _policies(f"{where}: policies", document.policies)
    removed = _removed(f"{where}: removed", document.removed or [], written)
    given = {key: policy for key, policy in by_name(*GIVEN_POLICIES).items() if key not in removed}
    known = Policies(given | written)
    assign = enumerate(document.assign or [], 1)
    keep_newest = enumerate(document.keep_newest or [], 1)
    return Policies(
        known.named,
        tuple(_assign(f"{where}: assign rule {number}", row, known) for number, row in assign),
        tuple(_keep_newest(f"{where}: keep_newest rule {number}", row) for number, row in keep_newest),
        _unmatched(f"{where}: unmatched", document.unmatched, known),
    )


def _policies(where: str, data: Any) -> dict[str, Policy]:
    """Read the policies of a document, each name once."""
    found: dict[str, Policy] = {}
    for label, fields in _policy_fields(where, data):
        policy = _policy(label, fields)
        key = same_name(policy.name)
        if key in found:
            why = "names that differ only in capitals, spaces, hyphens and underscores are one name"
            raise PolicyError(f"{where}: {policy.name!r} is there twice", why=why, fix="remove one of them")
        found[key] = policy
    return found


def _policy_fields(where: str, data: Any) -> Iterator[tuple[str, _PolicyFields]]:
    """Check each policy of a table by names, or of a list; each comes with its place in errors."""
    if isinstance(data, dict):
        for name, body in data.items():
            label = f"{where}: {name!r}"
            fields = validate(_PolicyFields, {} if body is None else body, label)
            if fields.name is not None and fields.name != str(name):
                raise PolicyError(f"{label} is named {fields.name!r} inside", fix="leave the name out")
            named = validate(_PolicyFields, {"name": name}, label)
            yield label, fields.model_copy(update={"name": named.name})
        return
    if data is not None and not isinstance(data, list):
        raise PolicyError(f"{where} is {shown(data)}, not a list", fix="write [...]")
    for number, body in enumerate(data or [], 1):
        fields = validate(_PolicyFields, body, f"{where}: policy {number}")
        if fields.name is None:
            raise PolicyError(f"{where}: policy {number} has no name", fix='add "name": "Released"')
        yield f"{where}: {fields.name!r}", fields


def _policy(where: str, fields: _PolicyFields) -> Policy:
    name = str(fields.name)
    default = by_name(*GIVEN_POLICIES).get(same_name(name), Policy(name))
    return Policy(
        default.name,
        _period(where, fields) if fields.has_period else default.period,
        default.can_delete_prior if fields.can_delete_prior is None else fields.can_delete_prior,
        default.recycle if fields.recycle is None else fields.recycle,
    )


def _period(where: str, fields: _PeriodFields) -> Period | None:
    """Read the period of a policy from its fields; None is never."""
    given = [name for name in _PERIOD_FIELDS if name in fields.model_fields_set]
    if fields.never is False:
        given.remove(_NEVER)
    if len(given) > 1:
        why = "it is ambiguous which of them is meant"
        raise PolicyError(f"{where} has {' and '.join(given)}", why=why, fix=_PERIOD_FIX)
    if not given and fields.unit != _NEVER:
        raise PolicyError(f"{where} has no period", fix=_PERIOD_FIX)
    if not given or given == [_NEVER]:
        return None
    if given == ["period"]:
        return _period_value(where, fields.period, fields.unit)
    if fields.unit is not None:
        raise PolicyError(f"{where} has {given[0]} and a unit", fix="leave the unit out")
    number = getattr(fields, given[0])
    return None if number is None else Period(number, Unit(given[0]))


def _period_value(where: str, value: Any, unit: str | None) -> Period | None:
    """Read the value of `period`: a number with a unit beside it, words, or a table."""
    if isinstance(value, dict):
        place = f"{where}: period"
        return _period(place, validate(_PeriodFields, value, place))
    if value is None or _NEVER in (_word(value), unit):
        return None
    if isinstance(value, str):
        words = re.fullmatch(r"([0-9]{1,10})\s*([a-z]+)", _word(value))
        if words is None or unit is not None:
            fix = 'write "6 months", or a number and a unit'
            raise PolicyError(f"{where}: period is {value!r}", fix=fix)
        value, unit = int(words[1]), words[2]
    if unit is None:
        raise PolicyError(f"{where} has a period without a unit", fix='add "unit": "days"')
    if unit not in _UNITS:
        raise PolicyError(f"{where}: {unit!r} is not a unit", fix=nearest(unit, [*map(str, Unit), _NEVER]))
    return _period(where, validate(_PeriodFields, {unit: value}, where))


def _removed(where: str, names: list[str], written: dict[str, Policy]) -> set[str]:
    """Check which of the given policies the registry no longer has; system policies stay."""
    found = {same_name(name) for name in names}
    for name in sorted(found):
        if name in by_name(*SYSTEM_POLICIES):
            raise PolicyError(f"{where}: {name!r} is a system policy", why=_ALWAYS, fix="change it instead")
        if name not in by_name(*GIVEN_POLICIES):
            raise PolicyError(f"{where}: {name!r} is not given to a registry", fix="leave it out")
        if name in written:
            raise PolicyError(f"{where}: {name!r} is also among the policies", fix="remove one of the two")
    return found


def _unmatched(where: str, name: str | None, policies: Policies) -> str:
    """Check what becomes of tags that no assign rule matches: KEEP, or the name of a policy."""
    if name is None:
        return DEFAULT.name
    policy = policies.find(name)
    if same_name(name) == KEEP:
        if policy is not None:
            raise PolicyError(
                f"{where}: {name!r} is also a policy", why="both could be meant", fix="rename the policy"
            )
        return KEEP
    if policy is None:
        names = [KEEP, *(known.name for known in policies.named.values())]
        fix = f'write "keep", add the policy, or {nearest(name, names)}'
        raise PolicyError(f"{where}: there is no policy {name!r}", fix=fix)
    return policy.name


def _assign(where: str, data: Any, policies: Policies) -> AssignRule:
    fields = validate(_AssignFields, data, where)
    policy = policies.find(fields.policy)
    if policy is None:
        names = [known.name for known in policies.named.values()]
        fix = f"add it to policies, or {nearest(fields.policy, names)}"
        raise PolicyError(f"{where}: there is no policy {fields.policy!r}", fix=fix)
    repository = glob(f"{where}: repository", fields.repository)
    return AssignRule(repository, tag_pattern(f"{where}: tag", fields.tag), policy.name)


def _keep_newest(where: str, data: Any) -> KeepNewest:
    fields = validate(_KeepNewestFields, data, where)
    repository = glob(f"{where}: repository", fields.repository)
    return KeepNewest(repository, tag_pattern(f"{where}: tag", fields.tag), fields.count)


def write_policies(policies: Policies) -> dict[str, Any]:
    """Write a whole document; policies are sorted by name, because their order means nothing."""
    named = [policies.named[name] for name in sorted(policies.named)]
    removed = [policy.name for policy in GIVEN_POLICIES if same_name(policy.name) not in policies.named]
    document: dict[str, Any] = {
        "policies": [plain_policy(policy) for policy in named],
        "assign": [plain_assign(rule) for rule in policies.assign],
        "keep_newest": [plain_keep(rule) for rule in policies.keep_newest],
    }
    # Defaults are left out, so that documents written before these fields existed keep their hash.
    unmatched = {} if policies.unmatched == DEFAULT.name else {"unmatched": policies.unmatched}
    return document | unmatched | ({"removed": removed} if removed else {})


def policies_text(policies: Policies) -> str:
    """Write policies in their one canonical JSON form."""
    return json.dumps(write_policies(policies), sort_keys=True)


def policies_hash(policies: Policies) -> str:
    """Hash the meaning of policies: format, spelling and the order of fields and policies do not matter."""
    return hashlib.sha256(policies_text(policies).encode()).hexdigest()


def plain_policy(policy: Policy) -> dict[str, Any]:
    """Write one policy with all of its values."""
    period = policy.period
    return {
        "name": policy.name,
        **({"never": True} if period is None else {str(period.unit): period.number}),
        "can_delete_prior": policy.can_delete_prior,
        "recycle": policy.recycle,
    }


def plain_assign(rule: AssignRule) -> dict[str, Any]:
    """Write a rule that assigns a policy to tags."""
    return {"repository": rule.repository.text, "tag": rule.tag.text, "policy": rule.policy}


def plain_keep(rule: KeepNewest) -> dict[str, Any]:
    """Write a rule that keeps the newest tags."""
    return {"repository": rule.repository.text, "tag": rule.tag.text, "count": rule.count}
