"""Splits a stream of bytes into lines, with a bound on an unfinished line."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Line", "LineSplitter", "Splitter", "TooLong"]

# Bytes of an overlong line that are kept to show which one it was.
_HEAD = 256


class TooLong:
    """The substitute for a line above the bound: its first bytes, and its size in bytes.

    Until the line has `ended`, `size` grows as more of it is read; then it includes the newline.
    """

    __slots__ = ("ended", "head", "size")

    def __init__(self, line: bytes | bytearray, *, ended: bool) -> None:
        self.head = bytes(line[:_HEAD])
        self.ended = ended
        self.size = len(line) + ended


Line = bytes | bytearray | TooLong


class Splitter(Protocol):
    """Cuts a stream of bytes into lines, or into rows of several lines."""

    def feed(self, chunk: bytes, /) -> list[Line]:
        """What ends in the chunk, in order."""
        ...

    def end(self) -> list[Line]:
        """What the end of the input ends."""
        ...


class LineSplitter:
    r"""Lines end with `\n`, which is not part of them; a `\r` before it is.

    A line of more than `longest` bytes is reported once, as `TooLong`, as soon as it is known
    to be too long; the rest of it is discarded. So at most `longest` bytes and one chunk are held.
    """

    __slots__ = ("_longest", "_rest", "_skipped")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        # A bytearray, because a line of many chunks must not be copied once a chunk.
        self._rest = bytearray()
        # The line whose rest is discarded.
        self._skipped: TooLong | None = None

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that end in `chunk`, in order."""
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        lines: list[Line] = []
        if pieces:
            lines += self._first(pieces[0])
            others = pieces[1:]
            lines += map(self._checked, others) if len(chunk) > self._longest else others
        lines += self._grown(last)
        return lines

    def _first(self, end: bytes) -> list[Line]:
        """The line that a chunk ends, unless it is one whose rest is discarded."""
        skipped, self._skipped = self._skipped, None
        if skipped is not None:
            skipped.size += len(end) + 1
            skipped.ended = True
            return []
        if not self._rest:
            return [self._checked(end)]
        line, self._rest = self._rest, bytearray()
        line += end
        return [self._checked(line)]

    def _checked(self, line: bytes | bytearray) -> Line:
        return line if len(line) <= self._longest else TooLong(line, ended=True)

    def _grown(self, piece: bytes) -> list[Line]:
        """The unfinished line, if this piece of it makes it too long."""
        if self._skipped is not None:
            self._skipped.size += len(piece)
            return []
        self._rest += piece
        if len(self._rest) <= self._longest:
            return []
        self._skipped = TooLong(self._rest, ended=False)
        self._rest = bytearray()
        return [self._skipped]

    def end(self) -> list[Line]:
        """The last line, if the input does not end with a newline."""
        rest, self._rest = self._rest, bytearray()
        self._skipped = None
        return [rest] if rest else []
