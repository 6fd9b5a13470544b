"""Rows of CSV or TSV of which a command makes values of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.sources.csv import read_csv
from penstock.streams.io.inputs.csv_format import csv_format
from penstock.streams.io.inputs.patterns import Order
from penstock.streams.io.line_source import MAX_LINE, Format, LineOptions, read_lines_as
from penstock.streams.io.lines import Line
from penstock.streams.io.paths import Paths
from penstock.streams.pipelines.flowable import Flowable

__all__ = ["read_csv_as"]


def read_csv_as(
    path: Paths,
    delimiter: str,
    types: Mapping[str, Callable[[str], Any]],
    make: Callable[[Any], Any] | None,
    position: str | None,
    order: Order | None,
) -> Flowable[Any]:
    """`read_csv`, whose rows are those that `make` returns if it is given."""
    if make is None:
        return read_csv(path, delimiter=delimiter, types=types, position=position, order=order)
    rows = _made(csv_format("read_csv", delimiter, None, types), make)
    options = LineOptions(path, False, None, "report", MAX_LINE, position, order)
    return Flowable.like(read_lines_as("read_csv", rows, options))


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
