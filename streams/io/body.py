"""Decodes the body of a message or of a line of JSON, or says why it cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from orjson import JSONDecodeError, loads

from penstock.streams.errors import BadLine, describe

__all__ = ["NotAValue", "json_object", "json_value", "text_of", "value_of"]

T = TypeVar("T")


class NotAValue(Exception):
    """What is wrong with data, as the end of a sentence that begins with where it is."""


def json_value(data: bytes | str) -> Any:
    """The value that the whole of `data` is.

    Raises NotAValue, which says what is wrong, and MemoryError.
    """
    try:
        return loads(data)
    except JSONDecodeError as error:
        if error.msg.startswith("Not enough memory"):
            # Nothing is wrong with the data: it must not be dropped.
            raise MemoryError(error.msg) from None
        raise NotAValue(f"is not valid JSON ({error})") from None


def json_object(data: bytes) -> dict[str, Any]:
    """The same, where it has to be an object."""
    value = json_value(data)
    if value.__class__ is not dict:
        raise NotAValue("is JSON, but not an object")
    return value


def value_of(data: bytes, decode: Callable[[bytes], T], message: object) -> T:
    """The decoded body; raises BadLine, which names the message, where `decode` raises
    NotAValue."""
    try:
        return decode(data)
    except NotAValue as error:
        raise BadLine(f"{message} {error}: {describe(text_of(data))}") from error.__cause__


def text_of(data: bytes | None) -> str:
    """The body as text, with undecodable bytes escaped."""
    return (data or b"").decode("utf-8", "backslashreplace")
