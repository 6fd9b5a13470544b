"""Expressions of SQLite's SQL: values, times, fields of JSON, and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orjson import dumps

__all__ = ["as_text", "json_path", "key_text", "literals", "seconds"]


def seconds(time: str) -> str:
    """Seconds since 1970, of an expression for a time in a user's table: it has them, or a text in
    ISO 8601, as CURRENT_TIMESTAMP gives it."""
    return (
        f"CASE WHEN typeof({time}) = 'text' AND {time} LIKE '____-__-__%' "
        f"THEN coalesce((julianday({time}) - 2440587.5) * 86400.0, 0) ELSE CAST({time} AS REAL) END"
    )


def as_text(seconds: str) -> str:
    """A text as CURRENT_TIMESTAMP gives it, with milliseconds."""
    return f"strftime('%Y-%m-%d %H:%M:%f', {seconds}, 'unixepoch')"


def literals(values: Sequence[Any]) -> str:
    """A list of ids in SQL."""
    return ", ".join(map(_literal, values))


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else repr(value)


def json_path(field: str) -> str:
    """The path of a field as a literal of SQL."""
    return "'" + ("$." + dumps(field).decode()).replace("'", "''") + "'"


def key_text(key: str) -> str:
    """An expression for a key as text, the same for an integer and a float that are equal."""
    return (
        f"coalesce(CAST(CASE WHEN typeof({key}) = 'real' AND {key} = CAST({key} AS INTEGER) "
        f"THEN CAST({key} AS INTEGER) ELSE {key} END AS TEXT), '')"
    )
