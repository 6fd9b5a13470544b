"""The command's own output, robust against closed or full standard streams."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from io import RawIOBase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from datetime import datetime

from penstock.streams.base.errors import counted

__all__ = [
    "Lines",
    "aligned",
    "counted",
    "flush",
    "give",
    "is_json",
    "line",
    "mention",
    "put",
    "put_one",
    "say",
    "use",
    "write",
]

# As in the module `logging`, which is slow to import.
_LEVELS = {"info": 20, "warning": 30, "error": 40}

_LINES = 1000


def say(text: str) -> None:
    """Write a line to standard error; it is dropped if that is not possible."""
    # Without standard error, print would use standard output.
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        # Closed or full: there is no other place to report it.
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


class _Form:
    """How `mention` writes: see `use`."""

    as_json = False
    least = 0


def use(as_json: bool, least: int) -> None:
    """Have `mention` write JSON, or only what has at least this level of logging."""
    _Form.as_json, _Form.least = as_json, least


def is_json() -> bool:
    """Whether what is written to standard error is JSON."""
    return _Form.as_json


def mention(text: str, level: str = "info", *, always: bool = False) -> None:
    """`say` in the command's own name, in the form of its log; `always`: at every log level."""
    if _LEVELS[level] < _Form.least and not always:
        return
    if not _Form.as_json:
        say(f"penstock: {text}")
        return
    from datetime import UTC, datetime

    from penstock.streams.base import clock

    say(line(datetime.fromtimestamp(clock.wall(), UTC), level, "penstock", text, {}))


def line(moment: datetime, level: str, name: str, text: str, fields: Mapping[str, Any]) -> str:
    """A line of a log in JSON."""
    from json import dumps

    own = {
        "time": moment.isoformat(timespec="milliseconds"),
        "level": level,
        "logger": name,
        "message": text,
    }
    return dumps({**own, **fields}, default=str)


def put(text: str) -> int:
    """Write a result to standard output; returns the exit status.

    2 if there is no standard output, 1 if it could not be written. It is not an error when the
    reader closes the pipe early, as `head` does. Where the encoding of standard output lacks a
    character, it is UTF-8 from then on.
    """
    return _put(text) or 0


def put_one(text: str, *, of_many: bool, line: bool = False) -> int | None:
    """`put` a text, perhaps one `of_many`; returns None if another one is wanted.

    On a terminal one of many takes the place of the one before. Elsewhere an empty line follows it.
    Neither is done with a `line` of JSON.
    """
    if not of_many:
        return put(text)
    if not line:
        # The cursor goes home and what is below it is cleared, as watch(1) does.
        on_a_terminal = sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]
        text = f"\x1b[H\x1b[J{text}" if on_a_terminal else f"{text}\n"
    return _put(text)


def _put(text: str) -> int | None:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        mention("cannot write standard output: it is closed", "error")
        return 2
    return _write(text)


class Lines:
    """Lines of a result, put out many at a time: for a command that makes them quickly.

    The last ones are put out when the `with` block is left, by an exception too.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def put(self, line: str) -> None:
        """Put out this line, or keep it until there are a thousand."""
        self._lines.append(line)
        if len(self._lines) == _LINES:
            self._put_all()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        self._put_all()

    def _put_all(self) -> None:
        if self._lines:
            put("\n".join([*self._lines, ""]))
            self._lines.clear()


def give(text: str, path: str | None) -> int:
    """Write a result to a file, or to standard output if there is none; returns as `put` does.

    Raises CannotOpen.
    """
    if path is None:
        return put(text)
    write(text, path)
    return 0


def write(text: str, path: str) -> None:
    """Write a result to a file. Raises CannotOpen where that is not possible."""
    # Imported here: most commands write no file, and start sooner without these.
    from pathlib import Path

    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        from penstock.streams.base.errors import CannotOpen

        raise CannotOpen(f"Cannot write {path}: {error.strerror}.") from error


def _write(text: str) -> int | None:
    """None if it was written, 0 if its reader has closed the pipe, 1 if it could not be written."""
    try:
        with _standard_output() as stream:
            # Without a buffer even an empty text is written, and a full disk refuses it.
            if text:
                _write_encoded(text, stream)
            stream.flush()
    except OSError as error:
        # Python would flush again at exit, and report the same failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0
        mention(f"cannot write standard output: {error.strerror}", "error")
        return 1
    return None


@contextmanager
def _standard_output() -> Generator[Any]:
    """Our own, also while handlers have standard error in its place, and with a buffer."""
    # Not imported only to find out that nothing has taken it.
    streams = sys.modules.get("penstock.streams.runtime.process.standard_streams")
    own = 1 if streams is None else streams.standing_for(1)
    # Without one, as PYTHONUNBUFFERED asks for, a process that is stopped while it writes goes on
    # behind what it has not written.
    is_raw = isinstance(getattr(sys.stdout, "buffer", None), RawIOBase)
    if own == 1 and not is_raw:
        yield sys.stdout
        return
    with open(own, "w", encoding=sys.stdout.encoding, closefd=False) as stream:
        yield stream


def _write_encoded(text: str, stream: Any) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        # An encoding that lacks a character: then all is UTF-8, as in files.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        stream.write(text)


def aligned(rows: Sequence[Sequence[str]], texts: int = 1, indent: str = "  ") -> list[str]:
    """The rows of a table as lines: the first columns, so many, are texts, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = list(zip(row, widths, strict=True))
        left = [cell.ljust(width) for cell, width in cells[:texts]]
        lines.append(indent + "  ".join(left + [c.rjust(width) for c, width in cells[texts:]]))
    return lines


def flush() -> int:
    """Write out what a pipeline file has printed; returns as `put` does."""
    if sys.stdout is None or sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison]
        return 0
    return _write("") or 0
