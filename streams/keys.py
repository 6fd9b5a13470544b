"""Keys: a field name, an index, or a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from streams.event import Event
from streams.faults import Faults, OnError, blame
from streams.stage import StageInfo

if TYPE_CHECKING:
    from streams.run import Run

__all__ = ["By", "KeyFaults", "key_function", "key_name"]

T = TypeVar("T")

_ADVICE = '; to go on without such events give on_error="skip", or on_error=route(sink)'

By = str | int | Callable[[T], Hashable]


def key_function(by: By[Any]) -> Callable[[Any], Any]:
    """The function that reads the key `by` from a value. TypeError if it names no key."""
    if isinstance(by, bool) or not (isinstance(by, str | int) or callable(by)):
        raise TypeError(
            f"by={by!r} is no key: give a field name, an index or a function of the value"
        )
    return by if callable(by) else itemgetter(by)


def key_name(by: By[Any]) -> str:
    """How the key `by` is shown to people."""
    return getattr(by, "__name__", repr(by)) if callable(by) else str(by)


class KeyFaults(Faults):
    """The policy of a stage that reads keys: an error in one says what the event lacks.

    `keys` are all that the stage reads. They are looked at again when one has failed, so that
    reading them costs nothing more as long as they are there.
    """

    def __init__(self, policy: OnError, run: Run, info: StageInfo, *keys: By[Any] | None) -> None:
        super().__init__(policy, run, info)
        self._keys = keys
        self._stops = policy == "stop"

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        blame(error, self._info, event)
        for key in self._keys:
            lack = None if key is None or callable(key) else _lack(event.value, key)
            if lack is not None:
                error.add_note(lack + (_ADVICE if self._stops else ""))
                break
        return super().survives(event, error, attempts)


def _lack(value: Any, key: str | int) -> str | None:
    """Why `value` has no key `key`; None if it has one."""
    part = f"item {key}" if isinstance(key, int) else f"field {key!r}"
    try:
        found = value[key]
    except LookupError:
        return f"the event has no {part}"
    except Exception:
        return f"the event is of type {type(value).__name__}, which has no {part}"
    try:
        hash(found)
    except Exception:
        return f"{part} of the event is of type {type(found).__name__}, which cannot be a key"
    return None
