"""Keys: a field name, an index, or a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import itemgetter
from typing import Any, TypeVar

__all__ = ["By", "key_function", "key_name"]

T = TypeVar("T")

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
