"""Rows of CSV, as RFC 4180 describes them: a field in quotation marks may have line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.streams.io.lines import Line, LineSplitter, TooLong

__all__ = ["RowSplitter"]


class RowSplitter:
    """The lines of a `LineSplitter`, joined again where a line break is within quotation marks.

    A mark that is not closed within `longest` bytes, or not before the end, does not swallow what
    follows: its line is a row by itself, which cannot be decoded, and the next line begins another
    one. Memory: `longest` bytes and one chunk. Time: O(n).
    """

    def __init__(self, longest: int, delimiter: bytes) -> None:
        self._longest = longest
        self._lines = LineSplitter(longest)
        # The lines of a row whose quotation mark is not closed yet, and their size.
        self._open: list[bytes | bytearray] = []
        self._size = 0
        # Whether the unfinished line may have a quotation mark.
        self._marked = False
        other = rb"[^" + re.escape(delimiter) + rb"]"
        quoted = rb'"(?:[^"]|"")*+"' + other + rb"*+"
        field = rb"(?:" + quoted + rb'|(?!")' + other + rb"*+)"
        further = rb"(?:" + re.escape(delimiter) + field + rb")*+"
        self._is_whole = re.compile(field + further, re.DOTALL).fullmatch
        # The rest of a row, from within quotation marks on.
        closed = rb'(?:[^"]|"")*+"' + other + rb"*+"
        self._closes = re.compile(closed + further, re.DOTALL).fullmatch

    def feed(self, chunk: bytes) -> list[Line]:
        """The rows that end in `chunk`, in order."""
        lines = self._lines.feed(chunk)
        marked = b'"' in chunk
        if not (self._open or marked or self._marked):
            return lines
        self._marked = marked or (self._marked and not lines)
        return self._joined(lines)

    def end(self) -> list[Line]:
        """The rows that the end of the input ends."""
        rows = self._joined(self._lines.end())
        while self._open:
            rows += self._given_up()
        self._marked = False
        return rows

    def _joined(self, lines: Iterable[Line]) -> list[Line]:
        rows: list[Line] = []
        for line in lines:
            if isinstance(line, TooLong):
                while self._open:
                    rows += self._given_up()
                rows.append(line)
            elif not self._open:
                if b'"' not in line or self._is_whole(line):
                    rows.append(line)
                else:
                    self._open.append(line)
                    self._size = len(line)
            else:
                self._open.append(line)
                self._size += len(line) + 1
                if b'"' in line and self._closes(line):
                    rows.append(b"\n".join(self._open))
                    self._open = []
                elif self._size > self._longest:
                    rows += self._given_up()
        return rows

    def _given_up(self) -> list[Line]:
        """The first line as a row by itself, and the rows of the other lines."""
        first, *others = self._open
        self._open = []
        return [first, *self._joined(others)]
