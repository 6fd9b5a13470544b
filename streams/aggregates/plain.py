"""Values that are the same after they were JSON."""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import describe

__all__ = ["is_plain", "require_plain"]

_INTEGERS = range(-(1 << 63), 1 << 64)


def require_plain(value: Any, what: str) -> None:
    """Raise ValueError for a value that JSON would change; `what` keeps it."""
    if not is_plain(value):
        raise ValueError(
            f"{what}: {describe(value)} is not plain, which is a text, a number, None, a list or a "
            "dict with texts as keys; give it a field, or a function that makes it plain"
        )


def is_plain(value: Any) -> bool:
    """Whether JSON keeps a value as it is."""
    kind: type = value.__class__
    if kind is str:
        return bool(value.isascii()) or _is_utf8(value)
    if kind is float:
        # Infinite, and NaN, are null in JSON.
        return bool(value - value == 0)
    if kind is int:
        return value in _INTEGERS
    if kind is dict:
        return all(key.__class__ is str and is_plain(key) for key in value) and all(
            map(is_plain, value.values())
        )
    if kind is list:
        return all(map(is_plain, value))
    return value is None or kind is bool


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
