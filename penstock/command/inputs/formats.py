"""The formats of events in files: by the names of files, and the types of columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from typing import Any

from penstock.streams.base.errors import BuildError

__all__ = ["DELIMITERS", "format_of", "types_of"]

DELIMITERS = {"csv": ",", "tsv": "\t"}
"""The formats that have columns, with what separates these."""

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")

_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "date": date,
    "datetime": datetime,
}


def format_of(path: str) -> str | None:
    """The format that a name says; None if it says none."""
    for suffix in _COMPRESSED:
        path = path.removesuffix(suffix)
    ending = path.rpartition(".")[2].lower()
    return ending if ending in DELIMITERS else "jsonl" if ending == "jsonl" else None


def types_of(text: str | None) -> dict[str, Callable[[str], Any]]:
    """What makes a value of a text, by the column, of `price=float,paid=date?`."""
    if text is None:
        return {}
    from penstock.streams.io.inputs.csv_format import reading

    found: dict[str, Callable[[str], Any]] = {}
    for part in text.split(","):
        column, equals, name = part.strip().rpartition("=")
        kind = _TYPES.get(name.removesuffix("?"))
        if not equals or not column or kind is None:
            raise BuildError(
                f"--types {text}: {part.strip()!r} is not COLUMN=TYPE, with one of "
                f"{', '.join(_TYPES)}; with ? behind it an empty field is null"
            )
        function = reading("--types", column, kind)
        found[column] = partial(_or_none, function) if name.endswith("?") else function
    return found


def _or_none(function: Callable[[str], Any], text: str) -> Any:
    return function(text) if text else None
