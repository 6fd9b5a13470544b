"""Encodes values as rows of CSV, as RFC 4180 describes them, but with `\\n` at the end of a row."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, cast

from orjson import loads

from penstock.streams.io.encoding import as_json, encoded

__all__ = ["RowEncoder"]

# Values that the module csv writes as they are; None becomes an empty text.
_PLAIN = frozenset({str, int, float, type(None)})


class RowEncoder:
    """Makes the rows of values, with the header before the first one unless `has_header` is set.

    The columns are those given, or else the names of the first value. Raises TypeError for a value
    that has no names, or others than the columns; one that lacks some has empty fields there.
    """

    def __init__(self, columns: Sequence[str] | None, delimiter: str) -> None:
        self.columns = None if columns is None else list(columns)
        self.has_header = False
        self._delimiter = delimiter

    def __call__(self, values: Iterable[Any]) -> bytes:
        values, columns = list(values), self.columns
        if columns is None:
            if not values:
                return b""
            columns = list(map(str, _named(values[0])))
        rows = _plain_rows(values, columns)
        if rows is None:
            rows = [_row(_named(value), columns) for value in values]
        if not self.has_header:
            rows = [columns, *rows]
        text = self._text(rows, csv.QUOTE_MINIMAL)
        if "\r" in text:
            # Before Python 3.13 it is left without quotation marks.
            text = self._text(rows, csv.QUOTE_ALL)
        # Only now: none of these is written if one of them cannot be encoded.
        self.columns, self.has_header = columns, True
        return text.encode()

    def header(self) -> bytes:
        """The row with the names of the columns; none before they are known."""
        if self.columns is None:
            return b""
        return self._text([self.columns], csv.QUOTE_MINIMAL).encode()

    def _text(self, rows: Sequence[Sequence[Any]], quoting: Any) -> str:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._delimiter, lineterminator="\n", quoting=quoting)
        writer.writerows(rows)
        return text.getvalue()


def _plain_rows(values: list[Any], columns: list[str]) -> Sequence[Sequence[Any]] | None:
    """The rows of dicts that have these names, and only values that need no conversion; None where
    that is not sure."""
    if set(map(type, values)) != {dict} or set(map(len, values)) != {len(columns)}:
        return None
    try:
        # Any: of one name it returns the value itself.
        rows: Any = list(map(itemgetter(*columns), values))
    except KeyError:
        return None
    if len(columns) == 1:
        rows = [(value,) for value in rows]
    return rows if set(map(type, chain.from_iterable(rows))) <= _PLAIN else None


def _row(value: Mapping[str, Any], columns: list[str]) -> list[Any]:
    row = [value.get(name) for name in columns]
    if len(value) > len(columns) or not value.keys() <= set(columns):
        other = next(name for name in value if name not in columns)
        raise TypeError(
            f"it has {other!r}, and the columns are {', '.join(columns)}: name all by columns="
        )
    return row if set(map(type, row)) <= _PLAIN else list(map(_field, row))


def _named(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    # Any: what has no names is refused.
    found: Any = as_json(value) if _is_model(value) else None
    if isinstance(found, Mapping):
        return cast("Mapping[str, Any]", found)
    kind = type(value).__name__
    raise TypeError(f"a row of CSV needs names: give a dict or a dataclass, not {kind}")


def _is_model(value: Any) -> bool:
    return hasattr(value, "__struct_fields__") or hasattr(value, "model_dump")


def _field(value: Any) -> Any:
    """A text as it is; what JSON has as a text, as that text; anything else as JSON."""
    if type(value) in _PLAIN:
        return value
    text = encoded(value).decode()
    return loads(text) if text.startswith('"') else text
