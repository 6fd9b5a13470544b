"""Key selectors: a field name, an index, or a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from inspect import iscoroutinefunction, isgeneratorfunction
from operator import itemgetter
from types import BuiltinMethodType, MethodType, MethodWrapperType
from typing import Any, TypeVar, cast

from penstock.streams.base.errors import WrongType, check_plain
from penstock.streams.base.validation import require_parameters

__all__ = ["By", "Key", "all_events", "key_function", "key_name", "lack_of"]

T = TypeVar("T")

_METHODS = (MethodType, BuiltinMethodType, MethodWrapperType)

By = str | int | Callable[[T], Hashable]


class Key:
    """Reads the key `by` of values: of mappings by item, of any other object by attribute.

    `get` reads mappings and rows at no cost beyond `itemgetter`. It is an attribute that changes:
    do not keep it longer than for the values at hand. If it raises, `adapts(value)`
    returns whether the value's type has the field as an attribute; if so, `get` reads it from now
    on. Raises WrongType if `by` is not a valid key; `option` is what the user gives it as.
    """

    __slots__ = ("_types", "by", "get")

    def __init__(self, by: By[Any], option: str = "by") -> None:
        if isinstance(by, bool) or not (isinstance(by, str | int) or callable(by)):
            raise WrongType(
                f"{option}={by!r} is not a valid key: give a field name, an index or a function of "
                "the value"
            )
        name = key_name(by)
        if iscoroutinefunction(by) or isgeneratorfunction(by):
            raise WrongType(
                f"{option}={name}: its result would be a new object for every event; give a plain "
                "function that returns the key"
            )
        if callable(by):
            require_parameters(by, f"{option}={name}", 1)
        self.by = by
        self.get: Callable[[Any], Any] = self._first if callable(by) else itemgetter(by)
        self._types: set[type] = set()

    def _first(self, value: Any) -> Any:
        """What the user's function returns for the first value. UnfinishedResult if it is not a
        key.

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


def all_events(event: object) -> None:
    """The key where all events are together."""


all_events.__name__ = "all events"


def key_name(by: By[Any]) -> str:
    """The name of the key `by` in messages."""
    return getattr(by, "__name__", repr(by)) if callable(by) else str(by)


def _inner(value: Any, key: str | int) -> str:
    """How to read a field of a field, where `key` is a name with dots that is none of `value`'s."""
    outer, dot, _ = str(key).partition(".")
    if not dot or not isinstance(value, Mapping) or outer not in value:
        return ""
    path = "".join(f"[{part!r}]" for part in str(key).split("."))
    return f"; a name has no path in it: give a function, such as lambda value: value{path}"


def lack_of(
    value: Any,
    key: By[Any],
    use: Callable[[Any], object] = hash,
    unfit: str = "cannot be a key",
) -> str | None:
    """Why `value` has no usable `key`; None for a key function, whose own error says so."""
    if callable(key):
        return None
    part = f"item {key}" if isinstance(key, int) else f"field {key!r}"
    try:
        found = key_function(key)(value)
    except LookupError:
        return f"the event has no {part}" + _inner(value, key)
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
