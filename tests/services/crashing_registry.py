"""A registry in front of another that is cut off at one request, before it or just after it was done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ebbtide.core.errors import EbbtideError
from ebbtide.targets.oci.client.registry import Registry

_CHANGES = frozenset(
    {"put_blob", "mount_blob", "put_manifest", "delete_tag", "delete_manifest", "remove_unneeded_blobs"}
)
_REQUESTS = _CHANGES | {name for name in vars(Registry) if not name.startswith("_")} - {"spec", "close"}


class CutOffError(BaseException):
    """The process was killed; it is no Exception, so that nothing can go on after it."""


@dataclass
class CrashingRegistry:
    """Does what the other does, until the request of this number; `requests` names those there were."""

    inner: Registry
    at: int = -1
    after: bool = False
    """Whether the last request is still done, and only its answer is lost."""
    requests: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """Pass calls on to the wrapped registry and count its requests."""
        found = getattr(self.inner, name)
        return (lambda *args: self._ask(name, found, args)) if name in _REQUESTS else found

    def _ask(self, name: str, request: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self.requests.append(name)
        if len(self.requests) - 1 != self.at:
            return request(*args)
        if self.after:
            with suppress(EbbtideError):
                request(*args)
        raise CutOffError


def crash_everywhere(prepare: Callable[[], Registry], act: Callable[[Registry], object]) -> int:
    """
    Run an act on fresh registries, cut off in every state that it goes through, then run it to its end.

    These are the states before its first request and after each that changes something: to be cut off at a
    request that only reads leaves what the change before it left. The act ends by checking what must hold.
    Give the number of changes.
    """
    whole = CrashingRegistry(prepare())
    act(whole)  # type: ignore[arg-type] (it has all methods)
    changes = [at for at, name in enumerate(whole.requests) if name in _CHANGES]
    for at, after in [(0, False), *((at, True) for at in changes)]:
        inner = prepare()
        try:
            act(CrashingRegistry(inner, at, after))  # type: ignore[arg-type] (likewise)
        except CutOffError:
            act(inner)
        else:
            raise AssertionError(f"request {at} never came")
    return len(changes)
