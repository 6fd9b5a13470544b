"""Splits a stream of bytes into lines, with a bound on an unfinished line."""

from __future__ import annotations

__all__ = ["Line", "LineSplitter", "TooLong"]

# Bytes of an overlong line that are kept to show which one it was.
_HEAD = 256


class TooLong:
    """The substitute for a line above the bound: its first bytes."""

    __slots__ = ("head",)

    def __init__(self, head: bytes) -> None:
        self.head = head


Line = bytes | bytearray | TooLong


class LineSplitter:
    r"""Lines end with `\n`, which is not part of them; a `\r` before it is.

    A line of more than `longest` bytes is reported once, as `TooLong`, as soon as it is known
    to be too long; the rest of it is let go. So at most `longest` bytes and one chunk are held.
    """

    __slots__ = ("_longest", "_rest", "_skipping")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        # A bytearray, because a line of many chunks must not be copied once a chunk.
        self._rest = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that end in `chunk`, in order."""
        lines: list[Line] = []
        lines += chunk.split(b"\n")
        if self._skipping:
            if len(lines) == 1:
                return []
            self._skipping = False
            del lines[0]
        elif self._rest:
            whole = len(lines) > 1
            first = self._grown(lines[0], whole)
            if not whole or first is None:
                return [] if first is None else [first]
            lines[0] = first
        last = lines.pop()
        assert not isinstance(last, TooLong)
        self._rest = bytearray(last)
        if len(chunk) > self._longest:
            lines = [self._checked(line) for line in lines]
            if len(last) > self._longest:
                lines.append(self._give_up())
        return lines

    def _grown(self, piece: Line, whole: bool) -> Line | None:
        """The unfinished line and its next piece, if it is whole now or known to be too long."""
        assert not isinstance(piece, TooLong)
        rest = self._rest
        if len(rest) + len(piece) > self._longest:
            rest += piece[:_HEAD]
            too_long = self._give_up()
            self._skipping = not whole
            return too_long
        rest += piece
        return rest if whole else None

    def _give_up(self) -> TooLong:
        too_long = TooLong(bytes(self._rest[:_HEAD]))
        self._rest = bytearray()
        self._skipping = True
        return too_long

    def _checked(self, line: Line) -> Line:
        if isinstance(line, TooLong) or len(line) <= self._longest:
            return line
        return TooLong(bytes(line[:_HEAD]))

    def end(self) -> list[Line]:
        """The last line, if the input does not end with a newline."""
        rest, self._rest = self._rest, bytearray()
        self._skipping = False
        return [rest] if rest else []
