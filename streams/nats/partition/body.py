"""Decodes the body of a message, or raises an error that names the message."""

from __future__ import annotations

from typing import Any

from orjson import JSONDecodeError, loads

from penstock.streams.errors import BadLine, describe

__all__ = ["text_of", "value_of"]


def value_of(data: bytes, message: object, *, is_object: bool = False) -> Any:
    """The value of its JSON, which has to be one object where it `is_object`; raises BadLine."""
    try:
        value: Any = loads(data)
    except JSONDecodeError as error:
        fault = f"is not valid JSON ({error})"
    else:
        if not is_object or value.__class__ is dict:
            return value
        fault = "is JSON, but not an object"
    raise BadLine(f"{message} {fault}: {describe(text_of(data))}")


def text_of(data: bytes) -> str:
    """The body as text, with undecodable bytes escaped."""
    return data.decode("utf-8", "backslashreplace")
