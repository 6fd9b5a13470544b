"""Decodes the body of a message or of a line of JSON, or says why it cannot be decoded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from orjson import JSONDecodeError, dumps, loads

from penstock.streams.base.errors import BadLine, describe

__all__ = [
    "SHALLOW",
    "NotAValue",
    "is_too_deep",
    "json_object",
    "json_value",
    "text_of",
    "value_of",
]

# How deep lists and objects can be nested in what orjson writes. It reads some more, which could
# not be written again.
_DEEPEST = 254

# What Python and JavaScript, C and others write where JSON has no number.
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)

SHALLOW = 2 * _DEEPEST
"""No value in so many bytes is nested too deep."""

T = TypeVar("T")


class NotAValue(Exception):
    """The error of bad data, as the end of a sentence that begins with where it is."""


def json_value(data: bytes | str) -> Any:
    """The value that the whole of `data` is, after a byte-order mark if there is one.

    Raises NotAValue, which says what is wrong, and MemoryError.
    """
    try:
        value = loads(data)
    except JSONDecodeError as error:
        if error.msg.startswith("Not enough memory"):
            # Nothing is wrong with the data: it must not be dropped.
            raise MemoryError(error.msg) from None
        # Any: a text or bytes, and the mark in the same type.
        rest: Any = data
        mark: Any = "\ufeff" if isinstance(data, str) else b"\xef\xbb\xbf"
        if rest.startswith(mark) and not rest.startswith(mark + mark):
            return json_value(rest.removeprefix(mark))
        raise NotAValue(f"is not valid JSON ({_reason(error)})") from None
    if is_too_deep(data, value):
        raise NotAValue(f"has lists and objects nested more than {_DEEPEST} levels deep")
    return value


def _reason(error: JSONDecodeError) -> str:
    """Why something is not JSON, and where; NaN and infinity by their names."""
    text, at = error.doc, error.pos
    # The decoder takes the sign for the beginning of a number.
    found = _NO_NUMBER.match(text, at - text[max(0, at - 1) : at].count("-"))
    if found is None:
        return str(error)
    # The position as the decoder writes it.
    where = str(error).removeprefix(error.msg)
    return f"it has {found[0]}, and JSON has no such number: write null or leave it out{where}"


def is_too_deep(data: bytes | bytearray | str, value: Any) -> bool:
    """Whether `value`, decoded from `data`, is nested too deep to be written as JSON again."""
    if len(data) <= SHALLOW:
        return False
    # Any: a text or bytes.
    text: Any = data
    opening = ("[", "{") if isinstance(data, str) else (b"[", b"{")
    if sum(map(text.count, opening)) <= _DEEPEST:
        return False
    try:
        dumps(value)
    except TypeError:
        return True
    return False


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
