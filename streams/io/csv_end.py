"""The beginning and the end of a file of CSV that is appended to: its header, and a row that was
cut off."""

from __future__ import annotations

import csv
import os
import stat
from contextlib import ExitStack, suppress

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.compression import Unpacked
from penstock.streams.io.descriptor import Descriptor
from penstock.streams.io.inputs.csv_rows import RowSplitter
from penstock.streams.io.lines import TooLong
from penstock.streams.io.paths import Path, output_name

__all__ = ["first_row", "last_row"]

_PIECE, _MOST = 64 * 1024, 16 * 1024 * 1024


def first_row(path: Path, delimiter: str) -> list[str] | None:
    """The names of the columns of a file; None if it has no row, or is not a file. Raises
    CannotOpen."""
    where = path if not isinstance(path, int) and path != "-" else _descriptor_path(path)
    name = output_name(path)
    with ExitStack() as own, suppress(FileNotFoundError):
        number = os.open(where, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        own.callback(os.close, number)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        content = Unpacked(Descriptor(number, ExitStack(), lasting=True), name, _PIECE)
        splitter = RowSplitter(_MOST, delimiter.encode())
        while data := content.read():
            for row in splitter.feed(data):
                if isinstance(row, TooLong):
                    raise CannotOpen(f"Cannot append to {name}: its first row has no end.")
                return next(csv.reader([row.decode("utf-8-sig", "replace")], delimiter=delimiter))
    return None


def _descriptor_path(path: Path) -> str:
    return f"/dev/fd/{1 if path == '-' else path}"


def last_row(file: int, size: int, delimiter: str) -> bytes:
    """The bytes of a file after its last whole row. Time: the file is read."""
    splitter = RowSplitter(_MOST, delimiter.encode())
    whole = at = 0
    while at < size:
        data = os.pread(file, _PIECE, at)
        at += len(data)
        for row in splitter.feed(data):
            whole += row.size if isinstance(row, TooLong) else len(row) + 1
    return os.pread(file, min(size - whole, _MOST), whole)
