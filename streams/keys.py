"""Keys: a field name, an index, or a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from inspect import iscoroutinefunction, isgeneratorfunction
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from streams.errors import WrongType
from streams.event import Event
from streams.faults import Faults, OnError, blame
from streams.stage import StageInfo
from streams.stamps import seconds_of

if TYPE_CHECKING:
    from streams.run import Run

__all__ = ["By", "KeyFaults", "key_function", "key_name"]

T = TypeVar("T")

_ADVICE = '; to go on without such events give on_error="skip", or on_error=route(sink)'

By = str | int | Callable[[T], Hashable]


def key_function(by: By[Any]) -> Callable[[Any], Any]:
    """The function that reads the key `by` from a value. TypeError if it names no key."""
    if isinstance(by, bool) or not (isinstance(by, str | int) or callable(by)):
        raise WrongType(
            f"by={by!r} is no key: give a field name, an index or a function of the value"
        )
    name = key_name(by)
    if iscoroutinefunction(by) or isgeneratorfunction(by):
        raise WrongType(
            f"by={name}: its result would be a new object for every event; give a plain "
            "function that returns the key"
        )
    return by if callable(by) else itemgetter(by)


def key_name(by: By[Any]) -> str:
    """How the key `by` is shown to people."""
    return getattr(by, "__name__", repr(by)) if callable(by) else str(by)


class KeyFaults(Faults):
    """The policy of a stage that reads a key, and perhaps a time: an error says what is amiss.

    Both are looked at again when one has failed, so that reading them costs nothing more as
    long as all is well.
    """

    def __init__(
        self, policy: OnError, run: Run, info: StageInfo, by: By[Any], time: By[Any] | None = None
    ) -> None:
        super().__init__(policy, run, info)
        self._by = by
        self._time = time
        self._stops = policy == "stop"

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        blame(error, self._info, event)
        lack = _lack(event.value, self._by, hash, "cannot be a key")
        if lack is None and self._time is not None:
            lack = _lack(event.value, self._time, seconds_of, "cannot be read as a time")
        if lack is not None:
            error.add_note(lack + (_ADVICE if self._stops else ""))
        return super().survives(event, error, attempts)


def _lack(value: Any, key: By[Any], use: Callable[[Any], object], unfit: str) -> str | None:
    """Why `value` has no `key` that can be used, where that is not for a function to say."""
    if callable(key):
        return None
    part = f"item {key}" if isinstance(key, int) else f"field {key!r}"
    try:
        found = value[key]
    except LookupError:
        return f"the event has no {part}"
    except Exception:
        kind = type(value).__name__
        if isinstance(key, str) and hasattr(value, key):
            return f"the event, of type {kind}, is not a mapping: give lambda event: event.{key}"
        return f"the event is of type {kind}, which has no {part}"
    try:
        use(found)
    except Exception:
        return f"{part} of the event, of type {type(found).__name__}, {unfit}"
    return None
