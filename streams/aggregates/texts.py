"""The text by which a value is counted: the same for equal values, and for no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orjson import loads

from penstock.streams.aggregates.aggregate import reader
from penstock.streams.base.errors import describe
from penstock.streams.base.keys import By, key_name
from penstock.streams.keyed.written import has_marks, identity_json, in_json

__all__ = ["text_reader", "value_of"]


def text_reader(of: By[Any], name: str) -> Callable[[Any], str]:
    """Reads the field `of` of values, for the aggregate `name`, as a text. ValueError for what is
    not a text, a number, None or a tuple of these."""
    read = reader(of, name)

    def read_text(value: Any) -> str:
        found = read(value)
        if found.__class__ is str and found.isascii():
            # No JSON begins like this.
            return "'" + found
        try:
            json = identity_json(found)
            is_plain, text = not has_marks(json), json.decode()
        except (TypeError, ValueError):
            is_plain, text = False, ""
        if not is_plain:
            raise ValueError(
                f"{name}({key_name(of)}): {describe(found)} is not a text, a number, None or a "
                "tuple of these"
            )
        return "'" + loads(text) if text[0] == '"' else text

    return read_text


def value_of(text: str) -> Any:
    """The value with this text."""
    return text[1:] if text[0] == "'" else in_json(text)
