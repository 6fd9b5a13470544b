"""Encodes values as JSON by orjson, including msgspec and pydantic models.

Every value of a user that is written as JSON is encoded here. orjson writes NaN and infinity as
null; here they are an error, as everything else is that JSON does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from math import isfinite
from typing import Any, cast

from orjson import OPT_APPEND_NEWLINE, dumps

__all__ = ["Unencoded", "as_json", "check_numbers", "encoded", "json_line", "json_lines"]

# Most values of most events: no numbers that JSON lacks are in them.
_PLAIN = frozenset({str, int, bool, type(None)})


class Unencoded:
    """A value that another process could not encode, where others come encoded from there."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Unknown(TypeError):
    """A value that cannot be encoded; orjson's own message is enough."""


def as_json(value: Any) -> Any:
    """The substitute for a value that orjson does not know: a msgspec Struct or a pydantic model.

    It is orjson's `default`. TypeError for any other value.
    """
    kind = cast(Any, type(value))
    if not isinstance(value, type):
        if hasattr(kind, "__struct_fields__"):
            # Imported already, by the module that made the Struct.
            from msgspec import to_builtins

            return to_builtins(value, enc_hook=as_json)
        if hasattr(kind, "__pydantic_serializer__") and hasattr(kind, "model_dump"):
            return value.model_dump(mode="json")
    raise _Unknown


def encoded(value: Any, option: int = 0, *, default: Callable[[Any], Any] = as_json) -> bytes:
    """A value as JSON. Raises TypeError for one that cannot be."""
    try:
        data = dumps(value, default, option)
    except TypeError as error:
        _without_hook(error)
        raise
    if b"null" in data:
        check_numbers(value)
    return data


# A partial, which costs less than a Python function around it.
_line = partial(dumps, default=as_json, option=OPT_APPEND_NEWLINE)


def json_lines(values: Iterable[Any]) -> bytes:
    """A line of JSON for each value. Raises TypeError if one cannot be encoded."""
    values = list(values)
    try:
        lines = b"".join(map(_line, values))
    except TypeError as error:
        _without_hook(error)
        raise
    # What is not finite has been written as null; most lines have none.
    if b"null" in lines:
        for value in values:
            check_numbers(value)
    return lines


def json_line(value: Any) -> bytes:
    """A value as a line of JSON. Raises TypeError if it cannot be encoded."""
    return encoded(value, OPT_APPEND_NEWLINE)


def check_numbers(value: Any, place: str = "") -> None:
    """Raise TypeError for NaN or infinity anywhere in a value that orjson has encoded."""
    if isinstance(value, float):
        if not isfinite(value):
            where = f" (at {place})" if place else ""
            raise TypeError(f"JSON has no number {value}{where}: convert it first")
        return
    kind = cast("type[object]", type(value))
    if issubclass(kind, dict):
        for key, part in value.items():
            if type(part) not in _PLAIN:
                check_numbers(part, f"{place}[{key!r}]")
            if isinstance(key, float):
                check_numbers(key, f"{place}, a key")
    elif issubclass(kind, list | tuple):
        for number, part in enumerate(value):
            if type(part) not in _PLAIN:
                check_numbers(part, f"{place}[{number}]")
    elif isinstance(value, Enum):
        check_numbers(value.value, place)
    elif isinstance(value, type):
        return
    elif is_dataclass(value):
        for field in fields(value):
            # orjson leaves out the others.
            if not field.name.startswith("_"):
                check_numbers(getattr(value, field.name, None), f"{place}.{field.name}")
    else:
        try:
            substitute = as_json(value)
        except Exception:
            # A date, or what only its own encoder knows.
            return
        check_numbers(substitute, place)


def _without_hook(error: Exception) -> None:
    """Remove from an error of orjson the cause that `as_json` does not know the value either."""
    if isinstance(error.__cause__, _Unknown):
        error.__cause__ = None
