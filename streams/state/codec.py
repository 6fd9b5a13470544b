"""JSON encoding of states and keys: readable by people, and without code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, cast

from orjson import dumps, loads

from penstock.streams.base.errors import WrongType, add_note, describe
from penstock.streams.io.encoding import encoded as encoded_checked
from penstock.streams.io.line_format import decoding
from penstock.streams.keyed.written import has_marks, identity_json, in_json

__all__ = ["FIXED", "FORM", "decoder", "encoded", "key_in", "key_of", "timers_in", "timers_text"]

FIXED: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose objects are immutable."""

FORM = (
    "a state is stored as JSON: it is a number, a text, a list or a dict of these; or, with type=, "
    "a dataclass, a msgspec Struct or a pydantic model"
)
"""What a state may be."""


def encoded(state: Any) -> bytes:
    """A state as JSON. Raises TypeError for one that JSON cannot represent."""
    if state.__class__ is int and -(1 << 63) <= state < 1 << 64:
        return b"%d" % state
    try:
        return _copied(encoded_checked(state))
    except TypeError as error:
        add_note(error, FORM)
        raise


def _copied(data: bytes) -> bytes:
    """The same bytes in no more memory than they need: orjson's have four thousand more."""
    return bytes(memoryview(data))


def key_of(key: object) -> bytes:
    """A key as JSON, the same for two keys if and only if they are equal. Raises WrongType for one
    that is not a text, a number, None or a tuple of these."""
    text = identity_json(key)
    if has_marks(text):
        raise WrongType(
            f"a key with a state is a text, a number, None or a tuple of these, and not "
            f"{describe(key)}: give a function that makes one of it, as by=lambda event: str(...)"
        )
    return _copied(text)


def key_in(text: bytes) -> Any:
    """The key with this JSON."""
    return in_json(text)


def decoder(kind: Any) -> Callable[[bytes], Any]:
    """The function that decodes a state: to the type `kind`, a msgspec Struct, a pydantic model or
    a dataclass of plain fields, or for None to plain values. Raises BuildError for another type."""
    if kind is None:
        return cast("Callable[[bytes], Any]", loads)
    if isinstance(kind, type) and is_dataclass(kind) and not hasattr(kind, "__pydantic_fields__"):
        return lambda data: kind(**loads(data))
    return decoding("stateful", kind, skips_blank=False).decode


def timers_text(timers: dict[str, float]) -> bytes:
    """Timers as JSON, empty if there are none."""
    return dumps(timers) if timers else b""


def timers_in(text: bytes) -> dict[str, float]:
    """The timers with this JSON."""
    timers: dict[str, float] = loads(text) if text else {}
    return timers
