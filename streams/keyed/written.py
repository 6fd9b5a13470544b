"""A key as JSON, where a server or another process has to know equal keys again.

Within a process keys are equal as Python's `==` says: 1, 1.0 and True are one key. Here equal keys
have equal texts, so that they share a partition, and with it their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from numbers import Integral, Number
from typing import Any, cast
from uuid import uuid4

from orjson import OPT_NON_STR_KEYS, OPT_SORT_KEYS, dumps, loads

from penstock.streams.base.errors import WrongType, describe

__all__ = ["has_marks", "identity", "identity_json", "in_json", "key_json"]

_INTEGERS = range(-(1 << 63), 1 << 64)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Python makes no longer text of an integer.
_MOST_DIGITS = 4_300


def key_json(key: object) -> bytes:
    """The JSON of a key, the same for keys that are equal.

    Some keys that differ have one text, such as a UUID and its text: both are in one partition.
    Raises WrongType for an object whose equals have no text in common, ValueError for a number of
    more than 4,300 digits.
    """
    return _dumped(_plain(key, _as_it_is))


def identity_json(key: object) -> bytes:
    """The JSON of a key, never the same for keys that differ: one would be dropped as a duplicate
    of the other. A key that is equal to nothing, such as NaN, has another text each time."""
    return _dumped(identity(key))


def has_marks(text: bytes) -> bool:
    """Whether the JSON that `identity_json` has written is of more than texts, numbers, None and
    tuples of these, which it marks."""
    return b"{" in text and _is_marked(loads(text))


def _is_marked(plain: Any) -> bool:
    if plain.__class__ is list:
        return any(map(_is_marked, plain))
    return plain.__class__ is dict


def in_json(text: bytes | str) -> Any:
    """The key of which `identity_json` has written this, without marks."""
    return _hashable(loads(text))


def _hashable(plain: Any) -> Any:
    return tuple(map(_hashable, plain)) if plain.__class__ is list else plain


def identity(key: object) -> object:
    """The object that `identity_json` writes: an integer of up to 64 bits and a text that UTF-8 can
    write are themselves."""
    return _plain(key, _marked)


def _dumped(plain: object) -> bytes:
    return dumps(plain, default=repr, option=OPT_NON_STR_KEYS | OPT_SORT_KEYS)


_Mark = Callable[[object, str], object]


def _as_it_is(plain: object, kind: str, /) -> object:
    return plain


def _marked(plain: object, kind: str, /) -> object:
    """No key is written as an object of JSON, as dictionaries have no hash."""
    return {kind: plain}


def _plain(key: Any, mark: _Mark) -> object:
    """A key as strings, numbers and lists of them, which JSON keeps apart; what is written as one
    of these although it is something else is marked with what it is."""
    if key is None:
        return None
    if isinstance(key, str):
        return _text(key, mark)
    if isinstance(key, int | float | Number):
        return _number(key, mark)
    if isinstance(key, tuple | list):
        return [_plain(one, mark) for one in cast("tuple[object, ...]", key)]
    kind = cast(Any, type(key))
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(key, Enum):
        return mark(_plain(key.value, mark), f"{name}.{key.name}")
    if kind.__eq__ is object.__eq__:
        return mark(repr(key), f"{name} {uuid4().hex}")
    if isinstance(key, frozenset):
        members = cast("frozenset[object]", key)
        return mark(sorted(_dumped(_plain(one, mark)).decode() for one in members), "set")
    if isinstance(key, datetime | time):
        return mark(_moment(key), name)
    if is_dataclass(key) and cast(Any, key).__dataclass_params__.eq:
        compared = {one.name: getattr(key, one.name) for one in fields(key) if one.compare}
        return mark({name: _plain(value, mark) for name, value in compared.items()}, name)
    if kind.__repr__ is object.__repr__:
        raise WrongType(
            f"{describe(key)} has a text of its own in each process, so keys that are equal to it "
            "would not be known there: give its class __repr__, or use a field of it as the key"
        )
    return mark(key if _is_json(key) else repr(key), name)


def _is_json(key: object) -> bool:
    """Whether orjson writes it without `repr`."""
    try:
        dumps(key, option=OPT_NON_STR_KEYS)
    except TypeError:
        return False
    return True


def _moment(key: datetime | time) -> object:
    """In UTC, as times of different zones are equal; a sentinel such as `datetime.max` may have no
    such time, and a time without a date may be on another day there."""
    offset = key.utcoffset()
    if offset is None:
        # A zone that does not say how far it is from UTC counts for nothing.
        return key.replace(tzinfo=None, fold=0)
    if isinstance(key, time):
        since = timedelta(hours=key.hour, minutes=key.minute, seconds=key.second)
        return f"{since + timedelta(microseconds=key.microsecond) - offset}+00:00"
    try:
        return key.astimezone(UTC)
    except OverflowError:
        return str(key - _EPOCH)


def _text(key: str, mark: _Mark) -> object:
    # A member of an enumeration of strings is equal to its value.
    text = str.__str__(key)
    try:
        text.encode()
    except UnicodeEncodeError:
        return mark(repr(text), "str")
    return text


def _number(key: Any, mark: _Mark) -> object:
    """An integer if it is one, else the float that is equal to it; the others as text."""
    if isinstance(key, int | Integral) and int(key) in _INTEGERS:
        return int(key)
    if isinstance(key, complex):
        return _number(key.real, mark) if not key.imag else mark(repr(key + 0), "complex")
    try:
        near = float(key)
    except OverflowError:
        near = float("inf")
    if near != near:
        return mark("nan", f"number {uuid4().hex}")
    if near == key:
        if not isfinite(near):
            return mark(str(near), "number")
        return int(near) if near.is_integer() and int(near) in _INTEGERS else near
    if isinstance(key, Decimal) and abs(key.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS:,} digits cannot be a key here")
    above, below = (int(key), 1) if isinstance(key, int | Integral) else key.as_integer_ratio()
    if below == 1 and above in _INTEGERS:
        return above
    return mark(str(above) if below == 1 else f"{above}/{below}", "number")
