"""The values of rows of CSV: dicts by the names of the columns, with types, or objects."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from penstock.streams.base.errors import BuildError, CannotOpen, describe
from penstock.streams.io.body import NotAValue
from penstock.streams.io.inputs.csv_rows import RowSplitter
from penstock.streams.io.line_format import Format
from penstock.streams.io.lines import Line

__all__ = ["TYPES", "Types", "check_delimiter", "csv_format", "reading"]

Types = Mapping[str, Any] | Callable[..., Any] | None
"""The types of columns by their names, a dataclass, or a function of a row."""

_LONGEST_FIELD = 2**31 - 1

_DELIMITERS = frozenset(",;\t|")

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _truth(text: str) -> bool:
    try:
        return _TRUTH[text.lower()]
    except KeyError:
        raise ValueError(f"{text!r} is not true or false") from None


TYPES: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: _truth,
    Decimal: Decimal,
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
}
"""What makes a value of a text, by its type."""


_NOUNS = {int: "a whole number", float: "a number", bool: "true or false", Decimal: "a number"}


def check_delimiter(name: str, delimiter: Any) -> bytes:
    """The delimiter as a byte. Raises BuildError for one that cannot separate fields."""
    is_one = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if is_one and delimiter not in '"\r\n':
        return str(delimiter).encode()
    raise BuildError(f"{name}(delimiter={delimiter!r}): one ASCII character is needed")


def csv_format(
    name: str, delimiter: str, columns: Sequence[str] | None, types: Types
) -> Format[Any]:
    """The format of the source `name`. Raises BuildError for options that are not valid."""
    separator = check_delimiter(name, delimiter)
    # Python refuses a longer field, also in a column that nobody needs; `max_line` is the bound.
    csv.field_size_limit(_LONGEST_FIELD)
    # Any: whatever a user gives.
    given: Any = types
    convert: dict[str, Callable[[str], Any]] = {}
    make: Callable[..., Any] | None = None
    if isinstance(given, Mapping):
        by_name = cast("Mapping[str, Any]", given)
        convert = {column: reading(name, column, kind) for column, kind in by_name.items()}
    elif isinstance(given, type) and is_dataclass(given):
        hints = get_type_hints(given)
        used = [one for one in fields(given) if one.init]
        convert = {one.name: reading(name, one.name, hints[one.name]) for one in used}
        make = partial(_object, given)
    elif callable(given):  # pyright: ignore[reportUnknownArgumentType]
        make = cast("Callable[..., Any]", given)
    elif given is not None:
        raise BuildError(f"{name}(types={given!r}): give types by column, or a dataclass")
    needed = _needed(given, convert)
    rows = partial(_rows, delimiter, convert, make)
    splitter = partial(RowSplitter, delimiter=separator)
    values = given if isinstance(given, type) else Mapping if make is None else None
    if columns is not None:
        names = _checked(columns, needed, f"{name}(columns=...)", delimiter)
        return rows(names, splitter, values)

    def headed(line: bytes) -> Format[Any]:
        try:
            (found,) = csv.reader([line.decode()], delimiter=delimiter, strict=True)
        except (csv.Error, UnicodeDecodeError, ValueError) as error:
            raise CannotOpen(f"cannot be read as CSV: its first row is bad ({error})") from error
        return rows(_checked(found, needed, "its first row", delimiter), splitter, values)

    return rows([], splitter, values)._replace(headed=headed)


def _needed(types: Any, convert: Mapping[str, Any]) -> list[str]:
    """The columns that have to be there."""
    if not is_dataclass(types):
        return list(convert)
    return [
        one.name
        for one in fields(types)
        if one.init and one.default is MISSING and one.default_factory is MISSING
    ]


def _checked(given: Any, needed: list[str], where: str, delimiter: str) -> list[str]:
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    names = list(cast("Sequence[str]", given)) if is_list else []
    if not names or not all(type(one) is str for one in names):
        raise BuildError(f"{where}: the names of columns are needed, not {given!r}")
    if twice := [one for one in dict.fromkeys(names) if names.count(one) > 1]:
        raise CannotOpen(f"{where} names more than one column {describe(twice[0])}")
    if lacks := [one for one in needed if one not in names]:
        other = "" if len(names) > 1 else next(iter(set(names[0]) & _DELIMITERS), "")
        advice = f"; columns are separated by {delimiter!r} here, not by {other!r}" if other else ""
        raise CannotOpen(
            f"{where} names no column {describe(lacks[0])}; it has: {', '.join(names)}{advice}"
        )
    return names


def reading(source: str, column: str, kind: Any) -> Callable[[str], Any]:
    """What makes a value of a text. Raises BuildError for a type that is not known."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    known = [one for one in parts if one is not NoneType]
    if len(known) == 1:
        function = TYPES.get(known[0])
        if function is None and callable(known[0]) and not isinstance(known[0], type):
            function = known[0]
        if function is not None:
            return function if len(parts) == 1 else partial(_optional, function)
    given = ", ".join(one.__name__ for one in TYPES)
    raise BuildError(
        f"{source}: column {column!r} has the type {kind!r}; give {given}, one of them | None, or "
        "a function of the text"
    )


def _why(function: Callable[[str], Any], error: Exception) -> str:
    """Why a function has refused a text, without the text."""
    while isinstance(function, partial):
        (function,) = function.args
    kind = next((one for one, known in TYPES.items() if known is function), None)
    if kind is None:
        return f"for which {getattr(function, '__name__', 'its function')} raised: {error}"
    return f"which is not {_NOUNS.get(kind, f'a {kind.__name__}')}"


def _optional(function: Callable[[str], Any], text: str) -> Any:
    return function(text) if text else None


def _object(kind: type, row: dict[str, Any]) -> Any:
    known = [one.name for one in fields(kind) if one.init]
    return kind(**{name: row[name] for name in known if name in row})


def _rows(
    delimiter: str,
    convert: dict[str, Callable[[str], Any]],
    make: Callable[..., Any] | None,
    names: list[str],
    splitter: Any,
    values: Any,
) -> Format[Any]:
    width = len(names)
    converted = [(at, convert[name]) for at, name in enumerate(names) if name in convert]

    def decode(line: bytes) -> Any:
        try:
            rows = list(csv.reader([line.decode()], delimiter=delimiter, strict=True))
        except UnicodeDecodeError as error:
            raise NotAValue(
                f"is not valid UTF-8 ({error.reason} at byte {error.start + 1})"
            ) from error
        except csv.Error as error:
            raise NotAValue(f"is not a row of CSV ({error})") from error
        if len(rows) != 1 or len(rows[0]) != width:
            number = len(rows[0]) if rows else 0
            raise NotAValue(f"has {number} fields, and the header has {width}")
        row: list[Any] = rows[0]
        for at, function in converted:
            try:
                row[at] = function(row[at])
            except MemoryError:
                raise
            except Exception as error:
                raise NotAValue(
                    f"has {describe(row[at])} in column {names[at]!r}, {_why(function, error)}"
                ) from error
        value = dict(zip(names, row, strict=True))
        if make is None:
            return value
        try:
            return make(value)
        except (NotAValue, MemoryError):
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise NotAValue(f"cannot be decoded ({type(error).__name__}: {reason})") from error

    def decode_all(lines: list[Line]) -> list[Any] | None:
        if make is not None:
            # A function of the user's sees each row once.
            return None
        try:
            # At once, unless rows have line breaks: that takes half of the time.
            texts = b"\n".join(lines).decode().split("\n")  # type: ignore[arg-type]
            if len(texts) != len(lines):
                texts = [bytes(line).decode() for line in lines]  # type: ignore[arg-type]
            # Any: lists of texts, then tuples of values.
            rows: Any = list(csv.reader(texts, delimiter=delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error, TypeError):
            # TypeError: a line is too long.
            return None
        if len(rows) != len(texts) or set(map(len, rows)) != {width}:
            return None
        if converted:
            columns = list(zip(*rows, strict=True))
            try:
                for at, function in converted:
                    columns[at] = tuple(map(function, columns[at]))
            except Exception:
                # The row is named one by one.
                return None
            rows = zip(*columns, strict=True)
        # Their lengths have been compared, and `strict` takes time.
        return [dict(zip(names, row)) for row in rows]  # noqa: B905

    return Format(decode, decode_all, skips_blank=True, values=values, splitter=splitter)
