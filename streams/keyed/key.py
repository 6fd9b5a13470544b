"""Key selectors: a field name, an index, or a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from inspect import iscoroutinefunction, isgeneratorfunction
from operator import itemgetter
from types import BuiltinMethodType, MethodType, MethodWrapperType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.streams.errors import WrongType, add_note, check_plain, message_of
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.validation import require_parameters, seconds_of

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["By", "Key", "KeyFaults", "key_function", "key_name"]

T = TypeVar("T")

_METHODS = (MethodType, BuiltinMethodType, MethodWrapperType)

_ADVICE = '; to go on without such events give on_error="skip", or on_error=route(sink)'

By = str | int | Callable[[T], Hashable]


class Key:
    """Reads the key `by` of values: of mappings by item, of any other object by attribute.

    `get` reads mappings and rows at no cost beyond `itemgetter`. It is an attribute that changes:
    do not keep it longer than for the values at hand. If it raises, `adapts(value)`
    returns whether the value's type has the field as an attribute; if so, `get` reads it from now
    on. Raises WrongType if `by` is not a valid key.
    """

    __slots__ = ("_types", "by", "get")

    def __init__(self, by: By[Any]) -> None:
        if isinstance(by, bool) or not (isinstance(by, str | int) or callable(by)):
            raise WrongType(
                f"by={by!r} is not a valid key: give a field name, an index or a function of the "
                "value"
            )
        name = key_name(by)
        if iscoroutinefunction(by) or isgeneratorfunction(by):
            raise WrongType(
                f"by={name}: its result would be a new object for every event; give a plain "
                "function that returns the key"
            )
        if callable(by):
            require_parameters(by, f"by={name}", 1)
        self.by = by
        self.get: Callable[[Any], Any] = self._first if callable(by) else itemgetter(by)
        self._types: set[type] = set()

    def _first(self, value: Any) -> Any:
        """What the user's function returns for the first value; UnfinishedResult if it is no key.

        Only the first result is checked: from then on `get` is the function itself.
        """
        function: Any = self.by
        found = function(value)
        instead = "await it in adaptive_flat_map, and read it from what that emits"
        check_plain(found, key_name(self.by), "the stage", instead, answers=True)
        self.get = function
        return found

    def adapts(self, value: Any) -> bool:
        """Whether `get`, which has just failed on `value`, reads it from now on."""
        by, kind = self.by, cast(Any, type(value))
        if not isinstance(by, str) or kind in self._types or isinstance(value, Mapping):
            return False
        try:
            found = getattr(value, by)
        except AttributeError:
            return False
        except Exception:
            # It has the field, whose own error says what is wrong.
            found = None
        # The methods of a string, or of a list, are not fields.
        if isinstance(found, _METHODS):
            return False
        self._types.add(kind)
        self.get = _by_attribute(by, self._types)
        return True


def _by_attribute(name: str, types: set[type]) -> Callable[[Any], Any]:
    """Reads values of these types by attribute, and others by item."""

    def read(value: Any) -> Any:
        return getattr(value, name) if type(value) in types else value[name]

    return read


def key_function(by: By[Any]) -> Callable[[Any], Any]:
    """The function that reads the key `by` from any value. Raises WrongType if it is not a valid
    key."""
    key = Key(by)
    if isinstance(by, int):
        return key.get

    def read(value: Any) -> Any:
        try:
            return key.get(value)
        except Exception:
            if not key.adapts(value):
                raise
        return key.get(value)

    return read


def key_name(by: By[Any]) -> str:
    """The name of the key `by` in messages."""
    return getattr(by, "__name__", repr(by)) if callable(by) else str(by)


class KeyFaults(ErrorPolicy):
    """The error policy of a stage that reads a key, and perhaps a time: an error says what is
    wrong.

    Both are read again when one has failed, so that there is no extra cost as long as all is well.
    `use` is what a key is for: it raises for one that is `unfit`.
    """

    def __init__(
        self,
        policy: OnError,
        run: Run,
        info: StageInfo,
        by: By[Any] | None,
        time: By[Any] | None = None,
        *,
        use: Callable[[Any], object] = hash,
        unfit: str = "cannot be a key",
    ) -> None:
        super().__init__(policy, run, info)
        self._by = by
        self._use = use
        self._unfit = unfit
        self._time = time
        self._stops = policy == "stop"

    def put_all(
        self,
        events: list[Event[Any]],
        put: Callable[[list[Event[Any]]], tuple[int, Exception] | None],
        key: Key,
    ) -> tuple[int, Exception | None]:
        """`put` the events, which returns the place of one whose key it cannot read, and the error.

        Returns how many events were skipped, and the error if the policy is to stop: the events
        behind it are then returned to their source.
        """
        skipped = 0
        while (refused := put(events)) is not None:
            place, error = refused
            if key.adapts(events[place].value):
                events = events[place:]
                continue
            event, events = events[place], events[place + 1 :]
            if not self.survives(event, error):
                give_back_all(events)
                return skipped, error
            skipped += 1
        return skipped, None

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        blame(error, self._info, event)
        lack = None
        if self._by is not None:
            lack = _lack(event.value, self._by, self._use, self._unfit)
        is_unhashable = message_of(error).startswith("unhashable type")
        if callable(self._by) and self._use is hash and is_unhashable:
            lack = "a key must be hashable, as strings, numbers and tuples of them are"
        if lack is None and self._time is not None:
            lack = _lack(event.value, self._time, seconds_of, "cannot be read as a time")
        if lack is not None:
            add_note(error, lack + (_ADVICE if self._stops else ""))
        return super().survives(event, error, attempts)


def _lack(value: Any, key: By[Any], use: Callable[[Any], object], unfit: str) -> str | None:
    """Why `value` has no usable `key`; None for a key function, whose own error says so."""
    if callable(key):
        return None
    part = f"item {key}" if isinstance(key, int) else f"field {key!r}"
    try:
        found = key_function(key)(value)
    except LookupError:
        return f"the event has no {part}"
    except (TypeError, AttributeError):
        return f"the event is of type {type(value).__name__}, which has no {part}"
    except Exception:
        # A property of the event, which raised the error itself.
        return None
    try:
        use(found)
    except Exception:
        return f"{part} of the event, of type {type(found).__name__}, {unfit}"
    return None
