"""The command's own output, robust against closed or full standard streams."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

__all__ = ["counted", "flush", "mention", "put", "say", "write"]


def say(text: str) -> None:
    """Write a line to standard error; it is dropped if that is not possible."""
    # Without standard error, print would use standard output.
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        # Closed or full: there is no other place to report it.
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def mention(text: str) -> None:
    """`say` in the command's own name."""
    say(f"penstock: {text}")


def put(text: str) -> int:
    """Write a result to standard output; returns the exit status.

    2 if there is no standard output, 1 if it could not be written. It is not an error when the
    reader closes the pipe early, as `head` does.
    """
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        mention("cannot write standard output: it is closed")
        return 2
    return _write(text)


def write(text: str, path: str) -> None:
    """Write a result to a file. Raises CannotOpen where that is not possible."""
    # Imported here: most commands write no file, and start sooner without these.
    from pathlib import Path

    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        from penstock.streams.errors import CannotOpen

        raise CannotOpen(f"Cannot write {path}: {error.strerror}.") from error


def _write(text: str) -> int:
    try:
        # Without a buffer even an empty text is written, and a full disk refuses it.
        if text:
            sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python would flush again at exit, and report the same failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0
        mention(f"cannot write standard output: {error.strerror}")
        return 1
    return 0


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def flush() -> int:
    """Write out what a pipeline file has printed; returns as `put` does."""
    if sys.stdout is None or sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison]
        return 0
    return _write("")
