"""The rows of CSV or TSV that a command reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.streams.io.inputs.csv_format import csv_format
from penstock.streams.io.line_format import Format
from penstock.streams.io.lines import Line

__all__ = ["csv_lines"]


def csv_lines(
    delimiter: str, types: Mapping[str, Any], make: Callable[[Any], Any] | None
) -> Format[Any]:
    """The format of `read_csv`; its values are what `make` returns of each row, if it is given."""
    rows = csv_format("read_csv", delimiter, None, types)
    return rows if make is None else _made(rows, make)


def _made(rows: Format[Any], make: Callable[[Any], Any]) -> Format[Any]:
    def decode(line: bytes) -> Any:
        return make(rows.decode(line))

    def headed(line: bytes) -> Format[Any]:
        assert rows.headed is not None
        return _made(rows.headed(line), make)

    return rows._replace(
        decode=decode,
        decode_all=_one_by_one,
        values=None,
        headed=None if rows.headed is None else headed,
    )


def _one_by_one(lines: list[Line]) -> None:
    """`make` gets each row once."""
