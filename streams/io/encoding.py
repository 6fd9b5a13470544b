"""Encodes values as JSON by orjson, including msgspec and pydantic models."""

from __future__ import annotations

from typing import Any, cast

from orjson import dumps

__all__ = ["Unencoded", "as_json", "encoded", "without_hook"]


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


def encoded(value: Any, option: int = 0) -> bytes:
    """A value as JSON. Raises TypeError for one that cannot be."""
    try:
        return dumps(value, as_json, option)
    except TypeError as error:
        without_hook(error)
        raise


def without_hook(error: Exception) -> None:
    """Remove from an error of orjson the cause that `as_json` does not know the value either."""
    if isinstance(error.__cause__, _Unknown):
        error.__cause__ = None
